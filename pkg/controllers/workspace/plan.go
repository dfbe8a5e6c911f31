// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// ensurePlan finds the pinned revision of the current spec, or makes and pins one. If that fails, the last accepted
// one stays in force as long as the spec has no plan.
func (r *Reconciler) ensurePlan(ctx context.Context, s *scope) error {
	err := r.findOrMakePlan(ctx, s)
	if err == nil {
		s.planned = true
		return nil
	}
	s.revision = s.acceptedLast()
	stalled, ok := errors.AsType[*progress.StalledError](err)
	if !ok {
		return err
	}
	s.planned, s.planErr, s.requeueAfter = true, stalled, stalled.RetryAfter
	if s.revision == nil {
		return stalled
	}
	s.goOnWithAccepted()
	return s.noteUnverified(ctx, r.planning.Weights)
}

// goOnWithAccepted plans from the inputs of the accepted revision.
func (s *scope) goOnWithAccepted() {
	from := s.revision.Inputs
	if from == nil {
		return
	}
	s.inputs, s.spec = *from, s.ws.DeepCopy()
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

func (r *Reconciler) findOrMakePlan(ctx context.Context, s *scope) error {
	// A later version may refuse a spec that an earlier one accepted. A serving Workspace does not stall for that.
	refused := request.Check(s.ws)
	if refused != nil && (s.statefulSet == nil || s.ws.Inference == nil) {
		return planning.Classify(refused)
	}
	config, err := planning.Config(ctx, r.Live, s.ws)
	if err != nil {
		return err
	}
	in := revisions.Inputs(s.ws, config)
	s.inputs = in
	if s.revision, err = s.revisions.Match(s.ws, in); err != nil {
		return err
	}
	if s.revision != nil {
		return r.ensureVerified(ctx, s, in)
	}
	if refused != nil {
		return planning.Classify(refused)
	}
	accepted, err := r.choice(s).First(ctx, s.accepted())
	if err != nil {
		return err
	}
	s.revision, err = r.createRevision(ctx, s, in, accepted, firstRevision)
	return err
}

// newPipeline returns the planning pipeline of a cluster.
func newPipeline(config *Config, stored *revisions.Store) *planning.Pipeline {
	out := &planning.Pipeline{
		Resolver: &planning.Resolver{
			Catalog: config.Catalog, AdapterRanks: config.AdapterRanks, NodeClasses: config.NodeClasses,
			Models: &planning.ClusterModels{Catalog: config.Catalog, Hub: config.Hub, Objects: config.Live},
			Supply: &planning.ClusterSupply{Objects: config.Live, HostPaths: config.Limits.HostPaths, Signatures: config.Signatures},
		},
		Weights: planning.NewWeights(config.Live, config.Hub, config.Signatures, config.Render.Workload.Weights.CAConfigMap),
		Nodes:   &planning.Nodes{Promises: stored.Promises, Clock: config.Clock, Uses: config.Uses},
	}
	out.Nodes.List = func(ctx context.Context) ([]corev1.Node, error) {
		list := &corev1.NodeList{}
		if err := config.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing nodes: %w", err)
		}
		return list.Items, nil
	}
	settings := planning.Settings{Render: config.Render, InstanceTypes: config.Limits.InstanceTypes}
	if len(config.NodeClasses) > 0 {
		settings.NodeClass = config.NodeClasses[0]
	}
	out.Builder = planning.NewBuilder(config.Planner, config.Catalog, settings)
	return out
}
