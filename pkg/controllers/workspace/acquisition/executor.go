// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package acquisition carries out the decisions of package acquire about the machines of a Workspace. It reads the
// facts for a decision, and takes the step that was decided. Changes to anything besides machines go through Effects.
//
// It must not depend on how a decision is made, how plans are ranked, or how pods are rendered.
package acquisition

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Provisioner observes, requests and deletes machines.
type Provisioner interface {
	capacity.Observer
	capacity.Actor
}

// Effects change the parts of a Workspace other than its machines.
type Effects interface {
	// Pin pins a plan as the accepted one before its purchase, and checks that the names of its objects are free.
	Pin(ctx context.Context, s *scope.Scope, made *revision.Revision) error
	// Persist writes changed attempts into the status. Confirm returns a conflict unless the pass has the newest
	// Workspace.
	Persist(ctx context.Context, s *scope.Scope) error
	Confirm(ctx context.Context, s *scope.Scope) error
	// ApplyPods writes the StatefulSets, and DeletePods deletes pods by their UIDs.
	ApplyPods(ctx context.Context, s *scope.Scope) error
	DeletePods(ctx context.Context, namespace string, pods []group.Leaving, why string) error
}

// Observer reads nodes.
type Observer interface {
	// ObserveNodes reads the nodes of a Workspace again, including the nodes of the given names.
	ObserveNodes(ctx context.Context, s *scope.Scope, names []string) error
	// IsGone reports whether the API server has no node of that name.
	IsGone(ctx context.Context, name string) (bool, error)
}

// Executor takes the steps of acquisitions.
type Executor struct {
	Provisioner Provisioner
	Effects     Effects
	Observer    Observer
	// Live reads past the caches.
	Live client.Reader
	// Market chooses the plans to buy, and Preflight checks them. Memory holds the refusals of all Workspaces.
	Market    *purchase.Market
	Preflight *preflight.Checker
	Memory    *cooldown.Memory
	// Lessons shares the outcome of attempts with other Workspaces. Waiting holds the Workspaces to wake.
	Lessons *lessons.Lessons
	Waiting *watch.Waiting
	// Settings has the rules and deadlines for judging machines.
	Settings acquire.Settings
	// Exposure describes how other pods can reach a group; empty if nothing shows that they can.
	Exposure func(isolation.Group) string
	Clock    clock.PassiveClock
}

// mostSteps bounds the steps of one pass. At most four follow each other: record, next, record and ask.
const mostSteps = 8

// Acquire acquires the machines of the accepted plan, or of the next best plan.
func (e *Executor) Acquire(ctx context.Context, s *scope.Scope) error {
	return e.orOnNodes(ctx, s, e.steps(ctx, s))
}

// DecidePods decides which revision the pods run, and on which machines.
func (e *Executor) DecidePods(s *scope.Scope) {
	s.Previous, s.PinnedTo = nil, 0
	if s.IsOnNodes() {
		return
	}
	pods := e.Snapshot(s).Switchover(s.PlanErr == nil)
	if s.PinnedTo = pods.RunsOn; pods.Stays {
		s.Previous = s.RevisionOf(s.StatefulSet)
	}
}

// steps alternates decisions and steps until the pass must wait.
func (e *Executor) steps(ctx context.Context, s *scope.Scope) error {
	for range mostSteps {
		if s.IsOnNodes() {
			if err := e.ensureNodes(ctx, s); err != nil || s.IsOnNodes() {
				return err
			}
		}
		decision, err := e.decide(ctx, s)
		if err != nil {
			return err
		}
		isOver, err := e.take(ctx, s, decision.Step)
		if err != nil || isOver {
			return err
		}
	}
	return &progress.WaitingError{Message: "deciding about machines", IsBrief: true}
}

// take carries out one step, and reports whether the pass is over.
func (e *Executor) take(ctx context.Context, s *scope.Scope, step acquire.Step) (isOver bool, err error) {
	switch step.Do {
	case acquire.Record:
		return false, e.Effects.Persist(ctx, s)
	case acquire.Replace:
		return e.replaceLost(ctx, s, step.Lost)
	case acquire.Release:
		return true, e.Release(ctx, s)
	case acquire.Await:
		return true, e.await(s)
	case acquire.Stop:
		return e.Stop(ctx, s)
	case acquire.Next:
		return false, e.Next(ctx, s)
	case acquire.Ask:
		return e.ask(ctx, s)
	default:
		return true, nil
	}
}
