// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/upgrade"
	"github.com/modelberth/modelberth/pkg/wording"
)

// The differences between a pinned plan and the new version's plan, smallest first.
const (
	planSame        = "none"
	planPrice       = "price"
	planLayout      = "layout"
	planMachines    = "machines"
	planRefused     = "refused"
	planNotCompared = "notCompared"
)

// planChange compares the pinned plan of a Workspace with the new version's.
type planChange struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Change is one of none, price, layout, machines, refused and notCompared.
	Change string     `json:"change"`
	Pinned planPrices `json:"pinned"`
	// New is the new version's plan.
	New     *planPrices `json:"new,omitempty"`
	Message string      `json:"message,omitempty"`
}

// planPrices is a short form of a plan. A missing price is unknown.
type planPrices struct {
	Revision string `json:"revision,omitempty"`
	Machines string `json:"machines"`
	// HourlyPrice is from the time of planning. PriceNow is from the new version's catalogue.
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
	PriceNow    *float64 `json:"priceNow,omitempty"`
}

// planChange returns the comparison for a Workspace; nil without a pinned plan. The finding is about an unreadable
// revision.
func (u *upgradeCommand) planChange(ctx context.Context, cluster *Cluster, ws *v1beta1.Workspace) (*planChange, *upgrade.Finding) {
	out := &planChange{Namespace: ws.Namespace, Name: ws.Name}
	revisions, err := cluster.revisions(ctx, ws)
	if unreadable, ok := errors.AsType[*unreadableError](err); ok {
		return nil, &upgrade.Finding{
			Problem: upgrade.NotReadable, Kind: v1beta1.WorkspaceKind, Namespace: ws.Namespace, Name: ws.Name,
			Rule: "revision", Message: wording.OneLine(unreadable.Error()),
		}
	}
	if err != nil {
		out.Change, out.Message = planNotCompared, wording.OneLine(err.Error())
		return out, nil
	}
	current := accepted(revisions)
	if current == nil {
		return nil, nil
	}
	out.Pinned = planPrices{Revision: current.name, Machines: current.Plan.Summary(), HourlyPrice: knownPrice(current.Plan.HourlyPrice)}
	if len(current.Plan.NodeNames) > 0 {
		out.Change, out.Message = planNotCompared, "the plan uses existing nodes, so it depends on their free resources"
		return out, nil
	}
	u.compare(ctx, ws, current, out)
	return out, nil
}

// compare makes a new plan from the inputs of the pinned plan, and prices the pinned plan in the new catalogue.
func (u *upgradeCommand) compare(ctx context.Context, ws *v1beta1.Workspace, current *pinned, out *planChange) {
	asked := ws.DeepCopy()
	inputs := revision.Inputs(ws, "")
	if current.Inputs != nil { // the present spec may have an edit without a plan
		inputs = *current.Inputs
		source := made(current.Inputs)
		asked.Resource, asked.Inference, asked.Annotations = source.Resource, source.Inference, source.Annotations
	}
	quoted, refused := u.pipeline.Builder.Quote(&revision.Revision{Revision: current.Revision}, asked, u.limits)
	if refused == "" {
		out.Pinned.PriceNow = knownPrice(quoted.Plan.HourlyPrice)
	}
	next, err := u.pipeline.Make(ctx, planning.Ask{Workspace: asked, Inputs: inputs, Replaces: &current.Plan, Limits: u.limits})
	switch {
	case err != nil && codeOf(err) == codeHub:
		out.Change, out.Message = planNotCompared, wording.OneLine(err.Error())
		return
	case err != nil:
		out.Change, out.Message = planRefused, "an edit would get no plan: "+sentenceOf(err)
		return
	}
	plan, err := pinnedForm(next.Plan)
	if err != nil {
		out.Change, out.Message = planNotCompared, err.Error()
		return
	}
	out.New = &planPrices{Machines: plan.Summary(), HourlyPrice: knownPrice(plan.HourlyPrice)}
	out.Change = changeOfPlan(&current.Plan, &plan, out.Pinned.PriceNow)
	var notes []string
	if refused != "" {
		notes = append(notes, "the pinned machines could not be bought again: "+refused)
	}
	if current.Provisional && out.Change == planMachines {
		notes = append(notes, "the pinned plan was made while better offerings were unavailable")
	}
	out.Message = strings.Join(notes, "; ")
}

// pinnedForm returns a plan in the form that a revision stores.
func pinnedForm(plan planner.Plan) (planner.Plan, error) {
	data, err := json.Marshal(plan.Abridged())
	if err != nil {
		return planner.Plan{}, fmt.Errorf("encoding the plan: %w", err)
	}
	var out planner.Plan
	err = json.Unmarshal(data, &out)
	return out, err
}

// changeOfPlan returns the greatest difference between two plans. now is today's price of the pinned plan; nil if
// unknown.
func changeOfPlan(old, updated *planner.Plan, now *float64) string {
	switch {
	case old.InstanceType != updated.InstanceType, old.Nodes != updated.Nodes, old.CapacityType != updated.CapacityType,
		!slices.Equal(old.Zones, updated.Zones):
		return planMachines
	case !reflect.DeepEqual(planned(old, updated), planned(updated, updated)):
		return planLayout
	case now == nil && old.HourlyPrice >= 0, now != nil && *now != old.HourlyPrice:
		return planPrice
	default:
		return planSame
	}
}

// planned returns the part of a plan that changes pods, as far as this command can plan it. The command does not
// resolve a branch to a commit: if the new plan names a branch, the pinned commit does not count as a difference.
func planned(p, updated *planner.Plan) planner.Plan {
	out := rendered(p)
	out.Premium, out.TurnedDown, out.Weights = "", 0, nil
	if out.Artifact != nil && updated.Artifact != nil && !isCommit(updated.Artifact.Revision) {
		files := *out.Artifact
		files.Revision = ""
		out.Artifact = &files
	}
	return out
}

// isCommit reports whether a revision of weights is a commit.
func isCommit(of string) bool {
	return len(of) == 40 && strings.Trim(of, "0123456789abcdef") == ""
}

// knownPrice returns a price; nil if unknown.
func knownPrice(price float64) *float64 {
	if price < 0 {
		return nil
	}
	return &price
}

// compareKeys orders Workspaces by namespace and name.
func compareKeys(a, b *v1beta1.Workspace) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
