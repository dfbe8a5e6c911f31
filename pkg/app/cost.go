// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/pkg/controllers/cost"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/options"
)

// costs returns the step that sets up the cost ledger. News are the watches about machines.
func (at site) costs(o options.Controller, chosen backEnd, bills cost.Bills, news []watch.Source, run controller.Options) step {
	if o.Cost.Namespace == "" {
		return func(context.Context) error { return nil }
	}
	config := cost.Config{
		Client: at.cached, Live: at.live, Bills: bills, Clock: at.clock, Namespace: o.Cost.Namespace, Name: o.Cost.Name,
		Interval: o.Cost.Interval, Labels: o.Cost.Labels, Publish: o.Cost.Publish, PriceSource: "NodeClaim",
	}
	if chosen == options.BackendPods { // nothing else has a price there that no tenant can change
		config.PriceSource = "catalogue"
	}
	if o.Cost.CountTokens {
		config.Engines = engineprobe.New()
	}
	keeper := cost.New(config)
	if err := cost.Register(metrics.Registry, keeper, o.Cost.MetricsByWorkspace); err != nil {
		return func(context.Context) error { return err }
	}
	var machines []client.Object
	for _, each := range news {
		if each.Frees != nil {
			machines = append(machines, each.Object)
		}
	}
	return func(context.Context) error { return keeper.SetupWithManager(at.mgr, machines, run) }
}
