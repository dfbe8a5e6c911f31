// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// randomWorld returns a catalogue with one model and up to a dozen machine types.
func randomWorld(r *rand.Rand) world {
	var w world
	for i := range 1 + r.IntN(4) {
		w.GPUs = append(w.GPUs, sku.GPU{
			Name: fmt.Sprintf("GPU-%d", i), Class: fmt.Sprintf("Class-%d", i%3), MemoryGiB: 4 + float64(r.IntN(160)), BandwidthGBs: 1,
			ComputeCapability: []string{"7.0", "7.5", "8.0", "9.0"}[r.IntN(4)],
		})
	}
	for i := range 1 + r.IntN(12) {
		// There are only a few different prices, so that ties occur.
		s := machineOf(fmt.Sprintf("Machine-%c", 'A'+i), w.GPUs[r.IntN(len(w.GPUs))].Name, 1+r.IntN(8), float64(1+r.IntN(6))/2)
		switch r.IntN(8) {
		case 0:
			s.Prices = nil
		case 1:
			s.Unusable = "is not sold"
		case 2:
			s.Spot = true
		}
		w.SKUs = append(w.SKUs, s)
	}
	e := engineOf("engine")
	e.Memory = catalog.EngineMemory{
		Basis: v1beta1.BasisEstimated, ReserveGiB: r.Float64(), BatchTokens: 512, LogitBytes: 4, HiddenBytes: 32, MaskBytes: 6,
		InputCopies: 4, KVBytes: 2, ContextMultiple: 256,
	}
	w.Engines = []catalog.Engine{e}
	heads := 1 << r.IntN(6)
	m := model.Model{
		Name: "model", HubID: "org/model", Context: 64 + r.IntN(100_000),
		Shape: model.Shape{
			Layers: 1 + r.IntN(96), Hidden: 64 << r.IntN(8), Intermediate: 64 << r.IntN(8), Heads: heads,
			KVHeads: heads >> r.IntN(3), HeadDim: 64 << r.IntN(2), Vocab: 1000 + r.IntN(150_000), Tied: r.IntN(2) == 0,
		},
	}
	if m.Shape.KVHeads == 0 {
		m.Shape.KVHeads = 1
	}
	for _, quantization := range []string{"bf16", "q8_0", "q4_k_m"} {
		if r.IntN(3) > 0 || len(m.Artifacts) == 0 {
			size := math.Exp(r.Float64()*7 - 1) // 0.4 to 400 GiB
			m.Artifacts = append(m.Artifacts, artifactOf(quantization, quantization == "bf16", size))
		}
	}
	w.Models = []model.Model{m}
	if r.IntN(2) == 0 {
		shardTensors(r, &w)
	}
	return w
}

// randomRequest returns a random request for the world's model.
func randomRequest(r *rand.Rand, w world) planner.Request {
	request := planner.Request{Model: &w.Models[0]}
	some := func() bool { return r.IntN(4) == 0 }
	if some() {
		request.Objectives.MaxModelLen = 1 + r.IntN(40_000)
	}
	if some() {
		request.Objectives.Concurrency = 1 + r.IntN(64)
	}
	c := &request.Constraints
	if some() {
		c.InstanceType = w.SKUs[r.IntN(len(w.SKUs))].Name
	} else if some() {
		c.InstanceTypes = []string{w.SKUs[r.IntN(len(w.SKUs))].Name, w.SKUs[0].Name}
	}
	if some() {
		c.Accelerators = []string{"class-0", "GPU-1"}
	}
	if some() {
		c.MaxHourlyPrice = float64(r.IntN(7)) / 2
	}
	if some() {
		c.GPUs = 1 + r.IntN(4)
	}
	if some() {
		c.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacitySpot}
	}
	if r.IntN(2) == 0 {
		c.AllowedQuantizations = []string{"q4_k_m", "q8_0"}
	}
	return request
}

// bruteNeed returns the memory in GiB that one of several GPUs needs. It assigns the layers one by one, as llama.cpp
// does.
func bruteNeed(m model.Model, a model.Artifact, law catalog.EngineMemory, gpu, gpus, length, concurrency int) float64 {
	tokens := float64((length+law.ContextMultiple-1)/law.ContextMultiple*law.ContextMultiple) * float64(concurrency)
	file := float64(a.Bytes())
	output := float64(m.Shape.Vocab) * float64(m.Shape.Hidden) * file / float64(m.Shape.Params())
	if a.Quantization == "bf16" {
		output = 2 * float64(m.Shape.Vocab) * float64(m.Shape.Hidden)
		tables := int64(2)
		if m.Shape.Tied {
			tables = 1
		}
		layers := m.Shape.Params() - tables*m.Shape.EmbeddingParams() - int64(m.Shape.Hidden)
		if file >= 2*float64(layers)+2*output {
			file -= output
		}
	}
	output = min(output, file)
	weights, kv := 0.0, 0.0
	overhead := law.ReserveGiB*(1<<30) + 512*(float64(m.Shape.Hidden)*32)
	copies := 1.0
	if gpus > 1 {
		copies = 4
	}
	overhead += 512 * tokens * 6 * copies
	for layer := range m.Shape.Layers + 1 {
		switch owner := layer * gpus / (m.Shape.Layers + 1); {
		case owner != gpu:
		case layer == m.Shape.Layers:
			weights += output
			overhead += 512 * 4 * float64(m.Shape.Vocab)
		default:
			weights += (file - output) / float64(m.Shape.Layers)
			kv += 2 * float64(m.Shape.KVHeads*m.Shape.HeadDim) * 2 * tokens
		}
	}
	return (weights + kv + overhead) / (1 << 30)
}

// bruteForce returns the best machines before the tie-break by name, and the number of GPUs in use. borderline means
// that a size is within rounding of a GPU's memory, so the caller should not compare.
func bruteForce(w world, r planner.Request) (best []string, gpus int, borderline bool) {
	c := r.Constraints
	if r.Objectives.TimeToFirstToken > 0 || r.Objectives.TimePerOutputToken > 0 {
		return nil, 0, false // this engine's speed is unknown
	}
	length, concurrency := aim(r)
	gpuOf := map[string]sku.GPU{}
	for _, g := range w.GPUs {
		gpuOf[g.Name] = g
	}
	search := func(shortest, _ int, wanted func(tried) bool) (options []tried) {
		for _, s := range w.SKUs {
			g := gpuOf[s.GPU]
			price, sold := excluded(s, g, c)
			o := tried{name: s.Name, class: g.Class, score: score{price: price, nodes: 1, machineGPUs: s.GPUs}}
			if !sold || c.MaxHourlyPrice > 0 && price > c.MaxHourlyPrice || !wanted(o) {
				continue
			}
			try := layerTrial{request: &r, law: &w.Engines[0].Memory, gpu: g, length: length, concurrency: concurrency, shortest: shortest}
			if try.best(&o) {
				options = append(options, o)
			}
			borderline = borderline || try.borderline
		}
		return options
	}
	best, gpus = firsts(r, shortened(r, search(0, 0, func(tried) bool { return true }), search))
	return best, gpus, borderline
}

// layerTrial tries one machine type for an engine that gives each GPU a run of layers.
type layerTrial struct {
	request             *planner.Request
	law                 *catalog.EngineMemory
	gpu                 sku.GPU
	length, concurrency int
	// shortest is the least length if the user set none; 0 if sequences are not shortened.
	shortest   int
	borderline bool
}

// best finds the preferred form that fits, on the fewest GPUs. If none fits, it lowers the objectives that the user
// left open as far as possible.
func (t *layerTrial) best(o *tried) bool {
	m, c := t.request.Model, t.request.Constraints
	for i := range 2 * len(m.Artifacts) {
		a := m.Artifacts[i%len(m.Artifacts)]
		length, concurrency := t.length, t.concurrency
		if i >= len(m.Artifacts) {
			concurrency = fewer(*t.request, concurrency, func(int) bool { return false })
			if t.shortest > 0 {
				length = min(length, t.shortest)
			}
		}
		if !a.Native && !slices.Contains(c.AllowedQuantizations, a.Quantization) || a.Quantization == "bf16" && t.gpu.ComputeCapability == "7.5" {
			continue
		}
		for gpus := 1; gpus <= o.machineGPUs; gpus++ {
			if c.GPUs > 0 && gpus != c.GPUs || gpus > m.Shape.Layers+1 || !t.fits(a, gpus, length, concurrency) {
				continue
			}
			o.gpus, o.short = gpus, length < t.length && !t.fits(a, gpus, t.length, concurrency)
			o.lowered = o.short || concurrency < t.concurrency
			return true
		}
	}
	return false
}

// fits reports whether every GPU holds its layers.
func (t *layerTrial) fits(a model.Artifact, gpus, length, concurrency int) bool {
	most := 0.0
	for gpu := range gpus {
		most = max(most, bruteNeed(*t.request.Model, a, *t.law, gpu, gpus, length, concurrency))
	}
	t.borderline = t.borderline || math.Abs(most-t.gpu.MemoryGiB) < 0.01
	return most <= t.gpu.MemoryGiB
}

// checkProperties plans for one random world and checks the invariants of every plan.
func checkProperties(t *testing.T, seed uint64, speed catalog.Speed) (planned, compared bool) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := randomWorld(r)
	enrich(r, &w, speed)
	request := randomRequest(r, w)
	if r.IntN(8) > 0 {
		enrichRequest(r, w, &request)
	}
	plan, err := planner.New(w.load(t), planner.Settings{}).Plan(request)
	checkShuffled(t, r, w, request, plan, err)
	if request.Constraints.InstanceType == "" {
		search := bruteForce
		if w.Engines[0].Split == catalog.SplitTensor {
			search = tensorSearch(formatsOf(t, w))
		}
		best, gpus, borderline := search(w, request)
		consent := slices.ContainsFunc(request.Model.Artifacts, func(a model.Artifact) bool {
			return a.Native || slices.Contains(request.Constraints.AllowedQuantizations, a.Quantization)
		})
		switch {
		case borderline || !consent:
		case err != nil && len(best) > 0:
			t.Errorf("seed %d: refused (%v), brute force finds %v", seed, err, best)
		case err == nil && (!slices.Contains(best, plan.InstanceType) || plan.GPUsPerNode != gpus):
			t.Errorf("seed %d: planned %s, brute force finds %v with %d GPUs", seed, plan.Summary(), best, gpus)
		}
		compared = !borderline && consent
	}
	if err != nil {
		return false, compared
	}
	checkPlan(t, seed, w, request, plan)
	checkMoreMemory(t, seed, w, request, plan)
	checkLowerPrices(t, seed, r, w, request, plan)
	return true, compared
}

// formatsOf returns the formats of weights by name.
func formatsOf(t *testing.T, w world) map[string]model.Quantization {
	t.Helper()
	out := map[string]model.Quantization{}
	c := w.load(t)
	for _, a := range w.Models[0].Artifacts {
		format, known := c.Quantization(a.Quantization)
		if !known {
			t.Fatalf("no format %s", a.Quantization)
		}
		out[a.Quantization] = format
	}
	return out
}

// checkPlan checks the invariants of one plan.
func checkPlan(t *testing.T, seed uint64, w world, request planner.Request, plan planner.Plan) {
	t.Helper()
	limit := request.Constraints.MaxHourlyPrice
	told := cmp.Or(request.Constraints.Engine.MaxModelLen, request.Objectives.MaxModelLen)
	verdicts := slices.Concat(plan.Alternatives, plan.Rejected)
	considered := len(w.SKUs)
	if request.Constraints.InstanceType != "" {
		considered = 1
	}
	switch {
	case limit > 0 && (plan.HourlyPrice < 0 || plan.HourlyPrice > limit):
		t.Errorf("seed %d: the price %v is not within the limit %v", seed, plan.HourlyPrice, limit)
	case plan.Memory.Free() < 0:
		t.Errorf("seed %d: the GPU lacks %v GiB", seed, -plan.Memory.Free())
	case plan.MaxModelLen < 1 || plan.MaxModelLen > request.Model.Context || plan.Concurrency < 1:
		t.Errorf("seed %d: %d tokens × %d of a model with %d", seed, plan.MaxModelLen, plan.Concurrency, request.Model.Context)
	case request.Objectives.Concurrency > 0 && plan.Concurrency != request.Objectives.Concurrency,
		told > 0 && plan.MaxModelLen != min(told, request.Model.Context):
		t.Errorf("seed %d: objectives %+v, planned %d tokens × %d", seed, request.Objectives, plan.MaxModelLen, plan.Concurrency)
	case len(verdicts)+1 != considered:
		t.Errorf("seed %d: %d verdicts and the plan for %d machines", seed, len(verdicts), considered)
	case len(plan.Alternatives) > 8:
		t.Errorf("seed %d: %d alternatives", seed, len(plan.Alternatives))
	}
	for _, v := range verdicts {
		if v.Reason == "" || len([]rune(v.Reason)) > 256 {
			t.Errorf("seed %d: verdict on %s: %q", seed, v.InstanceType, v.Reason)
		}
	}
	checkPrice(t, seed, w, request, plan)
	checkPace(t, seed, w, request, plan)
	if w.Engines[0].Split == catalog.SplitTensor {
		checkServing(t, seed, request, plan)
	}
}

// checkShuffled plans again with the same facts in another order. The result must be the same byte for byte.
func checkShuffled(t *testing.T, r *rand.Rand, w world, request planner.Request, plan planner.Plan, planErr error) {
	t.Helper()
	other := w
	other.SKUs, other.GPUs = slices.Clone(w.SKUs), slices.Clone(w.GPUs)
	r.Shuffle(len(other.SKUs), func(i, j int) { other.SKUs[i], other.SKUs[j] = other.SKUs[j], other.SKUs[i] })
	r.Shuffle(len(other.GPUs), func(i, j int) { other.GPUs[i], other.GPUs[j] = other.GPUs[j], other.GPUs[i] })
	c := &request.Constraints
	for _, list := range []*[]string{&c.InstanceTypes, &c.Accelerators, &c.AllowedQuantizations, &c.AllowedKVCacheTypes} {
		*list = slices.Clone(*list)
		slices.Reverse(*list)
	}
	c.CapacityTypes, c.Excluded = slices.Clone(c.CapacityTypes), slices.Clone(c.Excluded)
	slices.Reverse(c.CapacityTypes)
	slices.Reverse(c.Excluded)
	again, againErr := planner.New(other.load(t), planner.Settings{}).Plan(request)
	if diff := gocmp.Diff(encode(t, plan, planErr), encode(t, again, againErr)); diff != "" {
		t.Errorf("shuffled facts change the plan (-want +got):\n%s", diff)
	}
}

// encode returns the planner's whole answer as text.
func encode(t *testing.T, plan planner.Plan, err error) string {
	t.Helper()
	data, jsonErr := json.MarshalIndent(map[string]any{"plan": plan, "error": err}, "", " ")
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	return string(data)
}

// checkMoreMemory plans for machines with more GPU memory, and the plan may only get cheaper. It skips pipelines over
// many machines: a model that fits fewer machines does not spread over so many for speed alone.
func checkMoreMemory(t *testing.T, seed uint64, w world, request planner.Request, plan planner.Plan) {
	t.Helper()
	const slowNodes = 4
	if plan.Nodes > slowNodes {
		return
	}
	larger := w
	larger.GPUs = slices.Clone(w.GPUs)
	for i := range larger.GPUs {
		larger.GPUs[i].MemoryGiB *= 1 + float64(i)/2
	}
	again, err := planner.New(larger.load(t), planner.Settings{}).Plan(request)
	switch {
	case err != nil:
		t.Errorf("seed %d: with more memory it is infeasible: %v", seed, err)
	case plan.HourlyPrice < 0:
	case again.HourlyPrice < 0 || exceeds(request, again.HourlyPrice, plan.HourlyPrice):
		t.Errorf("seed %d: with more memory it costs %v rather than %v", seed, again.HourlyPrice, plan.HourlyPrice)
	}
}

// worth is the largest ratio of prices for Balanced and Cost. A plan for Balanced may cost a quarter more than the
// cheapest plan on fewer machines. That one may cost 1/0.6 of a plan on more machines, because these must save 40 %.
const worth = 1.25 / 0.6

// limitOf returns the most that a plan may cost by the price of the cheapest plan, and whether the objective has a
// limit.
func limitOf(r planner.Request, cheapest float64) (most float64, bound bool) {
	const cent = 0.01 // prices that differ by less count as equal
	switch aimOf(r) {
	case v1beta1.OptimizeForCost:
		return cheapest + cent, true
	case v1beta1.OptimizeForBalanced:
		return worth*cheapest + cent, true
	default:
		return 0, false
	}
}

// exceeds reports whether a price is above the limit that follows from another plan's price.
func exceeds(r planner.Request, price, other float64) bool {
	most, bound := limitOf(r, other)
	return bound && price > most
}

// checkLowerPrices plans with lower prices. The plan may not get dearer.
func checkLowerPrices(t *testing.T, seed uint64, r *rand.Rand, w world, request planner.Request, plan planner.Plan) {
	t.Helper()
	cheaper := w
	cheaper.SKUs = slices.Clone(w.SKUs)
	for i, s := range cheaper.SKUs {
		if price, known := s.Prices["eastus"]; known {
			cheaper.SKUs[i].Prices = map[string]float64{"eastus": price * r.Float64()}
		}
		if price, known := s.SpotPrices["eastus"]; known {
			cheaper.SKUs[i].SpotPrices = map[string]float64{"eastus": price * r.Float64()}
		}
	}
	again, err := planner.New(cheaper.load(t), planner.Settings{}).Plan(request)
	switch {
	case err != nil:
		t.Errorf("seed %d: with lower prices it is infeasible: %v", seed, err)
	case plan.HourlyPrice >= 0 && exceeds(request, again.HourlyPrice, plan.HourlyPrice):
		t.Errorf("seed %d: with lower prices it costs %v rather than %v", seed, again.HourlyPrice, plan.HourlyPrice)
	}
}

func TestProperties(t *testing.T) {
	planned, compared := 0, 0
	const rounds = 500
	speed := speedOfVLLM(t)
	for seed := range uint64(rounds) {
		p, c := checkProperties(t, seed, speed)
		if p {
			planned++
		}
		if c {
			compared++
		}
	}
	// The random worlds must lead to plans and to errors.
	if planned < rounds/5 || planned > rounds*4/5 || compared < rounds/4 {
		t.Errorf("%d of %d worlds were feasible, %d were compared with brute force", planned, rounds, compared)
	}
	t.Logf("%d of %d worlds were feasible, %d were compared with brute force", planned, rounds, compared)
}

func FuzzPlan(f *testing.F) {
	f.Add(uint64(1 << 40))
	speed := speedOfVLLM(f)
	f.Fuzz(func(t *testing.T, seed uint64) { checkProperties(t, seed, speed) })
}
