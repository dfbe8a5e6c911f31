// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Advice names only savings that justify a change of the request.
func TestAdvice(t *testing.T) {
	const latency, throughput = v1beta1.OptimizeForLatency, v1beta1.OptimizeForThroughput
	pair := func(dear float64) []sku.SKU {
		return []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Small", "GPU-0", 1, dear)}
	}
	for _, tc := range []struct {
		reason      string
		gib         [3]float64 // sizes of f16, q8 and q4; 0 means not published
		machines    []sku.SKU
		optimizeFor v1beta1.OptimizeFor
		float16     model.Float16
		want, not   string // beginnings of advice
	}{
		{
			reason: "fewer bits that save a fifth", gib: [3]float64{50, 0, 14}, machines: pair(8),
			want: "with q4 weights (org/weights), the model would run on Small ($8.00/h) instead of $10.00/h",
		},
		{
			reason: "fewer bits that save less", gib: [3]float64{50, 0, 14}, machines: pair(8.1), not: "q4 weights",
		},
		{
			reason: "of two formats that cost about the same, the one with more bits", gib: [3]float64{50, 26, 14},
			machines: []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Small", "GPU-0", 1, 2.4), machineOf("Tiny", "Tiny", 1, 2)},
			want:     "with q8 weights (org/weights), the model would run on Small ($2.40/h)", not: "q4",
		},
		{
			reason: "of two that do not, the cheaper one", gib: [3]float64{50, 26, 14},
			machines: []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Small", "GPU-0", 1, 2.6), machineOf("Tiny", "Tiny", 1, 2)},
			want:     "with q4 weights (org/weights), the model would run on Tiny ($2.00/h)", not: "q8",
		},
		{
			reason: "a format that holds less than the plan does not hide one that holds as much", gib: [3]float64{50, 26, 19},
			machines: []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Small", "GPU-0", 1, 5), machineOf("Tiny", "Tiny", 1, 2)},
			want:     "with q8 weights (org/weights), the model would run on Small ($5.00/h)", not: "with q4",
		},
		{
			reason: "formats that all hold less than the plan", gib: [3]float64{50, 0, 19},
			machines: []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Tiny", "Tiny", 1, 2)}, not: "with q4",
		},
		{
			reason: "who wants low latency is not sent to a slower machine", gib: [3]float64{50, 0, 14}, optimizeFor: latency,
			machines: []sku.SKU{machineOf("Large", "Large", 1, 10), machineOf("Dull", "GPU-1", 1, 2)}, not: "q4",
		},
		{
			reason: "fewer bits on a machine that is as fast", gib: [3]float64{50, 0, 14}, optimizeFor: latency, machines: pair(8),
			want: "with q4 weights (org/weights), the model would run on Small ($8.00/h)",
		},
		{
			reason: "who wants cheap tokens is not sent to where they are dearer", gib: [3]float64{50, 0, 14}, optimizeFor: throughput,
			machines: []sku.SKU{machineOf("Large", "Large", 1, 3), machineOf("Dull", "GPU-1", 1, 2)}, not: "q4",
		},
		{
			reason: "fewer bits for a fifth off the hour, at more for a token", gib: [3]float64{50, 0, 14},
			machines: []sku.SKU{machineOf("Large", "Large", 1, 2.5), machineOf("Dull", "GPU-1", 1, 2)}, not: "q4",
		},
		{
			reason: "who asks for the cheapest hour is told of it", gib: [3]float64{50, 0, 14}, optimizeFor: v1beta1.OptimizeForCost,
			machines: []sku.SKU{machineOf("Large", "Large", 1, 2.5), machineOf("Dull", "GPU-1", 1, 2)}, want: "with q4 weights (org/weights), the model would run on Dull",
		},
		{
			reason: "a dearer hour that takes a fifth off the token", gib: [3]float64{16, 0, 0},
			machines: []sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 4)},
			want:     "Swift ($4.00/h) serves the same load for",
		},
		{
			reason: "a dearer hour that takes less off the token", gib: [3]float64{16, 0, 0},
			machines: []sku.SKU{machineOf("Dull", "GPU-1", 1, 2), machineOf("Swift", "GPU-0", 1, 9.5)},
			not:      "Swift",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			swift := w.GPUs[0]
			swift.Name, swift.Class, swift.MemoryGiB = "Large", "Large", 80
			tiny := w.GPUs[0]
			tiny.Name, tiny.Class, tiny.MemoryGiB = "Tiny", "Tiny", 22
			w.GPUs, w.SKUs = append(w.GPUs, swift, tiny), tc.machines
			w.Models[0].Artifacts = nil
			for i, format := range []string{"f16", "q8", "q4"} {
				if tc.gib[i] > 0 {
					w.Models[0].Artifacts = append(w.Models[0].Artifacts, artifactOf(format, i == 0, tc.gib[i]))
				}
			}
			plan, err := ask(t, w, planner.Request{Objectives: planner.Objectives{OptimizeFor: tc.optimizeFor}})
			if err != nil {
				t.Fatal(err)
			}
			advises := func(beginning string) bool {
				return slices.ContainsFunc(plan.Advice, func(a string) bool { return strings.HasPrefix(a, beginning) })
			}
			if tc.want != "" && !advises(tc.want) || tc.not != "" && advises(tc.not) {
				t.Errorf("planned %s, advice %q, want %q and not %q", plan.Summary(), plan.Advice, tc.want, tc.not)
			}
		})
	}
}

// For a model without a published test of fp16, the advice is to try it if GPUs without bf16 are much cheaper.
func TestAdviceOnFloat16(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}})
	for name, want := range map[string]bool{
		"phi-4-mini-instruct":   true,
		"llama-3.2-3b-instruct": false, // is planned in fp16 without consent
		"gemma-3-4b-it":         false, // overflows in fp16
	} {
		m, err := c.ResolveModel(name)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := p.Plan(planner.Request{Model: &m})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(plan.Advice, func(a string) bool {
			return strings.HasPrefix(a, "in fp16, "+name+" would run on Standard_NC4as_T4_v3 ")
		})
		if got != want {
			t.Errorf("%s on %s: advice %q", name, plan.Summary(), plan.Advice)
		}
	}
}

// A machine may hold only one sequence of the longest length, but several typical requests. Its price per token is then
// for the usual load, not for one client.
func TestPricesPerTokenCompareUnderOneLoad(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		objectives planner.Objectives
		want       int // requests at once
	}{
		{"four typical requests fit", planner.Objectives{}, 4},
		{"four do not fit: the load is what the machine holds", planner.Objectives{InputTokens: 7000, OutputTokens: 1000}, 1},
		{"the user's own load stays", planner.Objectives{Concurrency: 1}, 1},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			w.SKUs = []sku.SKU{machineOf("Swift", "GPU-0", 1, 3)}
			w.Models[0].Artifacts = []model.Artifact{artifactOf("f16", true, 36.4)}
			plan, err := ask(t, w, planner.Request{Objectives: tc.objectives})
			if err != nil {
				t.Fatal(err)
			}
			if plan.Concurrency != 1 || plan.Performance.Concurrency != tc.want {
				t.Errorf("holds %d sequences of %d tokens, judged at %d requests, want 1 and %d", plan.Concurrency, plan.MaxModelLen,
					plan.Performance.Concurrency, tc.want)
			}
		})
	}
}

// Whoever follows advice gets the machine that it names.
func TestAdviceGivesItsMachine(t *testing.T) {
	c := realCatalog(t)
	whole := regexp.MustCompile(`^(.+) \(\$[\d.]+/h\) holds .*: set inference\.objectives\.maxModelLen: (\d+) and inference\.objectives\.concurrency: (\d+) to get it$`)
	token := regexp.MustCompile(`^(.+) \(\$[\d.]+/h\) serves the same load .*: Throughput and inference\.objectives\.concurrency: (\d+)$`)
	bits := regexp.MustCompile(`the model would run on (.+) \(\$[\d.]+/h\) instead of .*: allow them with inference\.engine\.allowedQuantizations: \[(\S+)\]$`)
	cache := regexp.MustCompile(`the model would run on (.+) \(\$[\d.]+/h\) instead of .*: allow it with inference\.engine\.allowedKVCacheTypes: \[(\S+)\]$`)
	followed := 0
	for _, cloud := range []string{"aws", "azure", "gcp"} {
		p := planner.New(c, planner.Settings{Clouds: []string{cloud}})
		for _, m := range c.Models() {
			plan, err := p.Plan(planner.Request{Model: &m})
			if err != nil {
				continue
			}
			for _, advice := range plan.Advice {
				r := planner.Request{Model: &m}
				var machine string
				if words := whole.FindStringSubmatch(advice); words != nil {
					machine = words[1]
					r.Objectives.MaxModelLen, _ = strconv.Atoi(words[2])
					r.Objectives.Concurrency, _ = strconv.Atoi(words[3])
				} else if words := token.FindStringSubmatch(advice); words != nil {
					machine, r.Objectives.OptimizeFor = words[1], v1beta1.OptimizeForThroughput
					r.Objectives.Concurrency, _ = strconv.Atoi(words[2])
				} else if words := bits.FindStringSubmatch(advice); words != nil {
					machine, r.Constraints.AllowedQuantizations = words[1], words[2:]
				} else if words := cache.FindStringSubmatch(advice); words != nil {
					machine, r.Constraints.AllowedKVCacheTypes = words[1], words[2:]
				} else {
					continue
				}
				followed++
				got, err := p.Plan(r)
				takes := got.InstanceType
				if got.Nodes > 1 {
					takes = fmt.Sprintf("%d × %s", got.Nodes, takes)
				}
				if err != nil || takes != machine {
					t.Errorf("%s on %s: %q; with %+v, %+v, the plan takes %s, error %v", m.Name, cloud, advice, r.Objectives, r.Constraints, takes, err)
				}
			}
		}
	}
	if followed < 20 {
		t.Errorf("followed %d pieces of advice, want at least 20", followed)
	}
}
