// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
)

// servedWith returns a Workspace whose engine took millis ms per token under the load of its plan.
func servedWith(name, preset string, plan planner.Plan, millis float64) *started {
	out := startedWith(name, preset, plan, "1")
	out.ws.Status.Engine.KVCacheTokens = nil
	out.ws.Status.Engine.Speed = &v1beta1.EngineSpeed{
		TimePerOutputToken: strconv.FormatFloat(millis, 'f', 3, 64), Concurrency: int32(plan.Performance.Concurrency),
		InputTokens: int32(plan.Performance.InputTokens), OutputTokens: int32(plan.Performance.OutputTokens), Requests: 100, Tokens: 10_000,
	}
	return out
}

// TestSpeedsOfNamespace: only some speeds count.
func TestSpeedsOfNamespace(t *testing.T) {
	known, plans := shipped(t)
	plan := planOf(t, known, plans, "qwen3-8b", planner.Constraints{InstanceType: "Standard_NV36ads_A10_v5"})
	plan.Performance = &planner.Performance{InputTokens: 900, OutputTokens: 150, Concurrency: 6}
	want := []catalog.Measurement{{
		Engine: "vllm", Version: "0.31.0", Model: "Qwen/Qwen3-8B", Quantization: "bf16", GPU: "A10", TensorParallel: 1,
		InputTokens: 900, OutputTokens: 150, Concurrency: 6, TPOTMillis: 41.5,
	}}
	halved := slices.Clone(want)
	halved[0].Concurrency = 3
	for _, tc := range []struct {
		reason string
		change func(*started)
		want   []catalog.Measurement
	}{
		{"a speed", func(*started) {}, want},
		{"each of two replicas has half of the requests", func(s *started) { s.pinned.Plan.DataParallel = 2 }, halved},
		{"another namespace: its users decide what their engine reports", func(s *started) { s.ws.Namespace = "team-b" }, nil},
		{"another model", func(s *started) { s.ws.Inference.Preset.Name = "qwen3-4b" }, nil},
		{"nothing was served yet", func(s *started) { s.ws.Status.Engine.Speed = nil }, nil},
		{"no number", func(s *started) { s.ws.Status.Engine.Speed.TimePerOutputToken = "NaN" }, nil},
		{"too few requests", func(s *started) { s.ws.Status.Engine.Speed.Requests = 99 }, nil},
		{"the user's settings", func(s *started) {
			s.pinned.Inputs.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"enforce-eager": "true"}}
		}, nil},
		{"the user's ConfigMap", func(s *started) { s.pinned.Inputs.Config = "vllm: {}" }, nil},
		{"several machines", func(s *started) { s.pinned.Plan.Nodes = 2 }, nil},
		{"adapters", func(s *started) { s.pinned.Plan.AdapterSlots = 2 }, nil},
		{"a part of a GPU", func(s *started) { s.pinned.Plan.GPUResource = "nvidia.com/mig-1g.5gb" }, nil},
		{"another engine", func(s *started) { s.pinned.Plan.Engine = "llamacpp" }, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := servedWith("chat", "qwen3-8b", plan, 41.5)
			tc.change(s)
			if diff := cmp.Diff(tc.want, readStarts(t, known, "qwen3-8b", s)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestThreeSpeedsHalveTheResidual: a token takes up to 1.4 times as long as the law says. Three engines, each off by up
// to a quarter of that error, leave at most half of it in the plan. The plan says so, and keeps its basis.
func TestThreeSpeedsHalveTheResidual(t *testing.T) {
	known, plans := shipped(t)
	random := rand.New(rand.NewPCG(7, 8))
	found := teachable(t, known, plans)
	compared := 0
	for i := range 3 * len(found) {
		name := slices.Sorted(maps.Keys(found))[i/3]
		plan := found[name]
		if plan.Performance == nil {
			continue
		}
		truth := 1.1 + 0.3*random.Float64()
		var all []*started
		for i := range 3 {
			noise := 1 + (truth-1)*0.25*(2*random.Float64()-1)
			all = append(all, servedWith(fmt.Sprint("chat-", i), name, plan, plan.Performance.TPOTMillis*truth*noise))
		}
		request := requestFor(t, known, name, planner.Constraints{InstanceType: plan.InstanceType})
		request.Starts = readStarts(t, known, name, all...)
		again, err := plans.Plan(request)
		if err != nil || !sameSettings(&plan, &again) || again.Performance.Concurrency != plan.Performance.Concurrency {
			continue // the lesson is for another set-up
		}
		compared++
		before := plan.Performance.TPOTMillis
		if left := math.Abs(again.Performance.TPOTMillis/before - truth); left > (truth-1)/2 {
			t.Errorf("%s: truly %.2f times as slow, planned %.2f", name, truth, again.Performance.TPOTMillis/before)
		}
		if again.Performance.Basis != plan.Performance.Basis || math.Abs(again.Performance.Slowdown*before/again.Performance.TPOTMillis-1) > 0.02 {
			t.Errorf("%s: %+v, without the lessons %+v", name, again.Performance, plan.Performance)
		}
	}
	t.Logf("%d plans compared", compared)
	if compared < 40 {
		t.Errorf("%d plans were compared: too few to say anything", compared)
	}
}

// lies returns speeds of a model's plan with arbitrary figures.
func lies(random *rand.Rand, name string, plan planner.Plan) (out []*started) {
	for i := range 1 + random.IntN(4) {
		factor := []float64{1e-6, 0.3, 0.7 + 0.3*random.Float64(), 1 + random.Float64(), 1 + random.Float64()/4, 1e6}[random.IntN(6)]
		lie := servedWith(fmt.Sprint("chat-", i), name, plan, plan.Performance.TPOTMillis*factor)
		claim := lie.ws.Status.Engine.Speed
		claim.Concurrency = max(1, claim.Concurrency<<random.IntN(3)>>random.IntN(3))
		claim.InputTokens, claim.OutputTokens = claim.InputTokens<<random.IntN(3)>>1, claim.OutputTokens<<random.IntN(3)>>1
		lie.pinned.Plan.DataParallel = 1 << random.IntN(3)
		out = append(out, lie)
	}
	return out
}

// TestSpeedsNeverKeepAFloor: whatever engines report, no request gets a plan that was refused before, for memory or for
// speed, and no figure becomes better.
func TestSpeedsNeverKeepAFloor(t *testing.T) {
	known, plans := shipped(t)
	random := rand.New(rand.NewPCG(9, 10))
	tooLarge, tooSlow, slowed, gone := 0, 0, 0, 0
	found := teachable(t, known, plans)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		plan := found[name]
		if plan.Performance == nil {
			continue
		}
		starts := readStarts(t, known, name, lies(random, name, plan)...)
		for range 8 {
			request := requestFor(t, known, name, planner.Constraints{InstanceType: plan.InstanceType})
			request.Objectives.TimePerOutputToken = time.Duration(plan.Performance.TPOTMillis * (0.9 + 0.6*random.Float64()) * 1e6)
			request.Objectives.TimeToFirstToken = 5 * time.Minute
			switch random.IntN(4) {
			case 0:
				request.Objectives.MaxModelLen, request.Objectives.Concurrency = plan.MaxModelLen, 1<<random.IntN(10)
			case 1:
				request.Objectives.RequestsPerSecond = math.Ceil(100*random.Float64()*8) / 100
			case 2:
				request.Objectives.OptimizeFor = v1beta1.OptimizeForThroughput
			}
			before, err := plans.Plan(request)
			request.Starts = starts
			after, errAfter := plans.Plan(request)
			switch {
			case err != nil && errAfter == nil:
				t.Errorf("%s, %+v: lessons make a plan where there was %q", name, request.Objectives, err)
			case err != nil && request.Objectives.MaxModelLen > 0:
				tooLarge++
			case err != nil:
				tooSlow++
			case errAfter != nil:
				gone++
			case after.Memory.KVCache > before.Memory.KVCache && sameSettings(&before, &after):
				t.Errorf("%s, %+v: KV cache %.2f GiB, %.2f without the lessons", name, request.Objectives, after.Memory.KVCache, before.Memory.KVCache)
			case sameSettings(&before, &after) && before.Performance.Concurrency == after.Performance.Concurrency:
				if after.Performance.TPOTMillis < before.Performance.TPOTMillis || after.Performance.Basis != before.Performance.Basis {
					t.Errorf("%s, %+v: %+v, without the lessons %+v", name, request.Objectives, after.Performance, before.Performance)
				}
				if after.Performance.Slowdown > 1 {
					slowed++
				}
			}
		}
	}
	t.Logf("%d refused for memory or speed, %d for speed, %d plans slowed, %d refused with the lessons", tooLarge, tooSlow, slowed, gone)
	if tooLarge == 0 || tooSlow == 0 || slowed == 0 || gone == 0 {
		t.Error("one of these cases did not occur: too few to say anything")
	}
}

// TestSlowEnginesMoveAPlan: an estimate may just keep a floor. If engines then took too long, the request is refused
// with the reason. Engines within the margin of the estimate change the figure but not the choice.
func TestSlowEnginesMoveAPlan(t *testing.T) {
	known, plans := shipped(t)
	const machine = "Standard_NV36ads_A10_v5"
	plan := planOf(t, known, plans, "qwen3-4b", planner.Constraints{InstanceType: machine})
	tpot := plan.Performance.TPOTMillis
	for _, tc := range []struct {
		times, slowdown float64
		refused         bool
	}{{0.9, 0, false}, {1.1, 1.1, false}, {1.17, 1.17, false}, {1.3, 0, true}, {1.7, 0, false}} {
		request := requestFor(t, known, "qwen3-4b", planner.Constraints{InstanceType: machine})
		request.Objectives.TimePerOutputToken = time.Duration(tpot / 0.8 * 1.005 * 1e6)
		request.Objectives.Concurrency = plan.Performance.Concurrency
		request.Starts = readStarts(t, known, "qwen3-4b", servedWith("chat", "qwen3-4b", plan, tpot*tc.times))
		got, err := plans.Plan(request)
		if (err != nil) != tc.refused {
			t.Errorf("%v times: error %v", tc.times, err)
			continue
		}
		if err != nil {
			want := fmt.Sprintf("(%v × the prediction, as measured on engines of this namespace)", tc.times)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v times: %q lacks %q", tc.times, err, want)
			}
			continue
		}
		if diff := cmp.Diff(tc.slowdown, got.Performance.Slowdown, cmpopts.EquateApprox(0.01, 0)); diff != "" {
			t.Errorf("%v times (-want +got):\n%s", tc.times, diff)
		}
	}
}
