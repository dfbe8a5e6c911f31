// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/cost"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/options"
)

// keepCosts returns the keeper of the cost ledger; nil without a ledger. It stores the step that sets the keeper up in
// the site. sources are the watches on machines.
func keepCosts(at *site, o options.Controller, chosen backEnd, sources []watch.Source, run controller.Options) *cost.Keeper {
	if o.Cost.Namespace == "" {
		at.costing = func(context.Context) error { return at.mgr.Add(manager.RunnableFunc(at.warnOfBudgets)) }
		return nil
	}
	config := cost.Config{
		Client: at.cached, Live: at.live, MachineCosts: at.spent, Clock: at.clock, Namespace: o.Cost.Namespace, Name: o.Cost.Name,
		Interval: o.Cost.Interval, Labels: o.Cost.Labels, Publish: o.Cost.Publish, PriceSource: "NodeClaim",
	}
	if chosen == options.BackendPods { // tenants can change all other prices there
		config.PriceSource = "catalogue"
	}
	if o.Cost.CountTokens {
		config.Engines = engineprobe.New()
	}
	if at.speeds != nil {
		config.Speeds = at.speeds
	}
	keeper := cost.New(config)
	if err := cost.Register(metrics.Registry, keeper, o.Cost.MetricsByWorkspace); err != nil {
		at.costing = func(context.Context) error { return err }
		return nil
	}
	var machines []client.Object
	for _, each := range sources {
		if each.Frees != nil {
			machines = append(machines, each.Object)
		}
	}
	at.costing = func(context.Context) error { return keeper.SetupWithManager(at.mgr, machines, run) }
	return keeper
}

// warnOfBudgets logs budgets without effect, because they need the cost ledger. A Workspace's condition mentions this
// only before a purchase.
func (at site) warnOfBudgets(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := at.cached.List(ctx, list); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range list.Items {
		if _, isSet := list.Items[i].Annotations[v1beta1.AnnotationMonthlyBudget]; isSet {
			log.FromContext(ctx).Error(nil, "a namespace has a monthly budget, which needs the cost ledger: set --cost-namespace (chart value cost.enabled)",
				"namespace", list.Items[i].Name)
		}
	}
	return nil
}

// costsOf returns the costs for purchases; nil without a ledger.
func costsOf(keeper *cost.Keeper) purchase.Costs {
	if keeper == nil {
		return nil
	}
	return keeper
}
