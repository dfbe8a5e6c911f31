// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/options"
)

// gatewayInterval is the interval between checks whether the kinds of gateways have been installed.
const gatewayInterval = time.Minute

// servedForGateways returns the kinds of gateways that the API server serves, if the options use any.
func servedForGateways(mapper meta.RESTMapper, o options.Gateway) (kinds, error) {
	if !o.IsEnabled() {
		return nil, nil
	}
	var served kinds
	for _, kind := range gateway.Kinds(o.Gateway.Name != "") {
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("probing for %s: %w", kind.Kind, err)
		}
		if err == nil {
			served = append(served, kind.GroupKind())
		}
	}
	return served, nil
}

// hasGateways reports whether InferenceSets get pools: the options ask for them, and the API server serves all kinds.
func hasGateways(served kinds, o options.Gateway) bool {
	for _, kind := range gateway.Kinds(o.Gateway.Name != "") {
		if !served.has(kind.GroupKind()) {
			return false
		}
	}
	return o.IsEnabled()
}

// pools returns the step that sets up the pools of gateways. If the API server does not serve their kinds, the process
// restarts once it does.
func (at site) pools(run controller.Options) (step, error) {
	o := at.gateways
	if !o.IsEnabled() {
		return func(context.Context) error { return nil }, nil
	}
	for _, kind := range gateway.Kinds(o.Gateway.Name != "") {
		if at.served.has(kind.GroupKind()) {
			continue
		}
		watch := &installWatch{
			mapper: at.mgr.GetRESTMapper(), kind: kind.GroupKind(), versions: []string{kind.Version}, every: gatewayInterval,
		}
		if err := at.mgr.Add(watch); err != nil {
			return nil, fmt.Errorf("adding the wait for %s: %w", kind.Kind, err)
		}
		return func(ctx context.Context) error {
			log.FromContext(ctx).Info("no InferenceSet gets a pool, because the cluster lacks a kind of the Gateway API: install its "+
				"CustomResourceDefinition", "group", kind.Group, "version", kind.Version, "kind", kind.Kind)
			return nil
		}, nil
	}
	reconciler := gateway.New(gateway.Config{
		Client: at.cached, Namespaces: at.namespaces, Applier: at.applier, Events: at.mgr.GetEventRecorderFor(v1beta1.ManagedBy),
		Clock: at.clock, Routers: o.Routers, Gateway: o.Gateway, MatchModelNames: o.MatchModelNames,
	})
	return func(context.Context) error { return reconciler.SetupWithManager(at.mgr, run) }, nil
}
