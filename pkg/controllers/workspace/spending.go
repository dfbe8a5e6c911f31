// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
)

// Limits of the administrator on what a Workspace may plan with. Its ceilings are the Ledger's.
type Limits struct {
	// MaxHourlyPrice of Workspaces that set none, in USD; 0 is none.
	MaxHourlyPrice float64
	// InstanceTypes that may be bought, as patterns of path.Match; empty means all.
	InstanceTypes []string
	// HostPaths are directories of nodes that weights may be read from; empty means none.
	HostPaths []string
}

// planLimits are the administrator's limits on a plan.
func (r *Reconciler) planLimits(s *scope) (planning.Limits, error) {
	ceilings, err := r.ceilings(s)
	if err != nil {
		return planning.Limits{}, err
	}
	return planning.Limits{
		Ceiling: r.ceiling(ceilings, request.MaxHourlyPrice(s.spec) > 0), OneMachine: r.Isolation.Refusal(),
	}, nil
}

// ceiling is what no plan may cost more than, whatever is held.
func (r *Reconciler) ceiling(ceilings ledger.Ceilings, hasOwn bool) planner.Ceiling {
	kind, limit := ceilings.Lowest()
	lowest := planner.Ceiling{
		HourlyPrice: limit, Name: fmt.Sprintf("the administrator's ceiling %s of", kind), Help: "have the administrator raise it",
	}
	usual := planner.Ceiling{
		HourlyPrice: r.Limits.MaxHourlyPrice, Name: "this installation's default limit of",
		Help: "set resource.placement.maxHourlyPrice",
	}
	if hasOwn || usual.HourlyPrice <= 0 || lowest.HourlyPrice > 0 && lowest.HourlyPrice <= usual.HourlyPrice {
		return lowest
	}
	return usual
}

// afford reserves the money for a plan's machines. Where it is short, the best plan that can be had for
// what is left takes its place; where there is none, the Workspace waits until machines of others are
// gone, which wakes it.
func (r *Reconciler) afford(ctx context.Context, s *scope, made *revision, number int32) (*revision, error) {
	over, err := r.reserve(ctx, s, made, number)
	if over == nil {
		return made, err
	}
	if err := s.insteadOf(over); err != nil {
		return nil, err
	}
	excluded, err := r.excluded(s)
	if err != nil {
		return nil, err
	}
	if over.Room <= 0 {
		return nil, r.shortUntil(ctx, s, over, excluded)
	}
	now := limits{
		excluded: excluded,
		room:     planner.Ceiling{HourlyPrice: over.Room, Name: "what is left under a ceiling,", Help: "wait"},
	}
	cheaper, err := r.makePlan(ctx, s, s.inputs, now)
	if _, isStalled := errors.AsType[*progress.StalledError](err); isStalled {
		return nil, r.shortUntil(ctx, s, over, excluded)
	}
	if err != nil {
		return nil, err
	}
	cheaper.Passing = true
	if cheaper.IsOnNodes() || s.willDo(cheaper) {
		return cheaper, nil
	}
	over, err = r.reserve(ctx, s, cheaper, number)
	if over != nil {
		return nil, r.short(over)
	}
	return cheaper, err
}

// reserve asks the ledger for the money for the machines of an attempt that are not there yet.
func (r *Reconciler) reserve(ctx context.Context, s *scope, made *revision, number int32) (*ledger.OverError, error) {
	plan := &made.Plan
	names, err := r.Provisioner.Names(s.owner, number, plan.Nodes)
	if err != nil {
		return nil, err
	}
	var bills []capacity.Bill
	bought := s.attempts.Known()
	for _, name := range names {
		if slices.ContainsFunc(bought, func(known capacity.Created) bool { return known.Name == name }) {
			continue // its cache may lag: it is paid for, and is not asked for again
		}
		bills = append(bills, capacity.Bill{
			Owner: s.owner, Machine: name, InstanceType: plan.InstanceType, HourlyPrice: machinePrice(plan),
		})
	}
	ceilings, err := r.ceilings(s)
	if err != nil {
		return nil, err
	}
	err = r.Ledger.ReserveWithin(ctx, r.Clock.Now(), bills, ceilings)
	if over, isOver := errors.AsType[*ledger.OverError](err); isOver {
		return over, nil
	}
	return nil, err
}

// machinePrice is that of one machine; negative where it is not known.
func machinePrice(plan *planner.Plan) float64 {
	if plan.HourlyPrice < 0 || plan.Nodes == 0 {
		return -1
	}
	return plan.HourlyPrice / float64(plan.Nodes)
}

// short says that money is short. Another Workspace's end wakes this one.
func (r *Reconciler) short(over *ledger.OverError) error {
	wait := &progress.WaitingError{Reason: v1beta1.ReasonSpendingCeiling, Message: over.Error()}
	if !over.LookAgain.IsZero() {
		wait.After = max(over.LookAgain.Sub(r.Clock.Now()), shortestLook)
	}
	return wait
}

// shortUntil says that money is short, until a cheaper machine that is left alone now may be asked for again: one
// that there is room for, if only in place of what serves.
func (r *Reconciler) shortUntil(ctx context.Context, s *scope, over *ledger.OverError, excluded []ladder.Exclusion) error {
	room := over.Room + max(s.heldPrice(), 0)
	if room <= 0 {
		return r.short(over)
	}
	asked, err := r.demand(ctx, s, s.inputs)
	if err != nil {
		return err
	}
	asked.Request.Constraints.Ceiling = planner.Ceiling{HourlyPrice: room + priceTolerance}
	over.LookAgain = ladder.Earliest(over.LookAgain, r.reopens(asked.Request, excluded))
	return r.short(over)
}

// reserveAgain has the money reserved for machines of the open attempt that are not there yet: a
// restart may have lost it, the plan may have grown, a ceiling may have been lowered. What serves is
// kept; an attempt that cannot be completed any more is let go.
func (r *Reconciler) reserveAgain(ctx context.Context, s *scope) error {
	open, key := s.openAttempt(), client.ObjectKeyFromObject(s.ws)
	if s.planErr != nil && s.buysNothing() && acquire.Misses(open, s.revision.Plan.Nodes) {
		return s.planErr
	}
	accepted, forbidden := r.today(s, s.revision)
	if forbidden != "" && acquire.Misses(open, s.revision.Plan.Nodes) {
		return r.stopBuying(s, open, s.revision.Plan.InstanceType+" may not be bought any more: "+forbidden)
	}
	if over := r.checkBothPrices(s, accepted); over != nil { // the limit was lowered meanwhile
		return r.abandon(s, over.Error())
	}
	r.waiting.add(key) // before it looks: money that is freed meanwhile must wake it
	over, err := r.reserve(ctx, s, accepted, open.Number)
	if over == nil {
		r.waiting.remove(key)
		return err
	}
	if open.ReadyTime == nil {
		return r.abandon(s, over.Error())
	}
	return r.short(over)
}

// stopBuying has no further machine bought for the open attempt: what serves is kept.
func (r *Reconciler) stopBuying(s *scope, open *v1beta1.Attempt, why string) error {
	if open.ReadyTime == nil {
		return r.abandon(s, why)
	}
	return &progress.WaitingError{Reason: v1beta1.ReasonNoMachineAllowed, Message: why}
}

// buysNothing says whether the spec, whatever was accepted before, asks for existing nodes only.
func (s *scope) buysNothing() bool {
	return s.ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting
}

// abandon lets go of the machines of the open attempt, which may not be completed.
func (r *Reconciler) abandon(s *scope, why string) error {
	s.end(acquire.Released("the machines were released: "+why), r.Clock.Now())
	return &progress.WaitingError{Reason: v1beta1.ReasonSpendingCeiling, Message: why, IsBrief: true}
}
