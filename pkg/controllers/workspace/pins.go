// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// pins stores accepted plans as revisions.
type pins struct {
	store     *revision.Store
	records   *records
	workloads *workloads
}

// Whether a revision is the first one for its inputs, or replaces an earlier one.
const (
	firstRevision    = false
	fallbackRevision = true
)

// create pins a revision to the Workspace.
func (p *pins) create(
	ctx context.Context, s *scope.Scope, in render.Inputs, made *revision.Revision, isFallback bool,
) (*revision.Revision, error) {
	return p.store.Pin(ctx, revision.Pin{
		Workspace: s.Workspace, Inputs: in, Revision: made, IsFallback: isFallback, Known: s.Revisions, InUse: s.RevisionsInUse(),
	})
}

// Pin pins a new plan before its purchase. It confirms that the pass has the newest Workspace: a plan from an
// outdated one would count as the plan of the next attempt, and the machines of the open attempt would be
// released. If the plan is the accepted one, Pin checks that no newer revision exists.
func (p *pins) Pin(ctx context.Context, s *scope.Scope, made *revision.Revision) error {
	if made == s.Revision {
		return p.awaitRevision(ctx, s)
	}
	if err := p.records.Confirm(ctx, s); err != nil {
		return err
	}
	pinned, err := p.create(ctx, s, s.Inputs, made, fallbackRevision)
	if err != nil {
		return err
	}
	if !purchase.SameMachines(&pinned.Plan, &made.Plan) { // another pass has pinned its own plan under that name
		return progress.Behind("revision")
	}
	former := s.Revision
	if s.Revision = pinned; purchase.SameMachines(&pinned.Plan, &former.Plan) {
		log.FromContext(ctx).Info("the price of the plan has changed", "plan", pinned.Plan.Summary(),
			"from", former.Plan.HourlyPrice, "to", pinned.Plan.HourlyPrice)
	} else {
		s.FellBackFrom = former.Plan.Summary()
		log.FromContext(ctx).Info("falling back to another plan", "from", s.FellBackFrom, "to", pinned.Plan.Summary())
	}
	return p.workloads.ensureNames(ctx, s)
}

// awaitRevision returns an error while the cache lacks a successor of the accepted plan. An earlier leader may
// have pinned a successor after a refusal or a ceiling, without recording an attempt for it. Machines requested
// now would be released for that plan. The first pass of a Workspace has no earlier leader.
func (p *pins) awaitRevision(ctx context.Context, s *scope.Scope) error {
	if s.IsNew {
		return nil
	}
	there, err := p.store.ListLive(ctx, s.Workspace)
	isHidden := func(object appsv1.ControllerRevision) bool {
		return object.Name != s.Revision.Name && s.Revisions.Object(object.Name) == nil
	}
	if err == nil && slices.ContainsFunc(there.Objects, isHidden) {
		err = progress.Behind("revision")
	}
	return err
}
