// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
)

// ensurePlan finds the pinned revision of the current spec, or makes a plan and pins it. If the current spec has
// no plan, the last accepted revision stays in force.
func (r *Reconciler) ensurePlan(ctx context.Context, s *scope.Scope) error {
	if s.Attempts.IsRetry(s.Workspace) { // the user may have isolated the network since, and pays for another try
		r.Isolation.Forget(s.Workspace.Namespace)
	}
	err := r.findOrMakePlan(ctx, s)
	if err == nil {
		s.IsPlanned = true
		return nil
	}
	s.Revision = s.LastAccepted()
	stalled, ok := errors.AsType[*progress.StalledError](err)
	if !ok {
		return err
	}
	s.IsPlanned, s.PlanErr, s.RequeueAfter = true, stalled, stalled.RetryAfter
	if s.Revision == nil {
		return stalled
	}
	s.UseAccepted()
	return r.noteUnverified(ctx, s)
}

func (r *Reconciler) findOrMakePlan(ctx context.Context, s *scope.Scope) error {
	// A later version may refuse a spec that an earlier one accepted. A serving Workspace does not stall for that.
	refused := request.Check(s.Workspace)
	if refused != nil && (s.StatefulSet == nil || s.Workspace.Inference == nil) {
		return planning.Classify(refused)
	}
	config, err := planning.Config(ctx, r.Live, s.Workspace)
	if err != nil {
		return err
	}
	in := revision.Inputs(s.Workspace, config)
	s.Inputs = in
	if s.Revision, err = r.match(s, in); err != nil {
		return err
	}
	if s.Revision != nil {
		return r.ensureVerified(ctx, s, in)
	}
	if refused != nil {
		return planning.Classify(refused)
	}
	accepted, err := r.executor.Choice(s).First(ctx, s.Accepted())
	if err != nil {
		return err
	}
	if s.WhyReplaced != "" {
		accepted.Plan.Warnings = append(accepted.Plan.Warnings, "inference.adapters: the pods are replaced, because "+s.WhyReplaced)
	}
	s.Revision, err = r.pins.create(ctx, s, in, accepted, firstRevision)
	return err
}

// newPipeline returns the planning pipeline of a cluster.
func newPipeline(config *Config, stored *revision.Store) *planning.Pipeline {
	out := &planning.Pipeline{
		Resolver: &planning.Resolver{
			Catalog: config.Catalog, AdapterRanks: config.AdapterRanks, NodeClasses: config.NodeClasses, Starts: config.Starts,
			Models: &planning.ClusterModels{Catalog: config.Catalog, Hub: config.Hub, Objects: config.Live},
			Supply: &planning.ClusterSupply{Objects: config.Live, HostPaths: config.HostPaths, Signatures: config.Signatures},
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
	settings := planning.Settings{Render: config.Render}
	if len(config.NodeClasses) > 0 {
		settings.NodeClass = config.NodeClasses[0]
	}
	out.Builder = planning.NewBuilder(config.Planner, config.Catalog, settings)
	return out
}
