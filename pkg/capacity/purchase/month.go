// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

const (
	// retryUnknown is the time until unknown costs are read again.
	retryUnknown = 15 * time.Second
	// longestMonth bounds the wait for the next month, because the clock may be set meanwhile.
	longestMonth = time.Hour
)

// month returns a function for the use of the namespace's monthly budget; nil if no budget stops purchases. Unknown
// costs stop purchases, too, because the budget may be spent. Pinned plans and running machines need no budget.
func (c *Choice) month() func() (ledger.Month, error) {
	budget, err := cost.BudgetOf(c.Namespace.Annotations)
	if budget == nil || !budget.Stops {
		return nil
	}
	return func() (ledger.Month, error) {
		now := c.Clock.Now()
		if err != nil {
			return ledger.Month{}, &progress.StalledError{
				Reason:  v1beta1.ReasonMonthlyBudgetInvalid,
				Message: fmt.Sprintf("nothing is bought, because the monthly budget of namespace %s cannot be read: %s", c.Workspace.Namespace, err),
			}
		}
		if c.Costs == nil {
			return ledger.Month{}, &progress.StalledError{
				Reason: v1beta1.ReasonMonthlyBudgetUnknown,
				Message: fmt.Sprintf("nothing is bought: namespace %s has a monthly budget, and this installation has no cost ledger: "+
					"have the administrator set the chart's cost.enabled, or remove the namespace's annotation %s",
					c.Workspace.Namespace, v1beta1.AnnotationMonthlyBudget),
			}
		}
		spent, asOf, err := c.Costs.Month(c.Workspace.Namespace, now)
		if err != nil {
			return ledger.Month{}, &progress.WaitingError{
				Reason: v1beta1.ReasonMonthlyBudgetUnknown, After: retryUnknown,
				Message: fmt.Sprintf("nothing is bought, because namespace %s has a monthly budget, and %s", c.Workspace.Namespace, err),
			}
		}
		if begin := cost.MonthBegin(now); asOf.Before(begin) { // these costs belong to the previous month
			asOf = begin
		}
		return ledger.Month{Budget: budget.USD, Spent: spent.Spent, AsOf: asOf, Ends: cost.MonthEnd(now)}, nil
	}
}

// HasBudget reports whether a monthly budget stops purchases in the namespace.
func (c *Choice) HasBudget() bool { return c.month() != nil }

// CheckMonth returns an error if the monthly budget has no room for the successors of the serving machines. The
// release of these gives nothing back to the budget.
func (c *Choice) CheckMonth(ctx context.Context, made *revision.Revision, number int32) error {
	over, err := c.overMonth(ctx, made, number)
	if over != nil {
		return c.Short(over)
	}
	return err
}

// overMonth describes why the monthly budget has no room for the successors of the serving machines; nil if it has.
func (c *Choice) overMonth(ctx context.Context, made *revision.Revision, number int32) (*ledger.OverError, error) {
	costs, err := c.costs(made, number)
	if err != nil {
		return nil, err
	}
	err = c.Ledger.CheckMonth(ctx, c.Clock.Now(), costs, ledger.Ceilings{Month: c.month()})
	if over, isOver := errors.AsType[*ledger.OverError](err); isOver {
		return over, nil
	}
	return nil, err
}

// instead returns the plan whose machines replace those of an answering model, with the reason to release these first.
// If the monthly budget does not pay for that plan, the best plan for the rest of the budget takes its place: after the
// release, Afford would choose that one, too.
func (c *Choice) instead(ctx context.Context, made *revision.Revision, number int32, why error) (*revision.Revision, error) {
	over, err := c.overMonth(ctx, made, number)
	if over == nil {
		return made, cmp.Or(err, why)
	}
	cheaper, err := c.cheaper(ctx, over)
	if err != nil || cheaper.IsOnNodes() || c.Suffices(cheaper) {
		return cheaper, err
	}
	if err := c.checkPurchase(ctx, cheaper); err != nil {
		return nil, err
	}
	if err := c.CheckBeside(cheaper); err != nil {
		return cheaper, cmp.Or(c.CheckMonth(ctx, cheaper, number), err)
	}
	return c.reserved(ctx, cheaper, number)
}
