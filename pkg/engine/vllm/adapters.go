// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/engine"
)

// Flags for adapters.
const (
	flagLoRA        = "enable-lora"
	flagLoRASlots   = "max-loras"
	flagLoRARank    = "max-lora-rank"
	flagLoRAModules = "lora-modules"
)

// adapters returns the flags that serve each adapter under its name, from its directory. If the adapters change while the
// server runs, it starts without any, so that the pods do not depend on them.
func adapters(in engine.Input) []engine.Setting {
	if !servesAdapters(in) {
		return nil
	}
	list := []engine.Setting{
		{Name: flagLoRA, Value: "true"},
		{Name: flagLoRASlots, Value: strconv.Itoa(in.Plan.AdapterSlots)},
		{Name: flagLoRARank, Value: strconv.Itoa(in.Plan.AdapterRank)},
	}
	if in.LoopbackPort > 0 {
		return list
	}
	modules := make([]string, 0, len(in.Adapters))
	for _, a := range in.Adapters {
		modules = append(modules, a.Name+"="+path.Join(a.Dir, a.Path))
	}
	return append(list, engine.Setting{Name: flagLoRAModules, Value: strings.Join(modules, " ")})
}

// servesAdapters reports whether the server has slots for adapters.
func servesAdapters(in engine.Input) bool { return len(in.Adapters) > 0 || in.LoopbackPort > 0 }

func adapterNames(in engine.Input) []string {
	if in.LoopbackPort > 0 {
		return nil
	}
	names := make([]string, 0, len(in.Adapters))
	for _, a := range in.Adapters {
		names = append(names, a.Name)
	}
	return names
}

// checkAdapters rejects adapters that the server would serve differently than requested.
func checkAdapters(in engine.Input) error {
	for _, a := range in.Adapters {
		switch {
		case a.Strength != 1:
			return fmt.Errorf("inference.adapters: %s has strength %v, and engine vllm serves every adapter as it was trained: "+
				"leave strength out and scale lora_alpha in its adapter_config.json instead", a.Name, a.Strength)
		case slices.Contains(in.ServedNames, a.Name):
			return fmt.Errorf("inference.adapters: %s is a name of the model: give the adapter another source.name", a.Name)
		}
	}
	if servesAdapters(in) && min(in.Plan.AdapterSlots, in.Plan.AdapterRank) < 1 {
		return fmt.Errorf("rendering vllm: the plan has no memory for %d adapters", len(in.Adapters))
	}
	return nil
}

// adapterFiles selects the server's files of an adapter's repository. Other files have the same tensors as a pickle,
// which can run code.
func adapterFiles() engine.Selection {
	return engine.Selection{Weights: []string{"adapter_model*.safetensors"}, Others: []string{"adapter_config.json"}}
}
