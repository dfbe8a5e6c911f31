// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/inferenceset"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/routerprobe"
)

// step is a task at the start of a leader.
type step func(context.Context) error

// routersOf returns the reader of the routers; nil if none is installed. Their namespace may not be a watched one.
func (at site) routersOf(o options.Routers) inferenceset.Routers {
	if !o.Pods.IsNamed() {
		return nil
	}
	return routerprobe.New(routerprobe.Settings{
		Namespace: o.Pods.Namespace, Labels: o.Pods.PodLabels, Port: o.Port, IsPlain: o.IsPlain,
		TokenFile: o.TokenFile, CAFile: o.CAFile, ServerName: o.ServerName,
	}, at.mgr.GetAPIReader(), at.clock)
}

// inferenceSets returns the step that sets up the controller of InferenceSets. If the API server does not serve the
// kind, because the CustomResourceDefinitions are older, the step waits for it.
func (at site) inferenceSets(ctx context.Context, run controller.Options) (step, error) {
	kind := schema.GroupKind{Group: v1beta1.Group, Kind: v1beta1.InferenceSetKind}
	_, err := at.mgr.GetRESTMapper().RESTMapping(kind, v1beta1.GroupVersion().Version)
	if meta.IsNoMatchError(err) {
		return func(context.Context) error { return nil }, at.mgr.Add(&installWatch{
			mapper: at.mgr.GetRESTMapper(), kind: kind, versions: []string{v1beta1.GroupVersion().Version},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("probing for InferenceSets: %w", err)
	}
	config := inferenceset.Config{
		Client: at.cached, Live: at.live, Namespaces: at.namespaces, Applier: at.applier, Clock: at.clock,
		Events: at.mgr.GetEventRecorderFor(v1beta1.ManagedBy), Schema: at.definitions.fields,
		Loads: at.loads, Routers: at.routers,
	}
	if at.hooks.Sets != nil {
		at.hooks.Sets(&config)
	}
	reconciler := inferenceset.New(config)
	if err := inferenceset.Index(ctx, at.indexes); err != nil {
		return nil, err
	}
	return func(context.Context) error { return reconciler.SetupWithManager(at.mgr, at.setSources(), run) }, nil
}
