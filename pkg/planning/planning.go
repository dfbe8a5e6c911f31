// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planning turns a Workspace into a revision: a plan, and its pods. The controller and the command line plan
// with the same code.
//
// It decides what to read for a plan, in which order, and how to report a Workspace without a plan. The Resolver reads
// first, then the Builder decides without I/O. Only the commit or the digest of the chosen weights is read in between,
// because it depends on the plan. The package must not depend on attempts, on bought machines, or on the later use of a
// revision.
package planning

import (
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Intervals for changes that no watch covers.
const (
	retrySecret  = 30 * time.Second
	retryHub     = time.Minute
	retryNodes   = time.Minute
	retryAdapter = 5 * time.Minute
)

// Planner makes plans.
type Planner interface {
	Plan(request planner.Request) (planner.Plan, error)
	// Quote returns an accepted plan at the current price, or explains why its machines may not be bought now.
	Quote(accepted planner.Plan, constraints planner.Constraints) (planner.Plan, string)
}

// Catalog has the facts about models, engines and machine types.
type Catalog interface {
	ResolveModel(name string) (model.Model, error)
	Engine(name string) (catalog.Engine, bool)
	ResolveSKU(name string) (sku.SKU, error)
	SKUs() []sku.SKU
	Quantization(name string) (model.Quantization, bool)
	Identify(node sku.Node) (sku.Machine, error)
}

// Objects reads objects of a cluster.
type Objects interface {
	Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error
}

// Pipeline makes revisions.
type Pipeline struct {
	Resolver *Resolver
	Builder  *Builder
	// Nodes plans with existing nodes before a purchase; nil uses none.
	Nodes *Nodes
	// Weights pins the chosen weights; nil pins nothing.
	Weights *Weights
}

// Ask is a request for a revision.
type Ask struct {
	// Workspace is the Workspace to plan for.
	Workspace *v1beta1.Workspace
	// Inputs are the inputs of the revision.
	Inputs render.Inputs
	// Replaces is the former plan; nil if there is none. A new plan keeps its weights.
	Replaces *planner.Plan
	// Limits are the limits for the plan.
	Limits Limits
	// LeftNodes are the nodes to avoid.
	LeftNodes []render.LeftNode
	// CannotBuy reports whether no provisioner is installed.
	CannotBuy bool
}

// Make returns a revision before it is pinned. The error is a *progress.StalledError if the user or the administrator
// must act, and a *progress.WaitingError if something else must happen first.
func (p *Pipeline) Make(ctx context.Context, ask Ask) (*revision.Revision, error) {
	demand, err := p.Demand(ctx, ask)
	if err != nil {
		return nil, err
	}
	return p.Decide(ctx, ask, demand)
}

// Decide returns a revision for a demand. Its errors are the same as those of Make.
func (p *Pipeline) Decide(ctx context.Context, ask Ask, demand *Demand) (*revision.Revision, error) {
	plan, err := p.plan(ctx, ask, demand.Request)
	if err != nil {
		return nil, err
	}
	if p.Weights != nil {
		if err := p.Weights.Pin(ctx, demand, &plan); err != nil {
			return nil, err
		}
	}
	out, err := p.Builder.Build(demand, plan)
	if err != nil {
		return nil, err
	}
	out.LeftNodes = ask.LeftNodes
	return out, nil
}

// Verify returns an accepted revision after it has verified the weights under the current requirements. The machines,
// the layout and the digest stay. If the plan had no digest, Verify renders the pods again. Its errors are the same as
// those of Make.
func (p *Pipeline) Verify(ctx context.Context, ask Ask, accepted *revision.Revision) (*revision.Revision, error) {
	ask.Replaces = &accepted.Plan
	demand, err := p.Resolver.Resolve(ctx, ask)
	if err != nil {
		return nil, err
	}
	plan := accepted.Plan
	if err := p.Weights.Pin(ctx, demand, &plan); err != nil {
		return nil, err
	}
	if former := accepted.Plan.Weights; former != nil && plan.Weights != nil && former.Reference == plan.Weights.Reference {
		out := &revision.Revision{Revision: accepted.Revision}
		out.Plan = plan
		return out, nil
	}
	out, err := p.Builder.Build(demand, plan)
	if err != nil {
		return nil, err
	}
	out.LeftNodes, out.Plan.Warnings = accepted.LeftNodes, distinct(out.Plan.Warnings)
	return out, nil
}

// distinct returns the texts in their order, each once.
func distinct(texts []string) []string {
	var out []string
	for _, text := range texts {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Demand returns a Workspace's demand, restricted by the limits.
func (p *Pipeline) Demand(ctx context.Context, ask Ask) (*Demand, error) {
	out, err := p.Resolver.Resolve(ctx, ask)
	if err != nil {
		return nil, err
	}
	return out, p.Builder.Restrict(&out.Request.Constraints, out.NodeClass, ask.Limits)
}

// plan lets the planner choose between existing nodes and machines to buy.
func (p *Pipeline) plan(ctx context.Context, ask Ask, asked planner.Request) (planner.Plan, error) {
	if p.Nodes == nil || asked.NodeSource == v1beta1.NodeSourceProvisioned {
		plan, err := p.Builder.Planner.Plan(asked)
		return plan, Classify(err)
	}
	if ask.CannotBuy {
		asked.NodeSource = v1beta1.NodeSourceExisting
	}
	return p.Nodes.plan(ctx, p.Builder, ask, asked)
}

// Classify turns refusals of the planner, the catalogue or the checks before them into a *progress.StalledError.
// Other errors stay unchanged.
func Classify(err error) error {
	var stalled *progress.StalledError
	var infeasible *planner.InfeasibleError
	var unknown *catalog.UnknownError
	var refused *request.RefusedError
	switch {
	case errors.As(err, &stalled):
		return err
	case errors.As(err, &refused):
		return &progress.StalledError{Reason: refused.Reason, Message: refused.Message, Err: err}
	case errors.As(err, &infeasible):
		return &progress.StalledError{Reason: infeasible.Reason, Message: infeasible.Message, Err: err}
	case errors.As(err, &unknown):
		return &progress.StalledError{Reason: v1beta1.ReasonUnknownPreset, Message: unknown.Error(), Err: err}
	default:
		return err
	}
}
