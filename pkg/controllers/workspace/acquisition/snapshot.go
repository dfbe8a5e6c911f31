// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
)

// Snapshot returns the facts of this pass about the machines of the Workspace.
func (e *Executor) Snapshot(s *scope.Scope) *acquire.Snapshot {
	now := e.Clock.Now()
	return &acquire.Snapshot{
		Workspace: s.Workspace, Accepted: scope.PlanOf(s.Revision), Running: scope.PlanOf(s.RevisionOf(s.StatefulSet)),
		Attempts: s.Attempts, Machines: s.Machines, Pods: s.PodState(now),
		Judge: acquire.Judge{
			Rules: e.Settings.Rules, Deadlines: e.Settings.Deadlines, Nodes: s.MachineNodes(e.Settings.NodeGrace),
			Provider: e.Settings.Provider(e.Market.ClassOf(s.Revision.NodeClass)), Asker: lessons.Asker(s.Workspace), Now: now,
			FailureDeadline: e.Settings.FailureDeadline, IdleDeadline: e.Settings.IdleDeadline,
		},
		Surge: s.Surge, Recreates: s.Recreates, AsksAgain: s.AsksAgain, IsMended: s.IsMended, Foreign: s.Foreign, IsNew: s.IsNew,
		Lookup: lookups{e, s}, Live: s.Live,
	}
}

// lookups implements acquire.Lookup: it looks up facts for a decision that the snapshot lacks.
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

func (l lookups) HasBudget() bool { return l.Choice(l.s).HasBudget() }

func (l lookups) Failing(attempt *v1beta1.Attempt) (string, bool) {
	return l.s.FailsForGood(attempt, l.exposure(l.s))
}

func (l lookups) Fault() string { return l.s.LastFault() }

// decide returns the next step. It decides again after each live read that the decision needs.
func (e *Executor) decide(ctx context.Context, s *scope.Scope) (acquire.Decision, error) {
	if surger, isSurger := e.Provisioner.(capacity.Surger); isSurger {
		s.Surge.IsPossible, s.Surge.Replaces = surger.CanSurge(s.Owner), surger.Replaces(s.Owner)
	}
	s.Live.Reasons, s.Live.ArePodsConfirmed = map[int32]*acquire.Reasons{}, false
	for {
		decision, err := acquire.Decide(*e.Snapshot(s))
		e.note(ctx, s, &decision)
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

// note copies the results of a decision into the scope.
func (e *Executor) note(ctx context.Context, s *scope.Scope, found *acquire.Decision) {
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
		s.Wasted += unanswered(&s.Workspace.Status, &ended.Attempt, s.Machines, e.Clock.Now())
		log.FromContext(ctx).Info("an attempt ended", "attempt", ended.Attempt.Number, "instanceType", ended.Attempt.InstanceType,
			"cause", ended.Attempt.Reason, "words", ended.Attempt.Message, "rule", ended.Rule)
	}
}

// unanswered returns the cost in USD of the machines of an attempt that ended because they cannot serve, if no pod was
// ever ready on them. The decision itself counts only machines that were never usable as wasted.
func unanswered(was *v1beta1.WorkspaceStatus, ended *v1beta1.Attempt, machines acquire.Machines, now time.Time) float64 {
	if ended.Reason != v1beta1.ReasonCannotServe || ended.ReadyTime == nil || acquire.HasAnswered(was, ended) {
		return 0
	}
	usd := 0.0
	for _, machine := range machines.Of(ended) {
		if machine.Launched && now.After(machine.CreatedAt) {
			usd += max(machine.HourlyPrice, 0) * now.Sub(machine.CreatedAt).Hours()
		}
	}
	return usd
}

// Read does the live reads that a decision needs. It returns a conflict or a *progress.WaitingError if the caches lag.
func (e *Executor) Read(ctx context.Context, s *scope.Scope, read acquire.Read) (err error) {
	switch read.Needs {
	case acquire.NeedsMachines:
		return e.confirmMachines(ctx, s)
	case acquire.NeedsPods:
		return e.confirmPods(ctx, s, s.Attempts.OpenNumber(read.Attempt))
	default:
		s.Live.Reasons[read.Attempt], err = e.reasons(ctx, s, read.Lost)
		return err
	}
}

// confirmMachines checks, once per pass, that the cache shows the machines that the API server has.
func (e *Executor) confirmMachines(ctx context.Context, s *scope.Scope) error {
	if s.Live.AreMachinesConfirmed {
		return nil
	}
	held, err := e.Provisioner.Held(ctx, s.Owner, s.Attempts.Noted())
	if err == nil {
		err = acquire.AwaitMachines(s.Machines, held)
	}
	s.Live.AreMachinesConfirmed = err == nil
	return err
}

// confirmPods checks that the caches show the newest StatefulSet, and the newest nodes of an attempt's machines.
func (e *Executor) confirmPods(ctx context.Context, s *scope.Scope, of *v1beta1.Attempt) error {
	shown := []client.Object{s.StatefulSet}
	for _, machine := range s.Machines.Of(of) {
		if node := s.Node(machine.NodeName); node != nil {
			shown = append(shown, node)
		}
	}
	err := stale.Confirm(ctx, e.Live, shown...)
	s.Live.ArePodsConfirmed = err == nil
	return err
}

// reasons reads the events and the node class, which may explain why machines were lost.
func (e *Executor) reasons(ctx context.Context, s *scope.Scope, lost []types.UID) (*acquire.Reasons, error) {
	out := &acquire.Reasons{}
	var err error
	if out.Events, err = e.Provisioner.Events(ctx, lost); err != nil {
		return nil, err
	}
	out.Class, out.ClassMessage, err = e.Provisioner.Class(ctx, e.Market.ClassOf(s.Revision.NodeClass))
	return out, err
}
