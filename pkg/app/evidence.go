// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/evidence/speed"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/planner"
)

// planWithFiles returns the calibration files, with a planner that they keep up to date.
func (at site) planWithFiles(ctx context.Context, known *catalog.Catalog, o options.Controller, chosen backEnd) (*evidence.Files, error) {
	prices, err := pricingFor(ctx, at.live, o, known)
	if err != nil {
		return nil, err
	}
	counts, err := evidence.NewMetrics(metrics.Registry)
	if err != nil {
		return nil, err
	}
	build := func(c *catalog.Catalog) *planner.Planner { return newPlanner(c, o, chosen, prices) }
	return &evidence.Files{
		Dir: o.Calibration.Files, Keys: o.Calibration.Keys, Base: known, Build: build, Planner: evidence.NewPlanner(build(known)),
		Metrics: counts, Clock: at.ticking(),
	}, nil
}

// useCalibrations returns the step that reads the calibration files before the leader's first plan, and then watches
// for changes.
func (at site) useCalibrations(lookAgain func(types.NamespacedName)) func(context.Context) error {
	return func(ctx context.Context) error {
		if at.files.Dir == "" {
			return nil
		}
		at.files.Changed = func(ctx context.Context) { at.planAgain(ctx, lookAgain) }
		at.files.Look(ctx)
		return at.mgr.Add(at.files)
	}
}

// speedsOf returns the store of measured engine speeds; nil if plans do not use measured speeds.
func speedsOf(o options.Controller) *speed.Meter {
	if !o.Calibration.OwnSpeeds {
		return nil
	}
	return speed.NewMeter()
}

// stored returns the store of measured engine speeds for statuses; nil without a store.
func (at site) stored() workspace.Speeds {
	if at.speeds == nil {
		return nil
	}
	return at.speeds
}

// planAgain requests a pass over each Workspace without a plan, because changed figures may allow a plan. Accepted
// plans stay.
func (at site) planAgain(ctx context.Context, lookAgain func(types.NamespacedName)) {
	list := &v1beta1.WorkspaceList{}
	if err := at.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "cannot list the workspaces: those without a plan are not planned again")
		return
	}
	for i := range list.Items {
		if meta.IsStatusConditionFalse(list.Items[i].Status.Conditions, v1beta1.ConditionPlanned) {
			lookAgain(client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
}
