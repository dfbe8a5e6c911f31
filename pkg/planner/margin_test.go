// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Every plan starts even if the law of memory is off by the largest allowed error: a sequence of the longest length
// fits into an engine with more overhead than predicted.
func TestPlansStartDespiteErrors(t *testing.T) {
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	p := planner.New(c, planner.Settings{})
	checked := 0
	for _, m := range c.Models() {
		for _, machine := range machinesOf(c, random) {
			plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{InstanceType: machine}})
			if infeasible := (*planner.InfeasibleError)(nil); errors.As(err, &infeasible) || plan.Engine != "vllm" {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			checked++
			if left := leftOver(t, c, random, &m, &plan); left < 0 {
				t.Errorf("%s on %s: %.2f GiB of KV cache are missing where the law is off", m.Name, machine, -left)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d plans were checked", checked)
	}
}

// machinesOf returns a few machine types at random.
func machinesOf(c *catalog.Catalog, random *rand.Rand) []string {
	var out []string
	for _, s := range c.SKUs() {
		if s.GPUs > 0 && random.IntN(20) == 0 {
			out = append(out, s.Name)
		}
	}
	return out
}

// leftOver returns the KV cache in GiB that a plan has beyond one sequence, if the engine's profile run takes more
// memory than predicted. The excess is up to the margin, split at random between the sampler and the libraries.
func leftOver(t *testing.T, c *catalog.Catalog, random *rand.Rand, m *model.Model, plan *planner.Plan) float64 {
	t.Helper()
	engine, _ := c.Engine(plan.Engine)
	engine = engine.Clone()
	gpu, _ := c.GPU(plan.Accelerator)
	machine := sku.SKU{LinkedGPUs: 1}
	if s, err := c.ResolveSKU(plan.InstanceType); err == nil {
		machine = s
	}
	format, _ := c.Quantization(plan.Artifact.Quantization)
	weights := physics.NewModel(m.Shape, physics.Weights{Format: format, Bytes: plan.Artifact.LoadedBytes(), Basis: plan.Memory.Basis})
	layout := physics.Layout{
		TP: plan.TensorParallel, PP: plan.PipelineParallel, DP: plan.DataParallel, EP: plan.ExpertParallel,
		Nodes: plan.Nodes, LinkedGPUs: machine.LinkedGPUs,
	}
	serving := physics.Serving{
		MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens,
		Utilization: plan.GPUMemoryUtilization, KVType: plan.KVCacheType,
	}
	exact := physics.Memory(weights, &gpu, layout, &serving, &engine)
	off, part := engine.Profile.MarginGiB.Of(exact.Basis)*random.Float64(), random.Float64()
	engine.Profile.TablesGiB += off * part
	libraries := &engine.Profile.NonTorchGiB
	for _, constant := range []*float64{&libraries.Single, &libraries.PCIe, &libraries.Pair, &libraries.Group} {
		*constant += off * (1 - part)
	}
	noisy := physics.Memory(weights, &gpu, layout, &serving, &engine)
	layout.DP = 1
	return noisy.KVCache - weights.KVNeed(layout, &serving, plan.MaxModelLen, 1, &engine)
}
