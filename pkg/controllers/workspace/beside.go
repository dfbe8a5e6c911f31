// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"

	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/usd"
)

// recreateError says why machines are not got beside those that serve: those are let go first.
type recreateError struct{ why string }

func (e *recreateError) Error() string { return "the serving machines are released first: " + e.why }

// checkBeside says whether the machines of a plan may be held together with those that serve, as far as the
// Workspace's own limit goes.
func (r *Reconciler) checkBeside(s *scope, made *revision) error {
	held := s.heldAttempt()
	if held == nil {
		return nil
	}
	if s.isFormer() {
		return &recreateError{"the capacity back end has changed since"}
	}
	if !s.isServing(r.Clock.Now()) {
		return &recreateError{"the model on them does not answer"}
	}
	return r.checkBothPrices(s, made)
}

// checkBothPrices says whether the limit on what a Workspace may cost has room for the machines of a plan beside those
// that are held. Errors are *recreateError.
func (r *Reconciler) checkBothPrices(s *scope, made *revision) error {
	held := s.heldAttempt()
	if held == nil {
		return nil
	}
	limit, name := request.MaxHourlyPrice(s.spec), "resource.placement.maxHourlyPrice"
	if limit <= 0 {
		limit, name = r.Limits.MaxHourlyPrice, "this installation's default limit"
	}
	if limit <= 0 {
		return nil
	}
	serves, asked := s.heldPrice(), made.Plan.HourlyPrice
	what := fmt.Sprintf("%s of %s leaves no room for %s", name, usd.PerHour(limit), made.Plan.InstanceType)
	switch {
	case serves < 0 || asked < 0:
		return &recreateError{what + " beside " + held.InstanceType + ", as not both prices are known"}
	case serves+asked > limit+priceTolerance:
		return &recreateError{fmt.Sprintf("%s (%s) beside %s (%s)", what, usd.PerHour(asked), held.InstanceType, usd.PerHour(serves))}
	default:
		return nil
	}
}

// priceTolerance is a sum's error that is none.
const priceTolerance = 1e-6

// heldPrice is what the machines cost that are held, in USD per hour; negative where that is not known.
func (s *scope) heldPrice() float64 {
	sum := 0.0
	for i := range s.machines {
		machine := &s.machines[i]
		if !s.isHeld(machine.Name) {
			continue
		}
		if machine.HourlyPrice < 0 {
			return -1
		}
		sum += machine.HourlyPrice
	}
	return sum
}

// insteadOf says that an administrator's ceiling has room for a plan in place of what serves, though not
// beside it; nil where what serves is not in the way, or not alone.
func (s *scope) insteadOf(over *ledger.OverError) error {
	held := s.heldAttempt()
	if held == nil || over.Asked < 0 || over.By() > max(s.heldPrice(), 0)+priceTolerance {
		return nil
	}
	return &recreateError{fmt.Sprintf("the administrator's ceiling %s of %s leaves no room for %s (%s) beside %s (%s)",
		over.Kind, usd.PerHour(over.Ceiling), over.InstanceType, usd.PerHour(over.Asked),
		held.InstanceType, usd.PerHour(s.heldPrice()))}
}
