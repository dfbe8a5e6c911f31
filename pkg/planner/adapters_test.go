// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

func TestAdapters(t *testing.T) {
	const assumed = "inference.adapters: some ranks are unknown until the files are fetched, so the plan has room for rank 64: " +
		"set max-lora-rank in inference.engine.args if a rank is higher, or to save memory if all ranks are lower"
	type decision struct {
		Slots, Rank int
		Warnings    []string
	}
	for _, tc := range []struct {
		reason   string
		adapters planner.Adapters
		settings planner.EngineSettings
		want     decision
	}{
		{"none", planner.Adapters{}, planner.EngineSettings{AdapterSlots: 4, AdapterRank: 8}, decision{}},
		{"a slot for each, of a rank that most have", planner.Adapters{Count: 3}, planner.EngineSettings{}, decision{3, 64, []string{assumed}}},
		{"a rank that is known, rounded up to one that the engine takes", planner.Adapters{Count: 1, Ranks: []int{24}}, planner.EngineSettings{}, decision{1, 32, nil}},
		{"one of two that is known and higher", planner.Adapters{Count: 2, Ranks: []int{100}}, planner.EngineSettings{}, decision{2, 128, []string{strings.Replace(assumed, "64", "100", 1)}}},
		{"what the user says", planner.Adapters{Count: 3}, planner.EngineSettings{AdapterSlots: 2, AdapterRank: 16}, decision{2, 16, nil}},
		{"room for adapters to come", planner.Adapters{Count: 1, Ranks: []int{8}, IsLive: true}, planner.EngineSettings{AdapterSlots: 4, AdapterRank: 32}, decision{4, 32, nil}},
		{"none yet, of a rank that most have", planner.Adapters{IsLive: true}, planner.EngineSettings{AdapterSlots: 2}, decision{2, 64, []string{assumed}}},
		{"none yet, and no word of slots", planner.Adapters{IsLive: true}, planner.EngineSettings{AdapterRank: 16}, decision{1, 16, nil}},
		{
			"a rank below that of an adapter is not taken",
			planner.Adapters{Count: 1, Ranks: []int{32}},
			planner.EngineSettings{AdapterRank: 8},
			decision{1, 32, []string{"max-lora-rank: 8 is replaced by 32, the rank of an adapter"}},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			shop, m := shipped(t, "phi-4")
			plan, err := shop.Plan(planner.Request{
				Model: m, Adapters: tc.adapters,
				Constraints: planner.Constraints{InstanceType: "Standard_NC24ads_A100_v4", Engine: tc.settings},
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, decision{plan.AdapterSlots, plan.AdapterRank, plan.Warnings}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAdapterAboveEnginesRanks(t *testing.T) {
	shop, m := shipped(t, "phi-4")
	_, err := shop.Plan(planner.Request{Model: m, Adapters: planner.Adapters{Count: 1, Ranks: []int{1024}}})
	infeasible, ok := errors.AsType[*planner.InfeasibleError](err)
	const want = "inference.adapters: an adapter has rank 1024, but engine vllm serves ranks up to 512: leave this adapter out"
	if !ok || infeasible.Reason != v1beta1.ReasonSpecInvalid || infeasible.Message != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Slots take memory from the KV cache. With too many slots, the model takes another machine.
func TestAdaptersTakeMemory(t *testing.T) {
	shop, m := shipped(t, "phi-4")
	slots := func(rank int) planner.EngineSettings {
		return planner.EngineSettings{AdapterSlots: 10, AdapterRank: rank}
	}
	plan := func(settings planner.EngineSettings) planner.Plan {
		out, err := shop.Plan(planner.Request{
			Model: m, Adapters: planner.Adapters{Count: settings.AdapterSlots},
			Objectives:  planner.Objectives{MaxModelLen: 8192, Concurrency: 4},
			Constraints: planner.Constraints{Accelerators: []string{"A100-80"}, Engine: settings},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	none, ten, most := plan(planner.EngineSettings{}), plan(slots(64)), plan(slots(512))
	if none.InstanceType != ten.InstanceType || none.Memory.KVCache <= ten.Memory.KVCache || ten.KVCacheTokens >= none.KVCacheTokens {
		t.Errorf("ten adapters leave %v GiB on %s, none %v on %s", ten.Memory.KVCache, ten.InstanceType, none.Memory.KVCache, none.InstanceType)
	}
	if ten.Memory.Basis != v1beta1.BasisEstimated {
		t.Errorf("a budget with adapters is %s", ten.Memory.Basis)
	}
	if ten.DiskGiB <= none.DiskGiB {
		t.Errorf("ten adapters need %d GiB of disk, none %d", ten.DiskGiB, none.DiskGiB)
	}
	if most.InstanceType == none.InstanceType && most.GPUsPerNode == none.GPUsPerNode {
		t.Errorf("ten adapters of rank 512 (48 GiB) still fit %s", most.InstanceType)
	}
}

// shipped returns a planner with the shipped catalogue, and one of its models.
func shipped(t *testing.T, name string) (*planner.Planner, *model.Model) {
	t.Helper()
	all := realCatalog(t)
	m, err := all.ResolveModel(name)
	if err != nil {
		t.Fatal(err)
	}
	return planner.New(all, planner.Settings{Clouds: []string{"azure"}, Engines: []string{"vllm"}}), &m
}
