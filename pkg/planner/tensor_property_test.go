// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// shardTensors turns a random world into one whose engine splits by tensors and profiles its memory.
func shardTensors(r *rand.Rand, w *world) {
	e := &w.Engines[0]
	e.Split, e.Memory = catalog.SplitTensor, catalog.EngineMemory{}
	e.Profile = catalog.MemoryProfile{
		Basis: v1beta1.BasisMeasured, SpareGiB: 1.5, MostUsed: 0.95, DefaultUsed: 0.9, SamplerCopies: 9, FixedGiB: 0.15,
		ForwardCopies: 2, WeightFactor: 1.005, NonTorchGiB: catalog.NonTorch{Single: 0.1, PCIe: 0.2, Pair: 0.6, Group: 0.9},
		Graphs: []catalog.GraphStep{{ParamsB: 16, GiB: 0.5}, {GiB: 1}}, GraphsSince: "0.21", BlockTokens: 16,
		Defaults: []catalog.BatchDefault{{LeastGiB: 70, Sequences: 1024, BatchTokens: 8192}, {Sequences: 256, BatchTokens: 2048}},
	}
	for i := range w.SKUs {
		s := &w.SKUs[i]
		s.GPUs = 1 << r.IntN(4)
		s.LinkedGPUs = []int{0, min(2, s.GPUs), s.GPUs}[r.IntN(3)]
		if s.LinkedGPUs == 1 {
			s.LinkedGPUs = 0
		}
		s.NetworkGBs = []float64{0, 50}[r.IntN(2)]
	}
}

// tensorSearch is bruteForce for engines that split by tensors.
func tensorSearch(formats map[string]model.Quantization) func(world, planner.Request) ([]string, int, bool) {
	return func(w world, r planner.Request) ([]string, int, bool) { return tensorBest(w, r, formats) }
}

// tensorBest returns the machines that are best by price and the tie-breaks before the name, found by
// trying everything, and how many machines and GPUs they take. It says when a size is within rounding of
// a GPU's memory.
func tensorBest(w world, r planner.Request, formats map[string]model.Quantization) (best []string, gpus int, borderline bool) {
	m, c := *r.Model, r.Constraints
	length, concurrency := min(m.Context, 8192), 4
	if r.Objectives.MaxModelLen > 0 {
		length = min(r.Objectives.MaxModelLen, m.Context)
	}
	if r.Objectives.Concurrency > 0 {
		concurrency = r.Objectives.Concurrency
	}
	bestScore := score{price: math.Inf(1)}
	gpuOf := map[string]sku.GPU{}
	for _, g := range w.GPUs {
		gpuOf[g.Name] = g
	}
	for _, s := range w.SKUs {
		g := gpuOf[s.GPU]
		if excluded(s, g, c) {
			continue
		}
		try := tensorTrial{sku: s, gpu: g, engine: &w.Engines[0], model: &m, length: length, concurrency: concurrency, asked: c.GPUs}
		this, ok := try.best(c, formats)
		borderline = borderline || try.borderline
		if !ok || c.MaxHourlyPrice > 0 && this.price > c.MaxHourlyPrice {
			continue
		}
		switch order := this.compare(bestScore); {
		case order == 0:
			best = append(best, s.Name)
		case order < 0:
			bestScore, best = this, []string{s.Name}
		}
	}
	return best, bestScore.gpus, borderline
}

// score is what options are ordered by before their names.
type score struct {
	price       float64
	network     bool
	nodes, gpus int
}

func (s score) compare(other score) int {
	networked := func(s score) int {
		if s.network {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(s.price, other.price), cmp.Compare(networked(s), networked(other)),
		cmp.Compare(s.nodes, other.nodes), cmp.Compare(s.gpus, other.gpus))
}

// excluded says whether a machine may not be used at all.
func excluded(s sku.SKU, g sku.GPU, c planner.Constraints) bool {
	_, priced := s.Prices["eastus"]
	return s.Unusable != "" || c.GPUs > s.GPUs || !priced && (c.MaxHourlyPrice > 0 || !slices.Contains(c.InstanceTypes, s.Name)) ||
		len(c.InstanceTypes) > 0 && !slices.Contains(c.InstanceTypes, s.Name) ||
		len(c.Accelerators) > 0 && g.Class != "Class-0" && g.Name != "GPU-1" ||
		len(c.CapacityTypes) > 0 && !s.Spot || g.ComputeCapability == "7.0"
}

// tensorTrial tries one machine type.
type tensorTrial struct {
	sku                        sku.SKU
	gpu                        sku.GPU
	engine                     *catalog.Engine
	model                      *model.Model
	length, concurrency, asked int
	borderline                 bool
}

// best tries ever more machines, and on each number all forms in the order of preference.
func (t *tensorTrial) best(c planner.Constraints, formats map[string]model.Quantization) (score, bool) {
	price, priced := t.sku.Prices["eastus"]
	most := (2*t.model.Shape.Layers + 2) / 3
	if t.sku.NetworkGBs == 0 {
		most = min(most, 2)
	}
	for nodes := 1; nodes <= most; nodes++ {
		for _, a := range t.model.Artifacts {
			if !a.Native && !slices.Contains(c.AllowedQuantizations, a.Quantization) ||
				a.Quantization == "bf16" && t.gpu.ComputeCapability == "7.5" {
				continue
			}
			weights := physics.NewModel(t.model.Shape, physics.Weights{
				Format: formats[a.Quantization], Bytes: a.LoadedBytes(), Basis: v1beta1.BasisExact,
			})
			if replica, gpus := t.smallest(weights, nodes); replica > 0 {
				out := score{price: price * float64(nodes), network: t.sku.NetworkGBs > 0, nodes: nodes, gpus: gpus}
				if !priced {
					out.price = math.MaxFloat64
				}
				return out, true
			}
		}
	}
	return score{}, false
}

// smallest returns the GPUs of the smallest replica that fits a number of machines, and those of all
// replicas on one.
func (t *tensorTrial) smallest(weights *physics.Model, nodes int) (replica, gpus int) {
	for tp := 1; tp <= t.sku.GPUs; tp *= 2 {
		heads, kv := t.model.Shape.Heads, t.model.Shape.KVHeads
		if heads%tp != 0 || kv%tp != 0 && tp%kv != 0 || t.model.Shape.Intermediate%tp != 0 {
			continue
		}
		for stages := 1; tp*stages <= t.sku.GPUs && stages*nodes <= (2*t.model.Shape.Layers+2)/3; stages *= 2 {
			for replicas := 1; tp*stages*replicas <= t.sku.GPUs && (replicas == 1 || nodes == 1); replicas *= 2 {
				used := tp * stages * replicas
				if t.asked > 0 && used != t.asked || !t.fits(weights, nodes, tp, stages, replicas) {
					continue
				}
				if size := tp * stages; replica == 0 || size < replica || size == replica && used > gpus {
					replica, gpus = size, used
				}
			}
		}
	}
	return replica, gpus
}

func (t *tensorTrial) fits(weights *physics.Model, nodes, tp, stages, replicas int) bool {
	sequences := (t.concurrency + replicas - 1) / replicas
	l := physics.Layout{TP: tp, PP: nodes * stages, DP: replicas, Nodes: nodes, LinkedGPUs: t.sku.LinkedGPUs, NetworkGBs: t.sku.NetworkGBs}
	s := physics.Serving{
		MaxModelLen: t.length, MaxNumSeqs: min(sequences, 1024), MaxBatchedTokens: 2048,
		Utilization: min(math.Floor((1-1.5/t.gpu.MemoryGiB)*100)/100, 0.95),
	}
	spare := physics.Memory(weights, &t.gpu, l, &s, t.engine).KVCache - weights.KVNeed(l, &s, t.length, sequences, t.engine)
	t.borderline = t.borderline || math.Abs(spare) < 1e-6
	return spare >= 0
}
