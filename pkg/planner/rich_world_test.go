// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
)

// speedOfVLLM returns the law of speed of the shipped vLLM engine.
func speedOfVLLM(t testing.TB) catalog.Speed {
	t.Helper()
	e, known := realCatalog(t).Engine("vllm")
	if !known || e.Speed.Basis == "" {
		t.Fatal("no speed of vllm")
	}
	return e.Speed
}

// enrich gives a random world speeds, more prices, and shapes without powers of two.
func enrich(r *rand.Rand, w *world, speed catalog.Speed) {
	for i := range w.GPUs {
		g := &w.GPUs[i]
		if r.IntN(6) > 0 { // the speed of the other GPUs is unknown
			g.BandwidthGBs = 300 * math.Exp(r.Float64()*3.3)
			peak := 60 * math.Exp(r.Float64()*3.6)
			g.PeakTFLOPs = map[string]float64{"fp16": peak, "bf16": peak}
		}
		g.Link, g.LinkGBs = "nvlink4", float64(50+r.IntN(900))
	}
	for i := range w.SKUs {
		s := &w.SKUs[i]
		if r.IntN(3) == 0 {
			s.Spot = true
		}
		if s.Spot && r.IntN(3) > 0 {
			s.SpotPrices = map[string]float64{"eastus": float64(1+r.IntN(10)) / 4} // sometimes dearer than on demand
		}
		s.Reserved = r.IntN(8) == 0
		s.LocalDiskGiB = float64(r.IntN(3) * 300)
	}
	e := &w.Engines[0]
	if e.Split != catalog.SplitTensor {
		return
	}
	e.Speed = speed
	e.Flags["kv-cache-dtype"] = catalog.Flag{Kind: catalog.FlagString, Values: []string{"auto", "fp8"}}
	e.KVCacheTypes = []catalog.KVCacheType{{Names: []string{"fp8"}, Capability: "8.0"}}
	m := &w.Models[0]
	if r.IntN(2) == 0 { // so small that many machines fit and the objective decides
		for i := range m.Artifacts {
			m.Artifacts[i].Files[0].Bytes /= 8
		}
	}
	if r.IntN(3) == 0 {
		mixExperts(r, w)
	}
	if r.IntN(3) == 0 {
		m.Shape.Heads, m.Shape.Intermediate = 3*m.Shape.Heads, 3*m.Shape.Intermediate
		if r.IntN(2) == 0 {
			m.Shape.KVHeads *= 3
		}
	}
}

// enrichRequest sets more fields of a request.
func enrichRequest(r *rand.Rand, w world, request *planner.Request) {
	some := func() bool { return r.IntN(4) == 0 }
	o, c := &request.Objectives, &request.Constraints
	o.OptimizeFor = []v1beta1.OptimizeFor{
		"", v1beta1.OptimizeForCost, v1beta1.OptimizeForLatency, v1beta1.OptimizeForThroughput,
	}[r.IntN(4)]
	if some() {
		o.TimeToFirstToken = time.Duration(50*math.Exp(r.Float64()*6)) * time.Millisecond
	}
	if some() {
		o.TimePerOutputToken = time.Duration(5*math.Exp(r.Float64()*4)) * time.Millisecond
	}
	if some() {
		o.InputTokens = 1 + r.IntN(20_000)
	}
	if some() {
		o.OutputTokens = 1 + r.IntN(4_000)
	}
	if some() {
		c.CapacityTypes = nil
		for _, t := range allCapacityTypes() {
			if r.IntN(2) == 0 {
				c.CapacityTypes = append(c.CapacityTypes, t)
			}
		}
	}
	if some() {
		c.MaxNodes = 1 + r.IntN(3)
	}
	for some() {
		e := planner.Exclusion{InstanceType: w.SKUs[r.IntN(len(w.SKUs))].Name, Reason: "no capacity until 12:00"}
		if r.IntN(3) > 0 {
			e.CapacityType = allCapacityTypes()[r.IntN(3)]
		}
		c.Excluded = append(c.Excluded, e)
	}
	if r.IntN(8) == 0 {
		c.Engine.MaxModelLen = 1 + r.IntN(20_000)
	}
	if w.Engines[0].Split == catalog.SplitTensor {
		randomSettings(r, w, c)
	}
}

func allCapacityTypes() []v1beta1.CapacityType {
	return []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacityReserved, v1beta1.CapacitySpot}
}

// randomSettings sets legal engine settings.
func randomSettings(r *rand.Rand, w world, c *planner.Constraints) {
	some := func() bool { return r.IntN(6) == 0 }
	if some() {
		c.AllowedKVCacheTypes = []string{"fp8"}
	}
	if tp := 1 + r.IntN(8); some() && splits(&w.Models[0].Shape, tp) && tp <= mostGPUs(w, *c) {
		c.Engine.TensorParallel = tp
	}
	if some() {
		c.Engine.PipelineParallel = min(1+r.IntN(6), w.Models[0].Shape.Layers)
	}
	if some() {
		c.Engine.DataParallel = 1 + r.IntN(4)
	}
	if some() {
		c.Engine.MaxNumSeqs = 1 + r.IntN(3000)
	}
	if some() {
		c.Engine.MaxBatchedTokens = 256 + r.IntN(10_000)
	}
	if some() {
		c.Engine.GPUMemoryUtilization = float64(30+r.IntN(68)) / 100
	}
	c.Engine.Eager = some()
	randomSharing(r, w, c)
}

// mostGPUs returns the largest number of GPUs of the machines that a request allows.
func mostGPUs(w world, c planner.Constraints) int {
	most := 1
	for _, s := range w.SKUs {
		if s.Unusable == "" && (c.InstanceType == "" || c.InstanceType == s.Name) &&
			(len(c.InstanceTypes) == 0 || slices.Contains(c.InstanceTypes, s.Name)) {
			most = max(most, s.GPUs)
		}
	}
	return most
}
