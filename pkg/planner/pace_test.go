// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// city returns a catalogue with a tensor-parallel engine, and machines of known and unknown speed.
func city(t testing.TB) world {
	t.Helper()
	w := town()
	profiled(&w.Engines[0])
	w.Engines[0].Speed = speedOfVLLM(t)
	peaks := func(tflops float64) map[string]float64 { return map[string]float64{"fp16": tflops, "bf16": tflops} }
	w.GPUs = []sku.GPU{
		{Name: "GPU-0", Class: "Swift", MemoryGiB: 40, BandwidthGBs: 2000, ComputeCapability: "8.0", PeakTFLOPs: peaks(300), Link: "nvlink3", LinkGBs: 300},
		{Name: "GPU-1", Class: "Dull", MemoryGiB: 40, BandwidthGBs: 330, ComputeCapability: "8.0", PeakTFLOPs: peaks(60), Link: "nvlink3", LinkGBs: 300},
		{Name: "GPU-2", Class: "Dark", MemoryGiB: 40, BandwidthGBs: 2000, ComputeCapability: "8.0"},
	}
	w.SKUs = []sku.SKU{
		machineOf("Swift", "GPU-0", 1, 3), machineOf("Dull", "GPU-1", 1, 2), machineOf("Dark", "GPU-2", 1, 1.75),
		machineOf("Swifts", "GPU-0", 4, 12),
	}
	return w
}

// ask plans the city's chat model.
func ask(t *testing.T, w world, r planner.Request) (planner.Plan, error) {
	t.Helper()
	m := w.Models[0]
	r.Model = &m
	return planner.New(w.load(t), planner.Settings{}).Plan(r)
}

// answer returns a plan's machines and layout, or the error.
func answer(plan planner.Plan, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, TP %d PP %d DP %d", plan.Summary(), plan.TensorParallel, plan.PipelineParallel, plan.DataParallel)
}

// An unknown speed never counts as fast, and an unknown price never as cheap.
func TestUnknownPace(t *testing.T) {
	dark := []string{"Dark"}
	for _, tc := range []struct {
		reason      string
		objectives  planner.Objectives
		constraints planner.Constraints
		want        string
	}{
		{
			"the usual limits are not the user's: the cheapest machine is taken though nothing is known of its pace",
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForCost},
			planner.Constraints{},
			"1 × Dark (1 × Dark), TP 1 PP 1 DP 1",
		},
		{
			"a known pace is worth a little more by the hour",
			planner.Objectives{},
			planner.Constraints{},
			"1 × Dull (1 × Dull), TP 1 PP 1 DP 1",
		},
		{
			"a limit that the user sets is not kept by an unknown pace",
			planner.Objectives{TimePerOutputToken: time.Second},
			planner.Constraints{},
			"1 × Dull (1 × Dull), TP 1 PP 1 DP 1",
		},
		{
			"nor on a machine that is named",
			planner.Objectives{TimeToFirstToken: time.Minute},
			planner.Constraints{InstanceType: "Dark"},
			"DoesNotFit: chat on Dark: its speed is not known, and inference.objectives.timeToFirstToken or inference.objectives.timePerOutputToken sets a limit; Dull ($2.00/h) is suitable",
		},
		{
			"an unknown pace is not the lowest latency",
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForLatency},
			planner.Constraints{},
			"1 × Swift (1 × Swift), TP 1 PP 1 DP 1",
		},
		{
			"an unknown pace is not the most tokens for the money",
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForThroughput},
			planner.Constraints{},
			"1 × Swift (1 × Swift), TP 1 PP 1 DP 1",
		},
		{
			"where nothing else is allowed, lowest latency takes it all the same",
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForLatency},
			planner.Constraints{InstanceTypes: dark},
			"1 × Dark (1 × Dark), TP 1 PP 1 DP 1",
		},
		{
			"where nothing else is allowed, throughput takes it all the same",
			planner.Objectives{OptimizeFor: v1beta1.OptimizeForThroughput},
			planner.Constraints{InstanceTypes: dark},
			"1 × Dark (1 × Dark), TP 1 PP 1 DP 1",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := answer(ask(t, city(t), planner.Request{Objectives: tc.objectives, Constraints: tc.constraints}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// A plan has a speed even if its long context leaves room for only one sequence.
func TestPaceOfOneSequence(t *testing.T) {
	c := realCatalog(t)
	m, err := c.ResolveModel("openai/gpt-oss-120b")
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(c, planner.Settings{})
	for length := 88 * 1024; length <= 104*1024; length += 1024 { // around the capacity of the GPUs' KV cache
		plan, err := p.Plan(planner.Request{
			Model: &m, Constraints: planner.Constraints{InstanceType: "g6.12xlarge", MaxNodes: 1},
			Objectives: planner.Objectives{InputTokens: length - 256, OutputTokens: 256, MaxModelLen: length, Concurrency: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Performance == nil || plan.Performance.TPOTMillis <= 0 || plan.Performance.TTFTMillis <= plan.Performance.TPOTMillis {
			t.Errorf("%s with %d tokens has performance %+v", plan.Summary(), length, plan.Performance)
		}
	}
}

// A plan for Latency may cost twice the cheapest plan, unless the user sets a price limit.
func TestPriceOfLatency(t *testing.T) {
	for _, tc := range []struct {
		reason       string
		price, limit float64
		want         string
	}{
		{"twice as much", 4, 0, "Swift"},
		{"more than twice as much", 4.01, 0, "Dull"},
		{"up to the user's limit", 4.01, 4.01, "Swift"},
		{"no more than the user's limit", 4, 3.99, "Dull"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.SKUs = []sku.SKU{machineOf("Swift", "GPU-0", 1, tc.price), machineOf("Dull", "GPU-1", 1, 2)}
			plan, err := ask(t, w, planner.Request{
				Objectives:  planner.Objectives{OptimizeFor: v1beta1.OptimizeForLatency},
				Constraints: planner.Constraints{MaxHourlyPrice: tc.limit},
			})
			if err != nil || plan.InstanceType != tc.want {
				t.Errorf("planned %q (%v), want %s", plan.InstanceType, err, tc.want)
			}
		})
	}
}

// If one machine holds a model but is too slow, the planner tries up to four: their stages work on requests in turn.
func TestMachinesForSpeed(t *testing.T) {
	w := city(t)
	s := machineOf("Swift", "GPU-0", 1, 3)
	s.NetworkGBs = 50
	w.SKUs = []sku.SKU{s}
	objectives := planner.Objectives{InputTokens: 7936, OutputTokens: 256, MaxModelLen: 8192, Concurrency: 40}
	for machines := 1; machines <= 5; machines++ {
		staged, err := ask(t, w, planner.Request{Objectives: objectives, Constraints: planner.Constraints{
			Engine: planner.EngineSettings{PipelineParallel: machines},
		}})
		if err != nil {
			t.Fatal(err)
		}
		limited := objectives
		limited.TimeToFirstToken = time.Duration(staged.Performance.TTFTMillis*1.01/kept(staged.Performance.Basis)*1e3) * time.Microsecond
		plan, err := ask(t, w, planner.Request{Objectives: limited})
		switch {
		case machines <= 4 && (err != nil || plan.Nodes != machines):
			t.Errorf("within %v: %s, want %d machines", limited.TimeToFirstToken, answer(plan, err), machines)
		case machines > 4 && err == nil:
			t.Errorf("within %v: %s, want no more than 4 machines", limited.TimeToFirstToken, plan.Summary())
		}
	}
}

// Parts of a prompt pass the stages of a pipeline one after another. If the engine's usual batches delay the first
// token too much, the plan has smaller ones.
func TestSmallerBatchesForSpeed(t *testing.T) {
	c := realCatalog(t)
	m, known := c.Model("llama-3.3-70b-instruct")
	if !known {
		t.Fatal("the model is missing")
	}
	for _, tc := range []struct {
		limit time.Duration
		batch int
	}{
		{5 * time.Second, 8192},
		{2800 * time.Millisecond, 2048},
	} {
		plan, err := planner.New(c, planner.Settings{}).Plan(planner.Request{
			Model:       &m,
			Objectives:  planner.Objectives{InputTokens: 8000, TimeToFirstToken: tc.limit},
			Constraints: planner.Constraints{InstanceTypes: []string{"Standard_NC40ads_H100_v5"}},
		})
		if err != nil || plan.MaxBatchedTokens != tc.batch || plan.Nodes != 2 {
			t.Errorf("within %v: batches of %d tokens on %s (%v), want %d on two machines", tc.limit, plan.MaxBatchedTokens, plan.Summary(), err, tc.batch)
		}
	}
	_, err := planner.New(c, planner.Settings{}).Plan(planner.Request{
		Model:       &m,
		Objectives:  planner.Objectives{InputTokens: 8000, TimeToFirstToken: 2800 * time.Millisecond},
		Constraints: planner.Constraints{InstanceTypes: []string{"Standard_NC40ads_H100_v5"}, Engine: planner.EngineSettings{MaxBatchedTokens: 8192}},
	})
	if err == nil {
		t.Error("the user's batches were replaced")
	}
}

// RDMA that pods cannot use has no effect on a plan.
func TestUnusableNetwork(t *testing.T) {
	w := city(t)
	s := machineOf("Swift", "GPU-0", 1, 3)
	s.NetworkGBs = 50
	w.SKUs = []sku.SKU{s}
	m := w.Models[0]
	plan := func(settings planner.Settings, stages int) (planner.Plan, error) {
		return planner.New(w.load(t), settings).Plan(planner.Request{
			Model: &m, Objectives: planner.Objectives{TimePerOutputToken: time.Second},
			Constraints: planner.Constraints{Engine: planner.EngineSettings{PipelineParallel: stages}},
		})
	}
	with, err := plan(planner.Settings{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	without, err := plan(planner.Settings{NoRDMA: true}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if !with.RDMA || without.RDMA || with.Performance.TPOTMillis >= without.Performance.TPOTMillis {
		t.Errorf("with RDMA (%t) a token takes %.2f ms, without (%t) %.2f ms",
			with.RDMA, with.Performance.TPOTMillis, without.RDMA, without.Performance.TPOTMillis)
	}
	if got, err := plan(planner.Settings{}, 3); err != nil || got.Nodes != 3 {
		t.Errorf("over three machines with RDMA: %s", answer(got, err))
	}
	if got, err := plan(planner.Settings{NoRDMA: true}, 3); err == nil {
		t.Errorf("over three machines without RDMA: %s, want no plan", got.Summary())
	}
}

// TestLongestPrompt: a plan has the time to first token of its longest prompt, and its alternatives do not.
func TestLongestPrompt(t *testing.T) {
	longest := func(length int) float64 {
		plan, err := ask(t, city(t), planner.Request{Objectives: planner.Objectives{MaxModelLen: length}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range plan.Alternatives {
			if v.Performance != nil && v.Performance.LongestTTFTMillis != 0 {
				t.Errorf("%s has it, too", v.InstanceType)
			}
		}
		return plan.Performance.LongestTTFTMillis
	}
	short, long := longest(4096), longest(32768)
	if short <= 0 || long <= 4*short {
		t.Errorf("%g ms for 4096 tokens, %g ms for 32768", short, long)
	}
	w := city(t)
	w.SKUs = []sku.SKU{machineOf("Dark", "GPU-2", 1, 1.75)}
	plan, err := ask(t, w, planner.Request{})
	if err != nil || plan.Performance != nil {
		t.Errorf("a GPU of unknown speed: %+v (%v)", plan.Performance, err)
	}
}
