// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// The remedy in an error changes only the setting it names, and the obstacle in the error is real.
func TestWaysOut(t *testing.T) {
	// The laws' predictions do not matter here.
	millis, gibs := regexp.MustCompile(`\d+ ms`), regexp.MustCompile(`\d+\.\d GiB`)
	exact := func(length, concurrency int) planner.Objectives {
		return planner.Objectives{MaxModelLen: length, Concurrency: concurrency}
	}
	excluded := func(names ...string) []planner.Exclusion {
		var out []planner.Exclusion
		for _, name := range names {
			out = append(out, planner.Exclusion{InstanceType: name, Reason: "no capacity until 12:00"})
		}
		return out
	}
	for _, tc := range []struct {
		reason      string
		layers      int
		gib         float64
		objectives  planner.Objectives
		constraints planner.Constraints
		want        string
	}{
		{
			"fewer and shorter sequences do not make it fast enough: they are not offered", 15, 16,
			planner.Objectives{TimePerOutputToken: 20 * time.Millisecond},
			planner.Constraints{InstanceType: "Dull"},
			"DoesNotFit: chat on Dull: too slow: N ms per token at 4 requests, the limit is 20ms; Swift ($3.00/h) is suitable",
		},
		{
			"several deployments are, where one does not hold them", 15, 16,
			planner.Objectives{MaxModelLen: 32768, Concurrency: 40, TimePerOutputToken: time.Second},
			planner.Constraints{InstanceType: "Dull", MaxNodes: 1},
			"DoesNotFit: chat on Dull: does not fit by X GiB per GPU at 32768 tokens × 40, and the limit is 1 machine (resource.count); " +
				"an InferenceSet of 4 replicas with inference.objectives.concurrency: 10 serves the load on Dull ($2.00/h) each, $8.00/h in all",
		},
		{
			"another machine is not one that was just refused", 15, 16,
			planner.Objectives{TimePerOutputToken: 20 * time.Millisecond},
			planner.Constraints{InstanceType: "Dull", Excluded: excluded("Swift")},
			"DoesNotFit: chat on Dull: too slow: N ms per token at 4 requests, the limit is 20ms; Swifts ($12.00/h) is suitable",
		},
		{
			"another machine does with the settings of the engine: one GPU holds the model only with more of its memory", 15, 16,
			exact(2048, 1),
			planner.Constraints{InstanceType: "Dull", MaxNodes: 1, Engine: planner.EngineSettings{GPUMemoryUtilization: 0.42}},
			"DoesNotFit: chat on Dull: does not fit by X GiB per GPU at 2048 tokens × 1, and the limit is 1 machine (resource.count); " +
				"2 × Dark ($3.50/h) is suitable",
		},
		{
			"two of its layers do not fit a GPU", 3, 66,
			exact(2048, 1),
			planner.Constraints{InstanceType: "Swift"},
			"DoesNotFit: chat on Swift: does not fit by X GiB per GPU at 2048 tokens × 1 on 2 machines: " +
				"more machines do not help, because at least one of them must hold two layers, and a layer takes X GiB of each GPU; Swifts ($12.00/h) is suitable",
		},
		{
			"its layers fit, their KV cache does not", 15, 16,
			exact(32768, 400),
			planner.Constraints{InstanceType: "Swift"},
			"DoesNotFit: chat on Swift: does not fit by X GiB per GPU at 32768 tokens × 400 on 10 machines: " +
				"more machines do not help, because at least one of them must hold two layers with their KV cache and overhead, and a layer takes X GiB of each GPU; " +
				"an InferenceSet of 37 replicas with inference.objectives.concurrency: 11 serves the load on Swift ($3.00/h) each, $111.00/h in all",
		},
		{
			"all machines are left out for one reason", 15, 16,
			planner.Objectives{},
			planner.Constraints{Excluded: excluded("Swift", "Swifts", "Dull", "Dark")},
			"NoMachineAllowed: no machine type is left: no capacity until 12:00",
		},
		{
			"for two reasons", 15, 16,
			planner.Objectives{},
			planner.Constraints{GPUs: 4, Excluded: excluded("Swifts")},
			"NoMachineAllowed: resource.placement and resource.count together leave no machine type: widen them",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := city(t)
			m := chat()
			m.Shape.Layers, m.Artifacts = tc.layers, []model.Artifact{artifactOf("f16", true, tc.gib)}
			w.Models = []model.Model{m}
			plan, err := ask(t, w, planner.Request{Objectives: tc.objectives, Constraints: tc.constraints})
			if err == nil {
				t.Fatalf("planned %s", plan.Summary())
			}
			if diff := cmp.Diff(tc.want, gibs.ReplaceAllString(millis.ReplaceAllString(err.Error(), "N ms"), "X GiB")); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// A message about a figure above a limit must show a larger number than the limit, however it rounds.
func TestTooSlowShowsMoreThanTheLimit(t *testing.T) {
	numbers := regexp.MustCompile(`too slow: ([\d.]+) (ms|s) .*(?:the limit is|must stay below) ([\d.]+) ?(ms|s)`)
	millis := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	named := planner.Constraints{InstanceType: "Dull"}
	for concurrency := 1; concurrency <= 12; concurrency++ {
		objectives := planner.Objectives{Concurrency: concurrency, MaxModelLen: 2048}
		plan, err := ask(t, city(t), planner.Request{Constraints: named, Objectives: objectives})
		if err != nil {
			t.Fatal(err)
		}
		slowToken, slowStart := objectives, objectives
		slowToken.TimePerOutputToken = millis(plan.Performance.TPOTMillis - 0.02)
		slowStart.TimeToFirstToken = millis(plan.Performance.TTFTMillis - 0.2)
		for _, objectives := range []planner.Objectives{slowToken, slowStart} {
			_, err := ask(t, city(t), planner.Request{Constraints: named, Objectives: objectives})
			if err == nil {
				t.Fatalf("%d requests: planned with %+v", concurrency, objectives)
			}
			got := numbers.FindStringSubmatch(err.Error())
			if got == nil {
				t.Fatalf("%d requests: no figure and limit in %q", concurrency, err)
			}
			figure, _ := time.ParseDuration(got[1] + got[2])
			limit, _ := time.ParseDuration(got[3] + got[4])
			if figure <= limit {
				t.Errorf("%d requests: %s is not above %s: %v", concurrency, figure, limit, err)
			}
		}
	}
}
