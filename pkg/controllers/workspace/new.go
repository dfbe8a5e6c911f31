// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/isolate"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/warnings"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/revision"
)

// New returns a Reconciler.
func New(config Config) *Reconciler {
	config.complete()
	store := revision.NewStore(config.Client, config.Live)
	r := &Reconciler{
		Config: config, waiting: watch.NewWaiting(), backoff: stale.NewBackoff(),
		warnings: &warnings.Reader{Live: config.Live, Clock: config.Clock},
		isolate:  &isolate.Starter{Client: config.Client, Guard: config.Isolation, Clock: config.Clock},
		planning: newPipeline(&config, store), probes: make(chan struct{}, mostProbes),
		preflight: preflight.New(config.Preflight, preflight.Cluster{
			Cached: config.Client, Live: config.Live, Classes: config.Provisioner, LocalDiskGiB: preflight.LocalDisk(config.Catalog),
		}, config.Clock),
	}
	r.observer = &observer{
		Client: config.Client, Live: config.Live, Provisioner: config.Provisioner, Revisions: store,
		Foreign:   &foreign.Guard{Cached: config.Client, Live: config.Live, Machines: config.KAITO},
		Preflight: r.preflight, Clock: config.Clock, NodeGrace: config.Acquisition.NodeGrace,
	}
	market := newMarket(&config, r)
	r.lessons = &lessons.Lessons{
		Reader: config.Client, Memory: config.Memory, Market: market, Waiting: r.waiting, Metrics: config.Metrics,
		Clock: config.Clock,
	}
	r.records = &records{
		Client: config.Client, Live: config.Live, Events: config.Events, Metrics: config.Metrics, Lessons: r.lessons,
		coalescer: newCoalescer(config.Clock), expectations: stale.NewExpectations(),
	}
	r.executor = &acquisition.Executor{
		Provisioner: config.Provisioner, Observer: r.observer, Live: config.Live, Market: market, Preflight: r.preflight,
		Memory: config.Memory, Lessons: r.lessons, Waiting: r.waiting, Settings: config.Acquisition,
		Exposure: config.Isolation.Exposure, Clock: config.Clock,
	}
	r.workloads = &workloads{
		Client: config.Client, Live: config.Live, Applier: config.Applier, Endpoints: config.Endpoints,
		Settings: config.Render.Workload, Clock: config.Clock, NodeGrace: config.Acquisition.NodeGrace,
		PinPods: r.executor.PinPods, IsGone: r.observer.IsGone,
		adapters: &adapterLists{Client: config.Client, Live: config.Live, Probe: config.AdapterProbe, probes: r.probes},
	}
	r.pins = &pins{store: store, records: r.records, workloads: r.workloads}
	r.executor.Effects = effects{r.pins, r.records, r.workloads}
	return r
}

// complete adds the parts that a Config may lack, and measures the planner.
func (c *Config) complete() {
	if c.Ledger == nil {
		c.Ledger = ledger.New(nil)
	}
	if c.Limits == nil {
		c.Limits = purchase.Limits{}.Always
	}
	if c.Metrics != nil && c.Planner != nil {
		c.Planner = meter.Planner{Planner: c.Planner, Clock: c.Clock, Metrics: c.Metrics}
	}
}

// effects implements acquisition.Effects with the steps of the Reconciler.
type effects struct {
	*pins
	*records
	*workloads
}

// newMarket returns the market of plans for Workspaces.
func newMarket(config *Config, r *Reconciler) *purchase.Market {
	out := purchase.Market{
		Catalog: config.Catalog, Planner: config.Planner, Planning: r.planning, Memory: config.Memory, Ledger: config.Ledger,
		CurrentLimits: config.Limits, Costs: config.Costs, OneMachine: config.Isolation.Refusal, Preflight: r.preflight,
		Objects: config.Live, Clock: config.Clock, NodeClasses: config.NodeClasses,
	}
	if config.Provisioner != nil {
		out.Names = config.Provisioner.Names
	}
	return purchase.New(out)
}
