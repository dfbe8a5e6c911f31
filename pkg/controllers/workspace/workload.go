// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
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
		if _, err := r.Applier.Apply(ctx, s.ws, object); err != nil {
			return classify(err)
		}
	}
	s.named = true
	return nil
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
