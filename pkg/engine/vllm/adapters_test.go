// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

func withAdapters(in engine.Input) engine.Input {
	in.Adapters = []engine.Adapter{
		{Name: "first", Dir: "/mnt/adapter/first", Strength: 1},
		{Name: "second.v2", Dir: "/mnt/adapter/second.v2", Path: "checkpoint-300", Strength: 1},
	}
	in.Plan.AdapterSlots, in.Plan.AdapterRank = 2, 64
	return in
}

func TestAdapters(t *testing.T) {
	_, data := presetCatalog(t)
	const served = start + " --tensor-parallel-size 2" + fits + " --enable-lora --max-loras 2 --max-lora-rank 64" +
		" --lora-modules first=/mnt/adapter/first second.v2=/mnt/adapter/second.v2/checkpoint-300" + end
	for _, tc := range []struct {
		reason   string
		args     map[string]string
		want     string
		warnings []string
	}{
		{"each under its own name", nil, served, nil},
		{"the plan has what the user says of slots and ranks", map[string]string{"max-loras": "1", "max-lora-rank": "8", "enable-lora": "true"}, served, nil},
		{
			"they are not switched off by the way",
			map[string]string{"enable-lora": "false"},
			served,
			[]string{"flag enable-lora: it stays on, because inference.adapters names adapters"},
		},
		{
			"further modules belong into the spec",
			map[string]string{"lora-modules": "third=/models"},
			served,
			[]string{"inference.engine.args: lora-modules is ignored, because adapters belong in inference.adapters"},
		},
		{"other flags of adapters pass", map[string]string{"fully-sharded-loras": ""}, served + " --fully-sharded-loras", nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := withAdapters(input(data))
			in.Args = tc.args
			got, err := vllm.Command(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got.Args); diff != "" {
				t.Errorf("args: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"first", "second.v2"}, got.AdapterNames); diff != "" {
				t.Errorf("names: -want +got:\n%s", diff)
			}
		})
	}
}

func TestAdaptersAreRefused(t *testing.T) {
	_, data := presetCatalog(t)
	for _, tc := range []struct {
		reason string
		change func(*engine.Input)
		want   string
	}{
		{
			"the server has no flag for their strength",
			func(in *engine.Input) { in.Adapters[1].Strength = 0.5 },
			"inference.adapters: second.v2 has strength 0.5, and engine vllm serves every adapter as it was trained: " +
				"leave strength out and scale lora_alpha in its adapter_config.json instead",
		},
		{
			"a name stands for one model",
			func(in *engine.Input) { in.Adapters[0].Name = "alias" },
			"inference.adapters: alias is a name of the model: give the adapter another source.name",
		},
		{
			"a plan made without them",
			func(in *engine.Input) { in.Plan.AdapterSlots = 0 },
			"rendering vllm: the plan has no memory for 2 adapters",
		},
		{
			"a rank that the server does not take",
			func(in *engine.Input) { in.Args = map[string]string{"max-lora-rank": "24"} },
			`inference.engine.args: flag "max-lora-rank" of engine vllm must be one of 1, 8, 16, 32, 64, 128, 256, 320, 512, not "24"`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := withAdapters(input(data))
			tc.change(&in)
			_, err := vllm.Command(in)
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
