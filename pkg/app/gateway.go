// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/gateway"
	"github.com/modelberth/modelberth/pkg/options"
)

// gatewayInterval is the interval between checks whether the kinds of gateways have been installed.
const gatewayInterval = time.Minute

// pools returns the step that sets up the pools of gateways. If the API server does not serve their kinds, the process
// restarts once it does.
func (at site) pools(o options.Gateway, run controller.Options) (step, error) {
	nothing := func(context.Context) error { return nil }
	if !o.IsEnabled() {
		return nothing, nil
	}
	for _, kind := range gateway.Kinds(o.Gateway.Name != "") {
		isServed, err := at.serves(kind)
		if err != nil {
			return nil, err
		}
		if isServed {
			continue
		}
		watch := &installWatch{mapper: at.mgr.GetRESTMapper(), kind: kind.GroupKind(), every: gatewayInterval}
		if err := at.mgr.Add(watch); err != nil {
			return nil, fmt.Errorf("adding the wait for %s: %w", kind.Kind, err)
		}
		return func(ctx context.Context) error {
			log.FromContext(ctx).Info("no InferenceSet gets a pool yet: the cluster lacks a kind of the Gateway API, install its "+
				"CustomResourceDefinition", "group", kind.Group, "version", kind.Version, "kind", kind.Kind)
			return nil
		}, nil
	}
	reconciler := gateway.New(gateway.Config{
		Client: at.cached, Namespaces: at.namespaces, Applier: at.applier, Events: at.mgr.GetEventRecorderFor(v1beta1.ManagedBy),
		Routers: o.Routers, Gateway: o.Gateway, MatchModelNames: o.MatchModelNames,
	})
	return func(context.Context) error { return reconciler.SetupWithManager(at.mgr, run) }, nil
}
