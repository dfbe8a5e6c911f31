// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

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
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/workload"
)

// snapshot returns what this pass knows about the machines of the Workspace.
func (r *Reconciler) snapshot(s *scope) *acquire.Snapshot {
	now := r.Clock.Now()
	return &acquire.Snapshot{
		Workspace: s.ws, Accepted: planOf(s.revision), Running: planOf(s.revisionOf(s.statefulSet)),
		Attempts: s.attempts, Machines: s.machines, Pods: s.podState(now),
		Judge: acquire.Judge{
			Rules: r.Answers.Rules, Deadlines: r.Answers.Deadlines, Nodes: s.machineNodes(r.Answers.NodeGrace),
			Provider: r.Answers.provider(r.market.ClassOf(s.revision.NodeClass)), Asker: lessons.Asker(s.ws), Now: now,
			FailureDeadline: r.Answers.FailureDeadline,
		},
		Surge: s.surge, Recreates: s.recreates, AsksAgain: s.asksAgain, IsMended: s.isMended, Foreign: s.foreign, IsNew: s.isNew,
		Lookup: lookups{r, s}, Live: s.live,
	}
}

// planOf returns a revision as package acquire takes it; nil for nil.
func planOf(made *revision) *acquire.Plan {
	if made == nil {
		return nil
	}
	return &acquire.Plan{Name: made.Name, Revision: &made.Revision}
}

func (s *scope) podState(now time.Time) acquire.Pods {
	out := acquire.Pods{
		HasSet: s.statefulSet != nil, Pinned: workload.PinnedAttempt(s.statefulSet),
		IsRolledOut: s.isRolledOut(), IsAnswering: s.isServing(now), HasLeader: s.leader() != nil,
	}
	for i := range s.pods {
		out.Nodes = append(out.Nodes, s.pods[i].Spec.NodeName)
	}
	return out
}

// lookups look up what a decision needs beyond the snapshot.
type lookups struct {
	*Reconciler
	s *scope
}

var _ acquire.Lookup = lookups{}

func (l lookups) Plan(name string) *acquire.Plan { return planOf(l.s.revisions.Named(name)) }

func (l lookups) Names(attempt int32, count int) ([]string, error) {
	return l.Provisioner.Names(l.s.owner, attempt, count)
}

func (l lookups) Offering(a *v1beta1.Attempt) refusal.Offering {
	return l.market.Offering(a.InstanceType, a.Zone, a.CapacityType, a.NodeClassName)
}

func (l lookups) Class(plan *acquire.Plan) string { return l.market.ClassOf(plan.NodeClass).Name }

func (l lookups) Zones(at time.Time, offer refusal.Offering) []string {
	return l.Memory.Zones(at, lessons.Asker(l.s.ws), offer)
}

func (l lookups) Forbidden() string {
	_, forbidden := l.choice(l.s).Today(l.s.revision)
	return forbidden
}

func (l lookups) Failing(attempt *v1beta1.Attempt) (string, bool) {
	return l.failingForGood(l.s, attempt)
}

// decide returns the next step, and reads past the caches what the decision needs.
func (r *Reconciler) decide(ctx context.Context, s *scope) (acquire.Decision, error) {
	if surger, isSurger := r.Provisioner.(capacity.Surger); isSurger {
		s.surge.IsPossible, s.surge.Replaces = surger.CanSurge(s.owner), surger.Replaces(s.owner)
	}
	s.live.Reasons, s.live.AreNodesKnown = map[int32]*acquire.Reasons{}, false
	for {
		decision, err := acquire.Decide(*r.snapshot(s))
		s.note(ctx, &decision)
		if open := s.openAttempt(); open != nil {
			r.lessons.Launched(lessons.Asker(s.ws), open)
		}
		if err != nil || decision.Read.Needs == acquire.NeedsNothing {
			return decision, err
		}
		if err := r.read(ctx, s, decision.Read); err != nil {
			return decision, err
		}
	}
}

// note takes over what a decision found.
func (s *scope) note(ctx context.Context, found *acquire.Decision) {
	s.attempts, s.surge, s.foreign, s.verdict = found.Attempts, found.Surge, found.Foreign, found.Verdict
	s.wasted += found.Wasted
	if found.LookAgain > 0 {
		s.lookAgain(found.LookAgain)
	}
	if found.Unheard != "" {
		s.unheard = found.Unheard
		s.lookAgain(retrySilence)
	}
	for i := range found.Ended {
		ended := &found.Ended[i]
		log.FromContext(ctx).Info("an attempt ended", "attempt", ended.Attempt.Number, "instanceType", ended.Attempt.InstanceType,
			"cause", ended.Attempt.Reason, "words", ended.Attempt.Message, "rule", ended.Rule)
	}
}

// read reads past the caches what a decision needs.
func (r *Reconciler) read(ctx context.Context, s *scope, read acquire.Read) (err error) {
	switch read.Needs {
	case acquire.NeedsHeld:
		return r.readMachines(ctx, s)
	case acquire.NeedsReasons:
		s.live.Reasons[read.Attempt], err = r.reasons(ctx, s, read.Lost)
		return err
	case acquire.NeedsSet:
		return r.readSet(ctx, s)
	default:
		s.live.AreNodesKnown = true
		return r.awaitNodes(ctx, s, s.attempts.OpenNumber(read.Attempt))
	}
}

// readMachines reads the held machines from the API server, once in a pass.
func (r *Reconciler) readMachines(ctx context.Context, s *scope) (err error) {
	if !s.live.AreMachinesKnown {
		s.live.Machines, err = r.Provisioner.Held(ctx, s.owner, s.attempts.Noted())
		s.live.AreMachinesKnown = err == nil
	}
	return err
}

// reasons reads explanations for the end of machines.
func (r *Reconciler) reasons(ctx context.Context, s *scope, lost []types.UID) (*acquire.Reasons, error) {
	out := &acquire.Reasons{}
	var err error
	if out.Events, err = r.Provisioner.Events(ctx, lost); err != nil {
		return nil, err
	}
	out.Class, out.ClassMessage, err = r.Provisioner.Class(ctx, r.market.ClassOf(s.revision.NodeClass))
	return out, err
}

// readSet reads the StatefulSet from the API server.
func (r *Reconciler) readSet(ctx context.Context, s *scope) error {
	newest := &appsv1.StatefulSet{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(s.statefulSet), newest)); err != nil {
		return fmt.Errorf("reading StatefulSet %s: %w", s.statefulSet.Name, err)
	}
	if newest.UID != "" && newest.ResourceVersion != s.statefulSet.ResourceVersion {
		s.statefulSet = newest
	}
	s.live.IsSetKnown = true
	return nil
}

// awaitNodes returns an error while the cache lags behind the nodes of an attempt.
func (r *Reconciler) awaitNodes(ctx context.Context, s *scope, of *v1beta1.Attempt) error {
	for _, machine := range s.machines.Of(of) {
		shown := s.node(machine.NodeName)
		if shown == nil {
			continue
		}
		newest := &corev1.Node{}
		if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(shown), newest)); err != nil {
			return fmt.Errorf("reading node %q: %w", shown.Name, err)
		}
		if newest.ResourceVersion != shown.ResourceVersion {
			return progress.Behind("nodes")
		}
	}
	return nil
}
