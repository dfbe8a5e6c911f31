// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
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
	// retryUnknown is when to look again at costs that are unknown.
	retryUnknown = 15 * time.Second
	// longestMonth bounds the wait for the next month: the clock may be set meanwhile.
	longestMonth = time.Hour
)

// month returns the use of the budget of the Workspace's namespace; nil if none stops purchases. Unknown costs stop them,
// too: nobody can say that the budget is not spent. Pinned plans and running machines need no budget.
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
				Message: fmt.Sprintf("nothing is bought: namespace %s has a monthly budget, and this installation keeps no cost ledger: "+
					"have the administrator set the chart's cost.enabled, or remove the namespace's annotation %s",
					c.Workspace.Namespace, v1beta1.AnnotationMonthlyBudget),
			}
		}
		spent, asOf, err := c.Costs.Month(c.Workspace.Namespace, now)
		if err != nil {
			return ledger.Month{}, &progress.WaitingError{
				Reason: v1beta1.ReasonMonthlyBudgetUnknown, After: retryUnknown,
				Message: fmt.Sprintf("nothing is bought, because namespace %s has a monthly budget and %s", c.Workspace.Namespace, err),
			}
		}
		if begin := cost.MonthBegin(now); asOf.Before(begin) { // what was known then belongs to the last month
			asOf = begin
		}
		return ledger.Month{Budget: budget.USD, Spent: spent.Spent, AsOf: asOf, Ends: cost.MonthEnd(now)}, nil
	}
}

// checkMonth returns an error if the budget of the month has no room for the successor of the serving machines. Their end
// would give nothing back to it.
func (c *Choice) checkMonth(ctx context.Context, made *revision.Revision, number int32) error {
	costs, err := c.costs(made, number)
	if err != nil {
		return err
	}
	err = c.Ledger.CheckMonth(ctx, c.Clock.Now(), costs, ledger.Ceilings{Month: c.month()})
	if over, isOver := errors.AsType[*ledger.OverError](err); isOver {
		return c.Short(over)
	}
	return err
}
