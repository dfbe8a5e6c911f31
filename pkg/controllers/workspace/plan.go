// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/workload"
)

func workspaceKind() schema.GroupVersionKind {
	return v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind)
}

// ensurePlan finds the revision that was pinned for the current spec, or has a plan made and pins
// it. If that fails, what was accepted before goes on: as long as the spec has no plan, the last one that had counts.
func (r *Reconciler) ensurePlan(ctx context.Context, s *scope) error {
	err := r.findOrMakePlan(ctx, s)
	if err == nil {
		s.planned = true
		return nil
	}
	s.revision = s.acceptedLast()
	stalled, ok := errors.AsType[*stalledError](err)
	if !ok {
		return err
	}
	s.planned, s.planErr, s.requeueAfter = true, stalled, stalled.retryAfter
	if s.revision == nil {
		return stalled
	}
	s.goOnWithAccepted()
	return nil
}

// acceptedLast is the newest revision that was made from the same as the accepted one. What was accepted last may be in
// the attempts only, which are written down before the plan that they are for.
func (s *scope) acceptedLast() *revision {
	accepted := s.accepted()
	if accepted == nil {
		return nil
	}
	object := s.revisionObject(accepted.Name)
	if open := s.openAttempt(); open != nil && object != nil {
		if other := s.revisionObject(open.Revision); other != nil && other.Revision > object.Revision {
			object = other
		}
	}
	for i := len(s.revisions) - 1; i >= 0 && object != nil; i-- {
		if s.revisions[i].Annotations[v1beta1.AnnotationHash] != object.Annotations[v1beta1.AnnotationHash] {
			continue
		}
		if newest, err := s.pins.decode(&s.revisions[i]); err == nil {
			return newest
		}
	}
	return accepted
}

// goOnWithAccepted has plans be made for what the accepted revision was made from.
func (s *scope) goOnWithAccepted() {
	from := s.revision.Inputs
	if from == nil {
		return
	}
	s.inputs, s.spec = inputs(*from), s.ws.DeepCopy()
	s.spec.Resource, s.spec.Inference = *from.Resource.DeepCopy(), from.Inference.DeepCopy()
	for _, key := range render.ShapingAnnotations() {
		delete(s.spec.Annotations, key)
	}
	for key, value := range from.Annotations {
		metav1.SetMetaDataAnnotation(&s.spec.ObjectMeta, key, value)
	}
	if limit := request.MaxHourlyPrice(s.ws); limit > 0 { // the last word about money counts
		placement := s.spec.Resource.Placement.DeepCopy()
		if placement == nil {
			placement = &v1beta1.PlacementSpec{}
		}
		placement.MaxHourlyPrice = s.ws.Resource.Placement.MaxHourlyPrice
		s.spec.Resource.Placement = placement
	}
}

// hasServed says whether a model has answered with what the accepted revision was made from.
func (s *scope) hasServed() bool {
	ready := s.revisionObject(s.ws.Status.LatestReadyRevision)
	current := s.revisionObject(s.revision.Name)
	return ready != nil && current != nil &&
		ready.Annotations[v1beta1.AnnotationHash] == current.Annotations[v1beta1.AnnotationHash]
}

func (r *Reconciler) findOrMakePlan(ctx context.Context, s *scope) error {
	// A later version may refuse what an earlier one accepted. What serves is not stalled for that.
	refused := request.Check(s.ws)
	if refused != nil && (s.statefulSet == nil || s.ws.Inference == nil) {
		return planError(refused)
	}
	in := inputs{
		Resource:    s.ws.Resource,
		Inference:   s.ws.Inference,
		Annotations: renderingAnnotations(s.ws),
	}
	var err error
	if in.Config, err = r.config(ctx, s.ws); err != nil {
		return err
	}
	s.inputs = in
	if s.revision, err = s.pinned(in); err != nil || s.revision != nil {
		return err
	}
	if refused != nil {
		return planError(refused)
	}
	accepted, err := r.planFirst(ctx, s, in)
	if err != nil {
		return err
	}
	s.revision, err = r.createRevision(ctx, s, in, accepted, firstRevision)
	return err
}

// planFirst makes the first plan from some inputs. What is left alone after refusals does not count
// for machines that are held already: they need not be bought.
func (r *Reconciler) planFirst(ctx context.Context, s *scope, in inputs) (*revision, error) {
	if former := s.accepted(); former != nil && in.isCheaper(former.Inputs) && s.holdsAll(former) {
		return &revision{Revision: former.Revision}, nil
	}
	excluded, err := r.excluded(s)
	if err != nil {
		return nil, err
	}
	if toBuy := s.withoutHeld(excluded); len(toBuy) < len(excluded) {
		made, err := r.makePlan(ctx, s, in, limits{excluded: toBuy})
		if err == nil && s.holdsAll(made) {
			return made, nil
		}
	}
	made, err := r.makePlan(ctx, s, in, limits{excluded: excluded})
	if _, stalled := errors.AsType[*stalledError](err); stalled && len(excluded) > 0 {
		return r.makePlan(ctx, s, in, limits{}) // what is left alone now is what is waited for
	}
	if err != nil {
		return nil, err
	}
	made.Passing = len(excluded) > 0
	return made, nil
}

// withoutHeld takes the offers of the machines that open attempts hold out of what is left alone.
func (s *scope) withoutHeld(excluded []ladder.Exclusion) []ladder.Exclusion {
	var held []capacity.Machine
	for _, open := range s.openAttempts() {
		held = append(held, s.machinesOf(open)...)
	}
	return slices.DeleteFunc(slices.Clone(excluded), func(e ladder.Exclusion) bool {
		return slices.ContainsFunc(held, func(machine capacity.Machine) bool {
			return machine.InstanceType == e.Offering.InstanceType && machine.CapacityType == e.Offering.CapacityType
		})
	})
}

// demand is what is to be planned for.
type demand struct {
	request planner.Request
	class   *v1beta1.NodeClassReference
	// model and config are those of a preset, notes what was assumed of the model.
	model  model.Model
	config engine.Config
	notes  []string
}

// demand reads what the Workspace asks for, within what the administrator allows.
func (r *Reconciler) demand(ctx context.Context, s *scope, in inputs) (*demand, error) {
	out, err := r.wish(ctx, s, in)
	if err != nil {
		return nil, err
	}
	r.restrictToClass(&out.request.Constraints, r.classOf(out.class))
	return out, r.restrict(s, &out.request.Constraints)
}

func (r *Reconciler) wish(ctx context.Context, s *scope, in inputs) (*demand, error) {
	out, ws := &demand{}, s.spec
	var err error
	if out.class, err = r.nodeClass(ws); err != nil {
		return nil, err
	}
	if ws.Inference.Template != nil {
		out.request = request.ForTemplate(ws)
		return out, nil
	}
	if out.model, out.notes, err = r.model(ctx, s); err != nil {
		return nil, err
	}
	if err := r.checkSupply(ctx, ws, out.model); err != nil {
		return nil, err
	}
	if _, err := r.apiKey(ctx, ws); err != nil {
		return nil, err
	}
	if out.config, err = engine.ParseConfig([]byte(in.Config)); err != nil {
		return nil, &stalledError{
			reason:  v1beta1.ReasonConfigInvalid,
			message: fmt.Sprintf("ConfigMap %q: %v", ws.Inference.Config, err),
		}
	}
	if out.request, err = request.ForModel(ws, &out.model, out.config, r.Catalog); err != nil {
		return nil, planError(err)
	}
	out.request.Adapters.Ranks, err = r.adapterRanks(ctx, ws)
	return out, err
}

// limits are what a plan has to keep to for now.
type limits struct {
	// excluded is what is left alone after refusals.
	excluded []ladder.Exclusion
	// room is what can be spent now; zero where nothing is short.
	room planner.Ceiling
}

// makePlan has the planner decide within limits, and renders the pods.
func (r *Reconciler) makePlan(ctx context.Context, s *scope, in inputs, now limits) (*revision, error) {
	ws := s.spec
	asked, err := r.demand(ctx, s, in)
	if err != nil {
		return nil, err
	}
	out := &revision{Revision: render.Revision{NodeClass: asked.class, LeftNodes: s.leftNodes}}
	constraints := &asked.request.Constraints
	constraints.Excluded = append(constraints.Excluded, exclusions(now.excluded)...)
	if now.room.HourlyPrice > 0 {
		constraints.Ceiling = now.room // lower than what is always so
	}
	if out.Plan, err = r.decide(ctx, s, asked.request); err != nil {
		return nil, s.untilRoom(planError(err))
	}
	if err := r.pinWeights(ctx, s, &out.Plan); err != nil {
		return nil, err
	}
	if ws.Inference.Template != nil {
		out.Rendered = render.Template(ws, &out.Plan)
	} else if err := r.render(ws, asked, in, out); err != nil {
		return nil, err
	}
	out.labelMachines(ws)
	return out, nil
}

// render fills in the pods of a preset.
func (r *Reconciler) render(ws *v1beta1.Workspace, asked *demand, in inputs, out *revision) error {
	data, known := r.Catalog.Engine(out.Plan.Engine)
	if !known || !slices.Contains(render.Engines(), data.Name) {
		return &stalledError{
			reason:  v1beta1.ReasonEngineUnknown,
			message: fmt.Sprintf("engine %q is not one that this version can run", out.Plan.Engine),
		}
	}
	hash, err := in.hash()
	if err != nil {
		return err
	}
	rendered, warnings, err := render.Preset(render.Input{
		Workspace: ws, Model: asked.model, Plan: out.Plan, Config: asked.config, Data: data,
		Commits: workload.CommitsOf(ws, hash[:revisionHashLength]), Settings: r.Render,
	})
	if err != nil {
		return specInvalid(err.Error())
	}
	out.Rendered = rendered
	out.Plan.Warnings = slices.Concat(out.Plan.Warnings, asked.notes, warnings)
	return nil
}

// planError turns what the planner, the catalogue or the border before them refuses into the condition that says so.
func planError(err error) error {
	var infeasible *planner.InfeasibleError
	var unknown *catalog.UnknownError
	var problem *request.RefusedError
	switch {
	case errors.As(err, &problem):
		return &stalledError{reason: problem.Reason, message: problem.Message}
	case errors.As(err, &infeasible):
		return &stalledError{reason: infeasible.Reason, message: infeasible.Message}
	case errors.As(err, &unknown):
		return &stalledError{reason: v1beta1.ReasonUnknownPreset, message: unknown.Error()}
	default:
		return err
	}
}
