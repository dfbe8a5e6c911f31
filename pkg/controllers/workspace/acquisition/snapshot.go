// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Snapshot returns what this pass knows about the machines of the Workspace.
func (e *Executor) Snapshot(s *scope.Scope) *acquire.Snapshot {
	now := e.Clock.Now()
	return &acquire.Snapshot{
		Workspace: s.Workspace, Accepted: scope.PlanOf(s.Revision), Running: scope.PlanOf(s.RevisionOf(s.StatefulSet)),
		Attempts: s.Attempts, Machines: s.Machines, Pods: s.PodState(now),
		Judge: acquire.Judge{
			Rules: e.Answers.Rules, Deadlines: e.Answers.Deadlines, Nodes: s.MachineNodes(e.Answers.NodeGrace),
			Provider: e.Answers.Provider(e.Market.ClassOf(s.Revision.NodeClass)), Asker: lessons.Asker(s.Workspace), Now: now,
			FailureDeadline: e.Answers.FailureDeadline,
		},
		Surge: s.Surge, Recreates: s.Recreates, AsksAgain: s.AsksAgain, IsMended: s.IsMended, Foreign: s.Foreign, IsNew: s.IsNew,
		Lookup: lookups{e, s}, Live: s.Live,
	}
}

// lookups look up what a decision needs beyond the snapshot.
type lookups struct {
	*Executor
	s *scope.Scope
}

var _ acquire.Lookup = lookups{}

func (l lookups) Plan(name string) *acquire.Plan { return scope.PlanOf(l.s.Revisions.Named(name)) }

func (l lookups) Names(attempt int32, count int) ([]string, error) {
	return l.Provisioner.Names(l.s.Owner, attempt, count)
}

func (l lookups) Offering(a *v1beta1.Attempt) refusal.Offering {
	return l.Market.Offering(a.InstanceType, a.Zone, a.CapacityType, a.NodeClassName)
}

func (l lookups) Class(plan *acquire.Plan) string { return l.Market.ClassOf(plan.NodeClass).Name }

func (l lookups) Zones(at time.Time, offer refusal.Offering) []string {
	return l.Memory.Zones(at, lessons.Asker(l.s.Workspace), offer)
}

func (l lookups) Forbidden() string {
	_, forbidden := l.Choice(l.s).Today(l.s.Revision)
	return forbidden
}

func (l lookups) Failing(attempt *v1beta1.Attempt) (string, bool) {
	return l.s.FailsForGood(attempt, l.Exposure())
}

// decide returns the next step, and reads past the caches what the decision needs.
func (e *Executor) decide(ctx context.Context, s *scope.Scope) (acquire.Decision, error) {
	if surger, isSurger := e.Provisioner.(capacity.Surger); isSurger {
		s.Surge.IsPossible, s.Surge.Replaces = surger.CanSurge(s.Owner), surger.Replaces(s.Owner)
	}
	s.Live.Reasons, s.Live.AreNodesKnown = map[int32]*acquire.Reasons{}, false
	for {
		decision, err := acquire.Decide(*e.Snapshot(s))
		note(ctx, s, &decision)
		if open := s.OpenAttempt(); open != nil {
			e.Lessons.Launched(lessons.Asker(s.Workspace), open)
		}
		if err != nil || decision.Read.Needs == acquire.NeedsNothing {
			return decision, err
		}
		if err := e.Read(ctx, s, decision.Read); err != nil {
			return decision, err
		}
	}
}

// note takes over what a decision found.
func note(ctx context.Context, s *scope.Scope, found *acquire.Decision) {
	s.Attempts, s.Surge, s.Foreign, s.Verdict = found.Attempts, found.Surge, found.Foreign, found.Verdict
	s.Wasted += found.Wasted
	if found.LookAgain > 0 {
		s.LookAgain(found.LookAgain)
	}
	if found.Unheard != "" {
		s.Unheard = found.Unheard
		s.LookAgain(scope.RetrySilence)
	}
	for i := range found.Ended {
		ended := &found.Ended[i]
		log.FromContext(ctx).Info("an attempt ended", "attempt", ended.Attempt.Number, "instanceType", ended.Attempt.InstanceType,
			"cause", ended.Attempt.Reason, "words", ended.Attempt.Message, "rule", ended.Rule)
	}
}

// Read reads past the caches what a decision needs.
func (e *Executor) Read(ctx context.Context, s *scope.Scope, read acquire.Read) (err error) {
	switch read.Needs {
	case acquire.NeedsHeld:
		return e.readMachines(ctx, s)
	case acquire.NeedsReasons:
		s.Live.Reasons[read.Attempt], err = e.reasons(ctx, s, read.Lost)
		return err
	case acquire.NeedsSet:
		return e.readSet(ctx, s)
	default:
		s.Live.AreNodesKnown = true
		return e.awaitNodes(ctx, s, s.Attempts.OpenNumber(read.Attempt))
	}
}

// readMachines reads the held machines from the API server, once in a pass.
func (e *Executor) readMachines(ctx context.Context, s *scope.Scope) (err error) {
	if !s.Live.AreMachinesKnown {
		s.Live.Machines, err = e.Provisioner.Held(ctx, s.Owner, s.Attempts.Noted())
		s.Live.AreMachinesKnown = err == nil
	}
	return err
}

// reasons reads explanations for the end of machines.
func (e *Executor) reasons(ctx context.Context, s *scope.Scope, lost []types.UID) (*acquire.Reasons, error) {
	out := &acquire.Reasons{}
	var err error
	if out.Events, err = e.Provisioner.Events(ctx, lost); err != nil {
		return nil, err
	}
	out.Class, out.ClassMessage, err = e.Provisioner.Class(ctx, e.Market.ClassOf(s.Revision.NodeClass))
	return out, err
}

// readSet reads the StatefulSet from the API server.
func (e *Executor) readSet(ctx context.Context, s *scope.Scope) error {
	newest := &appsv1.StatefulSet{}
	if err := client.IgnoreNotFound(e.Live.Get(ctx, client.ObjectKeyFromObject(s.StatefulSet), newest)); err != nil {
		return fmt.Errorf("reading StatefulSet %s: %w", s.StatefulSet.Name, err)
	}
	if newest.UID != "" && newest.ResourceVersion != s.StatefulSet.ResourceVersion {
		s.StatefulSet = newest
	}
	s.Live.IsSetKnown = true
	return nil
}

// awaitNodes returns an error while the cache lags behind the nodes of an attempt.
func (e *Executor) awaitNodes(ctx context.Context, s *scope.Scope, of *v1beta1.Attempt) error {
	for _, machine := range s.Machines.Of(of) {
		shown := s.Node(machine.NodeName)
		if shown == nil {
			continue
		}
		newest := &corev1.Node{}
		if err := client.IgnoreNotFound(e.Live.Get(ctx, client.ObjectKeyFromObject(shown), newest)); err != nil {
			return fmt.Errorf("reading node %q: %w", shown.Name, err)
		}
		if newest.ResourceVersion != shown.ResourceVersion {
			return progress.Behind("nodes")
		}
	}
	return nil
}
