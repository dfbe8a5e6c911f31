// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/autoscaler"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// kedaInterval is the interval between checks whether KEDA has been installed. It is long, because most clusters never
// have KEDA, and the controller sees KEDA's HorizontalPodAutoscalers in any case.
const kedaInterval = 10 * time.Minute

// autoscaling returns the step that sets up the autoscaler of replicas. If the API server does not serve InferenceSets,
// the step does nothing: their controller waits for the kind and then restarts the process.
func (at site) autoscaling(run controller.Options) (step, error) {
	hasSets, err := at.serves(schema.GroupVersionKind{
		Group: v1beta1.Group, Version: v1beta1.GroupVersion().Version, Kind: v1beta1.InferenceSetKind,
	})
	if err != nil || !hasSets {
		return func(context.Context) error { return nil }, err
	}
	keda := autoscaler.ScaledObjectKind()
	hasKEDA, err := at.serves(keda)
	if err != nil {
		return nil, err
	}
	if !hasKEDA {
		if err := at.mgr.Add(&installWatch{mapper: at.mgr.GetRESTMapper(), kind: keda.GroupKind(), every: kedaInterval}); err != nil {
			return nil, fmt.Errorf("adding the wait for KEDA: %w", err)
		}
	}
	config := autoscaler.Config{
		Client: at.cached, Live: at.live, Others: at.mgr.GetCache(), HasKEDA: hasKEDA, Namespaces: at.namespaces,
		Engines: engineprobe.New(), Events: at.mgr.GetEventRecorderFor(v1beta1.ManagedBy), Clock: at.clock,
		Schema: at.definitions.fields, Loads: at.loads,
	}
	if config.Metrics, err = autoscaler.NewMetrics(metrics.Registry); err != nil {
		return nil, err
	}
	if at.speeds != nil {
		config.Speeds = at.speeds
	}
	if at.hooks.Autoscaler != nil {
		at.hooks.Autoscaler(&config)
	}
	reconciler := autoscaler.New(config)
	return func(context.Context) error { return reconciler.SetupWithManager(at.mgr, run) }, nil
}

// serves reports whether the API server serves a kind.
func (at site) serves(kind schema.GroupVersionKind) (bool, error) {
	_, err := at.mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("probing for %s: %w", kind.Kind, err)
	}
	return true, nil
}
