// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/presets"
	"github.com/modelberth/modelberth/test/localcloud/hub"
	"github.com/modelberth/modelberth/test/localcloud/tinymodel"
)

// The hub's model as a GGUF file. The hub has another one in the format of Hugging Face's libraries.
const (
	modelRepository = "modelberth/tiny-chat-GGUF"
	// shardedRepository has the same file for a model planned as a large one.
	shardedRepository = "modelberth/tiny-chat-sharded-GGUF"
	modelFile         = "tiny-chat-f16.gguf"
)

// standInEngine is the engine with a stand-in for any checkpoint. llama.cpp is real and would load it.
const standInEngine = "vllm"

// models is the hub with the cloud's own models, and a stand-in for each model of the product's catalogue.
func models() (*hub.Hub, error) {
	checkpoint, err := tinymodel.Checkpoint()
	if err != nil {
		return nil, fmt.Errorf("making the hub's model: %w", err)
	}
	adapter, err := tinymodel.Adapter()
	if err != nil {
		return nil, fmt.Errorf("making the hub's adapter: %w", err)
	}
	facts, err := catalog.Load(presets.FS())
	if err != nil {
		return nil, fmt.Errorf("reading the models to stand in for: %w", err)
	}
	standIns := map[string]hub.Files{}
	for _, m := range facts.Models() {
		for _, artifact := range m.Artifacts {
			if artifact.Engine != standInEngine || standIns[artifact.Repo] != nil {
				continue
			}
			if standIns[artifact.Repo], err = standIn(m, checkpoint); err != nil {
				return nil, err
			}
		}
	}
	return hub.New(map[string]hub.Files{
		modelRepository:          {modelFile: tinymodel.Bytes()},
		shardedRepository:        {modelFile: tinymodel.Bytes()},
		tinymodel.CheckpointRepo: checkpoint,
		tinymodel.AdapterRepo:    adapter,
	}, standIns), nil
}

// standIn returns the files of the checkpoint with another model's figures in their configuration: vLLM's stand-in
// takes the shape from there, and checks only the completeness of the tensors.
func standIn(m model.Model, checkpoint hub.Files) (hub.Files, error) {
	shape := m.Shape
	kvHeads, headDim := shape.KVHeads, shape.HeadDim
	if shape.MLA != nil {
		// The cache keeps one vector per token for all heads, not a key and a value.
		kvHeads, headDim = 1, (shape.MLA.KVRank+shape.MLA.RopeDim)/2
	}
	config, err := json.MarshalIndent(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
		"hidden_size": shape.Hidden, "intermediate_size": shape.Intermediate, "num_hidden_layers": shape.Layers,
		"num_attention_heads": shape.Heads, "num_key_value_heads": kvHeads, "head_dim": headDim,
		"max_position_embeddings": m.Context, "vocab_size": shape.Vocab, "tie_word_embeddings": shape.Tied,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of %s: %w", m.Name, err)
	}
	files := maps.Clone(checkpoint)
	files["config.json"] = append(config, '\n')
	return files, nil
}
