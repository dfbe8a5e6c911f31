// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// machineNamed returns a machine type of the world and its GPU.
func (w world) machineNamed(name string) (sku.SKU, sku.GPU) {
	var s sku.SKU
	for _, other := range w.SKUs {
		if other.Name == name {
			s = other
		}
	}
	for _, g := range w.GPUs {
		if g.Name == s.GPU {
			return s, g
		}
	}
	return s, sku.GPU{}
}

// checkPrice checks the capacity type of a plan and its price.
func checkPrice(t *testing.T, seed uint64, w world, request planner.Request, plan planner.Plan) {
	t.Helper()
	s, _ := w.machineNamed(plan.InstanceType)
	for _, e := range request.Constraints.Excluded {
		if e.InstanceType == plan.InstanceType && (e.CapacityType == "" || e.CapacityType == plan.CapacityType) {
			t.Errorf("seed %d: %s is planned, %+v was excluded", seed, plan.CapacityType, e)
		}
	}
	if allowed := request.Constraints.CapacityTypes; len(allowed) > 0 && !slices.Contains(allowed, plan.CapacityType) {
		t.Errorf("seed %d: %s is planned, allowed are %v", seed, plan.CapacityType, allowed)
	}
	want, sold := offer(s, request.Constraints)
	if want == math.MaxFloat64 {
		want = -1
	}
	if total := max(-1, want*float64(plan.Nodes)); !sold || math.Abs(plan.HourlyPrice-total) > 1e-6 {
		t.Errorf("seed %d: %s as %s costs %v, want %v", seed, plan.Summary(), plan.CapacityType, plan.HourlyPrice, total)
	}
	if most := request.Constraints.MaxNodes; most > 0 && plan.Nodes > most {
		t.Errorf("seed %d: %d machines, at most %d are allowed", seed, plan.Nodes, most)
	}
}

// checkPace checks that a plan states its speed, if known, and keeps the floors.
func checkPace(t *testing.T, seed uint64, w world, request planner.Request, plan planner.Plan) {
	t.Helper()
	_, g := w.machineNamed(plan.InstanceType)
	o := request.Objectives
	floors := o.TimeToFirstToken > 0 || o.TimePerOutputToken > 0
	if known := w.Engines[0].Speed.Basis != "" && len(g.PeakTFLOPs) > 0; known != (plan.Performance != nil) {
		t.Errorf("seed %d: pace is known: %v, performance %+v", seed, known, plan.Performance)
	}
	if plan.Performance == nil {
		if floors {
			t.Errorf("seed %d: nothing is known of the pace, yet the user set a limit", seed)
		}
		return
	}
	if !floors && request.Constraints.InstanceType != "" {
		return
	}
	within := func(limit, usual time.Duration) float64 { // a plan rounds to three digits
		if limit == 0 {
			limit = usual
		}
		return limit.Seconds() * 1000 * 1.006
	}
	p := plan.Performance
	if p.TTFTMillis > within(o.TimeToFirstToken, 5*time.Second) || p.TPOTMillis > within(o.TimePerOutputToken, 100*time.Millisecond) {
		t.Errorf("seed %d: %+v does not keep the limits of %+v", seed, p, o)
	}
	if o.Concurrency > 0 && p.Concurrency != o.Concurrency || p.InputTokens+p.OutputTokens > plan.MaxModelLen && plan.MaxModelLen > 1 {
		t.Errorf("seed %d: judged at %+v, asked for %+v, planned %d tokens", seed, p, o, plan.MaxModelLen)
	}
}

// checkServing checks that an engine would start with a plan's settings and hold the plan's load.
func checkServing(t *testing.T, seed uint64, request planner.Request, plan planner.Plan) {
	t.Helper()
	c := request.Constraints
	layers := 0
	for _, n := range plan.StageLayers {
		layers += n
	}
	waits := slices.ContainsFunc(plan.Warnings, func(text string) bool { return strings.HasPrefix(text, "max-num-seqs: ") })
	switch {
	case plan.MaxNumSeqs > plan.MaxBatchedTokens:
		t.Errorf("seed %d: %d sequences in a batch of %d tokens", seed, plan.MaxNumSeqs, plan.MaxBatchedTokens)
	case plan.KVCacheTokens < plan.MaxModelLen:
		t.Errorf("seed %d: a KV cache of %d tokens for sequences of %d", seed, plan.KVCacheTokens, plan.MaxModelLen)
	case plan.TensorParallel*plan.PipelineParallel*plan.DataParallel != plan.Nodes*plan.GPUsPerNode:
		t.Errorf("seed %d: TP %d × PP %d × DP %d on %s", seed, plan.TensorParallel, plan.PipelineParallel, plan.DataParallel, plan.Summary())
	case plan.PipelineParallel > 1 && (layers != request.Model.Shape.Layers || len(plan.StageLayers) != plan.PipelineParallel),
		plan.PipelineParallel == 1 && layers != 0:
		t.Errorf("seed %d: %d layers in %d stages as %v", seed, request.Model.Shape.Layers, plan.PipelineParallel, plan.StageLayers)
	case plan.Concurrency > plan.MaxNumSeqs*plan.DataParallel && !waits:
		t.Errorf("seed %d: concurrency %d with %d sequences on each of %d replicas, warnings %q",
			seed, plan.Concurrency, plan.MaxNumSeqs, plan.DataParallel, plan.Warnings)
	case c.GPUs > 0 && plan.GPUsPerNode != c.GPUs:
		t.Errorf("seed %d: %d GPUs are asked for, %d are used", seed, c.GPUs, plan.GPUsPerNode)
	case c.Engine.MaxNumSeqs > 0 && plan.MaxNumSeqs != c.Engine.MaxNumSeqs,
		c.Engine.MaxBatchedTokens > 0 && plan.MaxBatchedTokens != max(c.Engine.MaxBatchedTokens, plan.MaxNumSeqs),
		c.Engine.GPUMemoryUtilization > 0 && plan.GPUMemoryUtilization != c.Engine.GPUMemoryUtilization:
		t.Errorf("seed %d: settings %+v, planned %+v", seed, c.Engine, plan)
	}
	for _, set := range []struct {
		name        string
		set, actual int
	}{
		{"tensor-parallel-size", c.Engine.TensorParallel, plan.TensorParallel},
		{"pipeline-parallel-size", c.Engine.PipelineParallel, plan.PipelineParallel},
		{"data-parallel-size", c.Engine.DataParallel, plan.DataParallel},
	} {
		replaced := slices.ContainsFunc(plan.Warnings, func(text string) bool { return strings.HasPrefix(text, set.name) })
		if set.set > 0 && set.set != set.actual && !replaced {
			t.Errorf("seed %d: %s is set to %d, planned is %d", seed, set.name, set.set, set.actual)
		}
	}
}
