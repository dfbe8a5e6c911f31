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

// The model that the cloud's hub serves as a GGUF file. It has another one as Hugging Face's libraries write it.
const (
	modelRepository = "modelberth/tiny-chat-GGUF"
	// shardedRepository has the same file for a model that is planned as if it were large.
	shardedRepository = "modelberth/tiny-chat-sharded-GGUF"
	modelFile         = "tiny-chat-f16.gguf"
)

// standInEngine is the engine whose stand-in serves any checkpoint. The real one is llama.cpp, which would load it.
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

// standIn are the files of the checkpoint with a configuration that has the figures of another model: what stands in
// for vLLM takes the shape from there, and of the tensors only that they are whole.
func standIn(m model.Model, checkpoint hub.Files) (hub.Files, error) {
	shape := m.Shape
	kvHeads, headDim := shape.KVHeads, shape.HeadDim
	if shape.MLA != nil {
		// What is kept of a token is one vector for all heads, and not a key and a value.
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
