// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"

	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/render"
)

// ensureNames sees to it, before anything is bought, that the names which the Workspace leads to are
// free or ours, and makes the Services and what guards them.
func (r *Reconciler) ensureNames(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && len(s.machines) == 0 {
		for _, pods := range s.desiredSets() {
			if err := r.Applier.Check(ctx, s.ws, pods); err != nil {
				return classify(err)
			}
		}
	}
	for _, object := range s.revision.Network(s.ws) {
		if _, err := r.Applier.Apply(ctx, s.ws, object); err != nil && !s.mayLack(object, err) {
			return classify(err)
		}
	}
	s.named = true
	return nil
}

// mayLack says that a Workspace that runs goes on without an object: earlier versions made no NetworkPolicy and
// no PodDisruptionBudget, so that its user may have made one under its name.
func (s *scope) mayLack(object render.Object, err error) bool {
	_, isTaken := errors.AsType[*apply.TakenError](err)
	_, isPolicy := object.(*networkingv1.NetworkPolicy)
	_, isBudget := object.(*policyv1.PodDisruptionBudget)
	return isTaken && (isPolicy || isBudget) && s.statefulSet != nil
}

// ensureWorkload makes the StatefulSets once the machines are launched: its pods fit this
// Workspace's machines only, so nothing else buys for them meanwhile.
func (r *Reconciler) ensureWorkload(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && !s.hasLaunched() {
		return nil
	}
	for _, pods := range s.desiredSets() {
		wrote, err := r.Applier.Apply(ctx, s.ws, pods)
		if err != nil {
			return classify(err)
		}
		s.rolling = s.rolling || wrote
	}
	if s.isGroup() || s.workers == nil {
		return nil
	}
	return r.deleteSet(ctx, s.workers) // of a plan with several machines
}
