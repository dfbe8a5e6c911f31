// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package tinymodel

import (
	"encoding/json"
	"fmt"
)

// AdapterRepo is the local hub's repository of a LoRA adapter for the checkpoint.
const AdapterRepo = "modelberth/tiny-chat-vllm-lora"

// AdapterRank lies between the ranks servers count in: they round it up.
const AdapterRank = 12

const adapterSeed = 3

// Adapter is a LoRA adapter of the checkpoint's attention, as files of a Hugging Face repository.
func Adapter() (map[string][]byte, error) {
	config, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": CheckpointRepo,
		"r": AdapterRank, "lora_alpha": 2 * AdapterRank, "lora_dropout": 0, "bias": "none",
		"target_modules": []string{"q_proj", "v_proj"},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding adapter_config.json: %w", err)
	}
	r := &source{state: adapterSeed}
	var tensors []tensor
	for layer := range CheckpointLayers {
		for _, module := range []struct {
			name string
			out  int
		}{{"q_proj", Hidden}, {"v_proj", KVHeads * HeadDim}} {
			at := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.%s.", layer, module.name)
			tensors = append(tensors,
				tensor{name: at + "lora_A.weight", shape: []int{AdapterRank, Hidden}, data: r.matrix(AdapterRank*Hidden, scaleLayer)},
				tensor{name: at + "lora_B.weight", shape: []int{module.out, AdapterRank}, data: r.matrix(module.out*AdapterRank, scaleLayer)})
		}
	}
	weights, err := safetensors(tensors)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"README.md": []byte(readme), "adapter_config.json": append(config, '\n'), "adapter_model.safetensors": weights,
	}, nil
}
