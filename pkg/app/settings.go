// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/settings"
)

// loadSettings reads the ConfigMap with settings; nil if the options name none.
func (at site) loadSettings(ctx context.Context, o options.Controller) (*settings.Keeper, error) {
	if o.Settings.Name == "" {
		return nil, nil
	}
	counts, err := settings.NewMetrics(metrics.Registry)
	if err != nil {
		return nil, err
	}
	out := &settings.Keeper{
		Name: o.Settings, Reader: at.mgr.GetAPIReader(), Metrics: counts,
		Events: at.mgr.GetEventRecorderFor(v1beta1.ManagedBy), Leads: func() bool { return isClosed(at.mgr.Elected()) },
		Use: func(next *options.Live) {
			if o.LogLevel != nil {
				o.LogLevel.SetLevel(next.LogLevel)
			}
		},
	}
	if err := out.Load(ctx); err != nil {
		return nil, fmt.Errorf("--settings-config-map: %w", err)
	}
	return out, nil
}

// limits returns the source of the administrator's limits.
func (at site) limits(o options.Controller) func() purchase.Limits {
	if at.settings == nil {
		return limitsOf(o.Spending).Always
	}
	return func() purchase.Limits { return limitsOf(at.settings.Current().Spending) }
}

// followSettings makes every replica watch its settings. The leader then looks at the Workspaces that they may affect.
func (at site) followSettings(workspaces *workspace.Reconciler, run controller.Options) error {
	if at.settings == nil {
		return nil
	}
	name := at.settings.Name
	kept := cache.ByObject{
		Namespaces: map[string]cache.Config{name.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name.Name)}},
	}
	watched, err := newCache(at.mgr, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: kept}})
	if err == nil {
		err = at.mgr.Add(onEachReplica{watched})
	}
	if err != nil {
		return fmt.Errorf("creating the cache of ConfigMap %s: %w", name, err)
	}
	at.settings.Reader = watched
	at.settings.Changed = func(ctx context.Context) bool { return at.applyLimits(ctx, workspaces) }
	err = ctrl.NewControllerManagedBy(at.mgr).Named("settings").
		WithOptions(controller.Options{NeedLeaderElection: new(false), SkipNameValidation: run.SkipNameValidation}).
		WatchesRawSource(source.Kind(watched, &corev1.ConfigMap{}, &handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{})).
		Complete(at.settings)
	if err != nil {
		return fmt.Errorf("watching the settings in ConfigMap %s: %w", name, err)
	}
	return nil
}

// applyLimits requests a pass over each Workspace that waits for something, because new limits may end the wait.
// Settled Workspaces stay untouched. It returns false while this replica is about to lead: its caches are not filled
// yet.
func (at site) applyLimits(ctx context.Context, workspaces *workspace.Reconciler) bool {
	if !isClosed(at.leads) {
		return !isClosed(at.mgr.Elected())
	}
	workspaces.WakeForMoney()
	list := &v1beta1.WorkspaceList{}
	if err := at.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "cannot list the workspaces: trying again")
		return false
	}
	for i := range list.Items {
		if isWaiting(&list.Items[i]) {
			workspaces.LookAgain(client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	return true
}

// isWaiting reports whether a Workspace lacks a plan, machines or a ready model, or has an edit since its last pass.
func isWaiting(ws *v1beta1.Workspace) bool {
	if ws.Status.ObservedGeneration != ws.Generation {
		return true
	}
	for _, kind := range []string{v1beta1.ConditionPlanned, v1beta1.ConditionResourceReady, v1beta1.ConditionReady} {
		if !meta.IsStatusConditionTrue(ws.Status.Conditions, kind) {
			return true
		}
	}
	return false
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
