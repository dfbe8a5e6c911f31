// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Uses returns the resource requests of the pods on nodes; false if they are not yet known.
type Uses interface {
	Of(nodes []string) ([]existing.Use, bool)
}

// Nodes plans with existing nodes. It promises a plan's nodes to its Workspace before it makes another plan.
type Nodes struct {
	// List returns all nodes. Callers must not change them.
	List func(ctx context.Context) ([]corev1.Node, error)
	// Uses reads the requests of pods. If it is nil, no existing node is used.
	Uses Uses
	// Promises returns the nodes of the accepted plans; nil if there are none.
	Promises func(ctx context.Context) ([]existing.Promise, error)
	Clock    clock.PassiveClock

	book existing.Book
}

// offer holds the nodes for a Workspace, and the requests of their pods.
type offer struct {
	nodes []corev1.Node
	uses  []existing.Use
	// isOpen reports whether at least one node may be used once enough of it is free.
	isOpen bool
}

// plan lets the planner choose between existing nodes and machines to buy.
func (n *Nodes) plan(ctx context.Context, b *Builder, ask Ask, asked planner.Request) (planner.Plan, error) {
	ws := ask.Workspace
	wanted := existing.Ask{
		Unseen: n.Uses == nil, Owner: capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID},
		Selector: ws.Resource.LabelSelector, Preferred: ws.Resource.PreferredNodes,
		Pod: workload.Placement(ws), Left: reasons(ask.LeftNodes),
	}
	there, err := n.find(ctx, b, wanted)
	if err != nil {
		return planner.Plan{}, err
	}
	if len(there.nodes) == 0 {
		plan, err := b.Planner.Plan(asked)
		return plan, Classify(err)
	}
	plan, err := n.choose(ctx, b, asked, there, wanted)
	return plan, there.untilRoom(Classify(err))
}

// choose plans with the nodes that other plans leave free, and promises the nodes of the plan to the Workspace.
func (n *Nodes) choose(ctx context.Context, b *Builder, asked planner.Request, there offer, wanted existing.Ask) (planner.Plan, error) {
	var accepted []existing.Promise
	var err error
	if n.Promises != nil {
		if accepted, err = n.Promises(ctx); err != nil {
			return planner.Plan{}, err
		}
	}
	var plan planner.Plan
	n.book.Plan(n.Clock.Now(), wanted.Owner, accepted, func(promised []existing.Promise) existing.Promise {
		wanted.Promised = promised
		if asked.Nodes, err = existing.Candidates(there.nodes, there.uses, b.Catalog, wanted); err == nil {
			plan, err = b.Planner.Plan(asked)
		}
		if err != nil {
			return existing.Promise{}
		}
		return existing.PromiseOf(wanted.Owner, &plan)
	})
	return plan, err
}

// find returns the nodes that the Workspace selects, and the requests of their pods.
func (n *Nodes) find(ctx context.Context, b *Builder, wanted existing.Ask) (offer, error) {
	all, err := n.List(ctx)
	if err != nil {
		return offer{}, err
	}
	out := offer{}
	for i := range all {
		if existing.Matches(&all[i], wanted.Selector) {
			out.nodes = append(out.nodes, all[i])
		}
	}
	candidates, err := existing.Candidates(out.nodes, nil, b.Catalog, wanted)
	if err != nil {
		return offer{}, progress.Invalid(err.Error())
	}
	var open []string
	for i := range candidates {
		if candidates[i].Unusable == "" {
			open = append(open, candidates[i].Name)
		}
	}
	if out.isOpen = len(open) > 0; !out.isOpen {
		return out, nil
	}
	uses, isKnown := n.Uses.Of(slices.Compact(open)) // sorted; GPUs of several sizes repeat a node
	if !isKnown {
		return offer{}, progress.Behind("pods of nodes")
	}
	out.uses = uses
	return out, nil
}

// untilRoom sets a retry interval while a Workspace waits for room on nodes, because no watch reports the end of pods.
func (o offer) untilRoom(err error) error {
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok && o.isOpen {
		stalled.RetryAfter = retryNodes
	}
	return err
}

// reasons returns why nodes are not used, by the names of the nodes.
func reasons(left []render.LeftNode) map[string]string {
	out := map[string]string{}
	for _, node := range left {
		out[node.Name] = node.Reason
	}
	return out
}
