// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
)

// retryClass is the interval for looking again at a node class that is not ready.
const retryClass = time.Minute

// Release releases all machines except those of the serving attempt. It confirms first that the pass has the newest
// Workspace: an outdated one may lack the attempt that holds a machine. If nothing is left to release, the machines were
// read too early: they are gone, or Karpenter has replaced a lost machine of the serving attempt.
func (e *Executor) Release(ctx context.Context, s *scope.Scope) error {
	if err := e.Effects.Confirm(ctx, s); err != nil {
		return err
	}
	left, err := e.releaseBut(ctx, s)
	if err != nil {
		return err
	}
	if len(left) == 0 { // no event follows
		s.LookAgain(acquire.CacheLag)
		return nil
	}
	log.FromContext(ctx).Info("released machines", "nodeClaims", left)
	return s.AwaitRelease(left)
}

// ask requests the missing machines of the open attempt and releases all others. If the machines have other names than
// the attempt records, ask only updates the attempt, so that the next step writes the names before the request.
func (e *Executor) ask(ctx context.Context, s *scope.Scope) (isOver bool, err error) {
	open := s.OpenAttempt()
	names, err := e.Provisioner.Names(s.Owner, open.Number, s.Revision.Plan.Nodes)
	if err != nil {
		return true, err
	}
	if names = acquire.Names(names); !slices.Equal(names, open.NodeClaims) {
		open.NodeClaims = names
		return false, nil
	}
	if err := e.awaitReplacements(s, open); err != nil {
		return true, err
	}
	return true, e.buy(ctx, s, open)
}

// buy requests the missing machines of an attempt once their money is reserved.
func (e *Executor) buy(ctx context.Context, s *scope.Scope, open *v1beta1.Attempt) error {
	isDedicated, err := e.Preflight.IsDedicated(ctx, e.Choice(s).Purchase(s.Revision))
	if err != nil {
		return err
	}
	if err := e.Reserve(ctx, s); err != nil {
		return err
	}
	asked := e.Request(s)
	asked.Dedicated = isDedicated
	accepted, _ := e.Choice(s).Today(s.Revision)
	asked.HourlyPrice = purchase.MachinePrice(&accepted.Plan)
	outcome, err := e.Provisioner.Ensure(ctx, asked)
	if len(outcome.Released) > 0 {
		log.FromContext(ctx).Info("released machines", "nodeClaims", outcome.Released)
	}
	if len(outcome.Created) > 0 {
		s.Created = outcome.Created
		s.Exposed = e.Preflight.MetadataWarning(ctx, e.Market.ClassOf(s.Revision.NodeClass))
		s.AddCreated(outcome.Created, e.Clock.Now())
		acquire.NoteCreated(open, outcome.Created, e.Clock.Now())
		log.FromContext(ctx).Info("requested machines", "attempt", open.Number, "count", len(outcome.Created),
			"instanceType", s.Revision.Plan.InstanceType)
	}
	if err == nil {
		s.LookAgain(acquire.CacheLag) // in case they vanish before the cache shows them
	}
	return err
}

// Stop reports why no further attempt is possible. If the node class was the reason and is repaired, the pass
// continues; any other reason needs a change of the Workspace.
func (e *Executor) Stop(ctx context.Context, s *scope.Scope) (isOver bool, err error) {
	last := s.Attempts.Last()
	stalled := &progress.StalledError{Reason: last.Reason, Message: last.Message}
	if refusal.Mender(last.MendedBy) == refusal.MendedByClass && refusal.ClassState(last.NodeClass) != refusal.ClassReady {
		class, _, err := e.Provisioner.Class(ctx, e.Market.ClassOf(s.Revision.NodeClass))
		if err != nil {
			return true, err
		}
		if s.IsMended = refusal.Mended(refusal.ClassState(last.NodeClass), class); s.IsMended {
			return false, nil
		}
		stalled.Message += "; " + last.Fix
		stalled.RetryAfter = retryClass
		return true, stalled
	}
	if last.Fix != "" {
		stalled.Message += "; " + last.Fix
	}
	stalled.Message += "; to retry once that is fixed, change the spec, suspend and resume the Workspace, or set the annotation " +
		v1beta1.AnnotationRetryCapacity + " to a new value"
	return true, stalled
}

// await explains why the next request must wait.
func (e *Executor) await(s *scope.Scope) error {
	known := e.Snapshot(s)
	if left := s.Machines.Leaving(); len(left) > 0 || !known.IsMoved() {
		return s.AwaitRelease(left)
	}
	return &progress.WaitingError{
		Message: "waiting for the pods to leave the old machines",
		After:   max(known.MoveDeadline().Sub(known.Judge.Now), acquire.ShortestLook),
	}
}

// releaseBut releases all machines except those of the serving attempt.
func (e *Executor) releaseBut(ctx context.Context, s *scope.Scope) ([]string, error) {
	surger, isSurger := e.Provisioner.(capacity.Surger)
	if keep := s.ServingNames(); isSurger && len(keep) > 0 {
		return surger.ReleaseBut(ctx, s.Owner, keep)
	}
	return e.Provisioner.Release(ctx, s.Owner)
}
