// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/presets"
)

// world is the contents of a made-up catalogue.
type world struct {
	GPUs    []sku.GPU
	SKUs    []sku.SKU
	Models  []model.Model
	Engines []catalog.Engine
	// Objectives that differ from the usual ones.
	Objectives []catalog.Objective
	// Measurements of the models.
	Measurements []catalog.Measurement
}

// leastLength is the length in tokens to which sequences may become shorter before a machine is added.
const leastLength = 1024

// load makes a catalogue of the world. JSON is YAML.
func (w world) load(t testing.TB) *catalog.Catalog {
	t.Helper()
	objectives := w.Objectives
	if objectives == nil {
		objectives = []catalog.Objective{
			{Name: v1beta1.OptimizeForBalanced, Premium: 0.25, Gain: 0.1, Saving: catalog.Saving{RDMA: 0.25, Network: 0.4}, LeastModelLen: leastLength},
			{Name: v1beta1.OptimizeForCost, LeastModelLen: leastLength},
			{Name: v1beta1.OptimizeForLatency, Premium: 1},
		}
	}
	data, err := json.Marshal(map[string]any{
		"source": "made up", "date": "2026-01-31", "cloud": "azure", "region": "eastus",
		"gpus": w.GPUs, "skus": w.SKUs, "models": w.Models, "engines": w.Engines, "quantizations": formats(),
		"objectives": objectives, "measurements": w.Measurements,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Load(fstest.MapFS{"world.yaml": &fstest.MapFile{Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// formats returns the formats of weights of the world's models.
func formats() []model.Quantization {
	return []model.Quantization{
		{Name: "bf16", BytesPerParam: 2, Scope: model.ScopeAll, Peak: "bf16"},
		{Name: "f16", BytesPerParam: 2, Scope: model.ScopeAll, Peak: "fp16"},
		{Name: "q8", Aliases: []string{"q8_0"}, BytesPerParam: 1, Scope: model.ScopeAll, Peak: "fp16"},
		{Name: "q4", Aliases: []string{"q4_k_m"}, BytesPerParam: 0.5, Scope: model.ScopeAll, Peak: "fp16"},
	}
}

// machineOf returns a machine type with a price.
func machineOf(name, gpu string, gpus int, price float64) sku.SKU {
	return sku.SKU{
		Name: name, Cloud: "azure", GPU: gpu, GPUs: gpus, Resource: "nvidia.com/gpu", VCPUs: 8, MemoryGiB: 64,
		Prices: map[string]float64{"eastus": price},
	}
}

// engineOf returns an engine whose law of memory has round figures: it reserves 1 GiB and has no other overhead.
func engineOf(name string) catalog.Engine {
	return catalog.Engine{
		Name: name, Version: "1", Image: "image", UserID: 1, HealthPath: "/health", ImageGiB: 2,
		Split: catalog.SplitLayers, CPUs: 2, MemoryGiB: 4,
		ComputeCapability: map[string]string{"default": "7.5", "bf16": "8.0"},
		Memory: catalog.EngineMemory{
			Basis: v1beta1.BasisMeasured, ReserveGiB: 1, BatchTokens: 1, InputCopies: 1, KVBytes: 2, ContextMultiple: 1,
		},
		Flags: map[string]catalog.Flag{"flag": {Kind: catalog.FlagBool}},
	}
}

// roundShape returns a shape of 15 layers and an output layer. Each layer takes 1 MiB of KV cache per 256 tokens.
func roundShape() model.Shape {
	return model.Shape{Layers: 15, Hidden: 1024, Intermediate: 1024, Heads: 8, KVHeads: 8, HeadDim: 128, Vocab: 1024}
}

// artifactOf returns weights of a size in GiB for the engine "engine".
func artifactOf(quantization string, native bool, gib float64) model.Artifact {
	return model.Artifact{
		Engine: "engine", Repo: "org/weights", Revision: "main", Quantization: quantization, Native: native,
		Files: []model.File{{Path: quantization + ".gguf", Bytes: int64(gib * (1 << 30))}},
	}
}

// in returns an artifact in another repository.
func in(repo string, a model.Artifact) model.Artifact {
	a.Repo = repo
	return a
}

// chat returns a model of 16 GiB in its published precision, and of 4 GiB with the user's consent. Four sequences of
// 8192 tokens take 1.875 GiB.
func chat() model.Model {
	return model.Model{
		Name: "chat", HubID: "org/Chat", Shape: roundShape(), Context: 32768,
		Artifacts: []model.Artifact{artifactOf("f16", true, 16), artifactOf("q4", false, 4)},
	}
}

// town returns a catalogue with a machine for every case.
func town() world {
	unusable, spot, unpriced := machineOf("Retired", "G-40", 1, 1), machineOf("Spot", "G-40", 1, 3), machineOf("Unpriced", "G-40", 1, 0)
	unusable.Unusable, spot.Spot, unpriced.Prices = "gone since 2020", true, nil
	shallow := roundShape()
	shallow.Layers = 2
	return world{
		GPUs: []sku.GPU{
			{Name: "G-12-PCIe", Class: "G-12", Aliases: []string{"GTX"}, MemoryGiB: 12, BandwidthGBs: 1, ComputeCapability: "8.0"},
			{Name: "G-40", Class: "G-40", MemoryGiB: 40, BandwidthGBs: 1, ComputeCapability: "8.0"},
			{Name: "Old-40", Class: "Old-40", MemoryGiB: 40, BandwidthGBs: 1, ComputeCapability: "7.0"},
			{Name: "Other-99", Class: "Other-99", MemoryGiB: 99, BandwidthGBs: 1},
		},
		SKUs: []sku.SKU{
			machineOf("Small", "G-12-PCIe", 1, 0.5), machineOf("Four", "G-12-PCIe", 4, 2), machineOf("One", "G-40", 1, 2),
			machineOf("Eight", "G-40", 8, 14.692), machineOf("Ancient", "Old-40", 1, 0.1), machineOf("Foreign", "Other-99", 1, 0.1),
			unusable, spot, unpriced,
			{Name: "Far", Cloud: "aws", GPU: "G-40", GPUs: 1, Resource: "nvidia.com/gpu", VCPUs: 8, MemoryGiB: 64},
		},
		Models: []model.Model{
			chat(),
			{Name: "later", HubID: "org/Later", Needs: "vllm"},
			{Name: "reduced", HubID: "org/Reduced", Shape: roundShape(), Context: 512, Artifacts: []model.Artifact{
				in("org/reduced-weights", artifactOf("q8", false, 2)), in("org/reduced-weights", artifactOf("q4", false, 1)),
			}},
			{Name: "shallow", HubID: "org/Shallow", Shape: shallow, Context: 512, Artifacts: []model.Artifact{
				in("org/shallow-weights", artifactOf("f16", true, 1)),
			}},
		},
		Engines: []catalog.Engine{engineOf("engine"), engineOf("spare")},
	}
}

// inTown returns a planner for the town with purchases from azure.
func inTown(t testing.TB) *planner.Planner {
	return planner.New(town().load(t), planner.Settings{Clouds: []string{"azure"}})
}

// loaded loads the catalogue once. That is safe, because nobody can change it.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

// realCatalog returns the shipped catalogue.
func realCatalog(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
