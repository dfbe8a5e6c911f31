// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"

	"github.com/modelberth/modelberth/pkg/request"
)

// A pinned plan decides how a model is laid out. It does not decide what may be spent: each purchase is made at the price
// of the day, within the limits of the day.

// today returns an accepted plan at the price of the day, or why its machines may not be bought today. A plan whose price
// has not changed is returned as it is.
func (r *Reconciler) today(s *scope, accepted *revision) (*revision, string) {
	if unverified := r.unverified(s, accepted); unverified != "" {
		return accepted, unverified
	}
	if accepted.isOnNodes() {
		return accepted, ""
	}
	constraints := request.Constraints(s.spec)
	r.restrictToClass(&constraints, r.classOf(accepted.NodeClass))
	if err := r.restrict(s, &constraints); err != nil {
		if forbidden, ok := errors.AsType[*stalledError](err); ok {
			return accepted, forbidden.message
		}
		return accepted, err.Error()
	}
	plan, refused := r.Planner.Quote(accepted.Plan, constraints)
	if refused != "" || plan.HourlyPrice == accepted.Plan.HourlyPrice {
		return accepted, refused
	}
	quoted := *accepted
	quoted.Plan = plan
	return &quoted, ""
}
