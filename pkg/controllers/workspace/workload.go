// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ensureNames sees to it, before anything is bought, that the names which the Workspace leads to are
// free or ours, and makes the Services.
func (r *Reconciler) ensureNames(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && len(s.machines) == 0 {
		if err := r.Applier.Check(ctx, s.ws, desiredStatefulSet(s)); err != nil {
			return classify(err)
		}
	}
	services := []client.Object{workload.Service(workload.Input{
		Workspace: s.ws, Plan: s.revision.Plan, Engine: engine.Command{KVEventsPort: s.revision.KVEventsPort},
	})}
	if s.revision.Plan.Nodes > 1 {
		services = append(services, workload.HeadlessService(s.ws))
	}
	for _, service := range services {
		if _, err := r.Applier.Apply(ctx, s.ws, service); err != nil {
			return classify(err)
		}
	}
	s.named = true
	return nil
}

// ensureWorkload makes the StatefulSet once the machines are launched: its pods fit this
// Workspace's machines only, so nothing else buys for them meanwhile.
func (r *Reconciler) ensureWorkload(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && !s.hasLaunched() {
		return nil
	}
	var err error
	s.rolling, err = r.Applier.Apply(ctx, s.ws, desiredStatefulSet(s))
	return classify(err)
}

func desiredStatefulSet(s *scope) client.Object {
	return workload.StatefulSet(s.ws, int32(s.revision.Plan.Nodes), s.revision.Template, s.revision.Name)
}
