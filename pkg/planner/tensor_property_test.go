// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// shardTensors gives a random world a tensor-parallel engine that profiles its memory.
func shardTensors(r *rand.Rand, w *world) {
	profiled(&w.Engines[0])
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

// profiled makes an engine tensor-parallel, with a memory profile.
func profiled(e *catalog.Engine) {
	e.Split, e.MultiNode, e.Memory = catalog.SplitTensor, true, catalog.EngineMemory{}
	e.Profile = catalog.MemoryProfile{
		Basis: v1beta1.BasisMeasured, SpareGiB: 1.5, MostUsed: 0.95, DefaultUsed: 0.9, SamplerCopies: 9, FixedGiB: 0.15,
		ForwardCopies: 2, WeightFactor: 1.005, NonTorchGiB: catalog.NonTorch{Single: 0.1, PCIe: 0.2, Pair: 0.6, Group: 0.9},
		Graphs: []catalog.GraphStep{{ParamsB: 16, GiB: 0.5}, {GiB: 1}}, GraphsSince: "0.21", BlockTokens: 16,
		Defaults: []catalog.BatchDefault{{LeastGiB: 70, Sequences: 1024, BatchTokens: 8192}, {Sequences: 256, BatchTokens: 2048}},
	}
}

// tensorSearch is bruteForce for tensor-parallel engines.
func tensorSearch(formats map[string]model.Quantization) func(world, planner.Request) ([]string, int, bool) {
	return func(w world, r planner.Request) ([]string, int, bool) { return tensorBest(w, r, formats) }
}

// tensorBest tries everything. It returns the best machines by the objective, the price and the tie-breaks before the
// name, and their number of GPUs in use. borderline means that a size is within rounding of a GPU's memory.
func tensorBest(w world, r planner.Request, formats map[string]model.Quantization) (best []string, gpus int, borderline bool) {
	gpuOf := map[string]sku.GPU{}
	for _, g := range w.GPUs {
		gpuOf[g.Name] = g
	}
	length, concurrency := aim(r)
	search := func(shortest, mostNodes int, wanted func(tried) bool) []tried {
		var options []tried
		for _, s := range w.SKUs {
			g := gpuOf[s.GPU]
			price, sold := excluded(s, g, r.Constraints)
			if !sold || !wanted(tried{name: s.Name, class: g.Class, score: score{price: price}}) {
				continue
			}
			try := tensorTrial{
				sku: s, gpu: g, engine: &w.Engines[0], request: &r, length: length, concurrency: concurrency, price: price,
				shortest: shortest, mostNodes: mostNodes,
			}
			o, ok := try.best(formats)
			borderline = borderline || try.borderline
			if limit := r.Constraints.MaxHourlyPrice; ok && (limit == 0 || o.price <= limit) {
				options = append(options, o)
			}
		}
		return options
	}
	options := shortened(r, search(0, 0, func(tried) bool { return true }), search)
	best, gpus = firsts(r, options)
	return best, gpus, borderline
}

// shortened adds single machines with shorter sequences to the options, if one of them ranks first then.
func shortened(r planner.Request, options []tried, search func(shortest, mostNodes int, wanted func(tried) bool) []tried) []tried {
	asked := r.Objectives.InputTokens + r.Objectives.OutputTokens
	if r.Objectives.InputTokens == 0 {
		asked += 1024
	}
	if r.Objectives.OutputTokens == 0 {
		asked += 256
	}
	names, _ := firsts(r, options)
	switch aim := aimOf(r); {
	case r.Objectives.MaxModelLen > 0 || r.Constraints.Engine.MaxModelLen > 0:
		return options
	case len(names) == 0:
		return search(max(2048, asked), 0, func(tried) bool { return true })
	case aim == v1beta1.OptimizeForLatency || aim == v1beta1.OptimizeForThroughput:
		return options
	}
	best := options[slices.IndexFunc(options, func(o tried) bool { return o.name == slices.Min(names) })]
	less := search(max(leastLength, asked), 1, func(m tried) bool {
		return best.price < math.MaxFloat64 && m.price < best.price-0.01 && (best.nodes > 1 || m.class != best.class) &&
			!slices.ContainsFunc(options, func(o tried) bool { return o.name == m.name && o.nodes == 1 })
	})
	less = slices.DeleteFunc(less, func(o tried) bool { return !o.short })
	all := append(slices.DeleteFunc(slices.Clone(options), func(o tried) bool {
		return slices.ContainsFunc(less, func(l tried) bool { return l.name == o.name })
	}), less...)
	now, _ := firsts(r, all)
	if slices.ContainsFunc(less, func(l tried) bool { return l.name == slices.Min(now) }) {
		return all
	}
	return options
}

// firsts returns the names of the options that are equally good before the tie-break by name, and their number of GPUs.
func firsts(r planner.Request, options []tried) (best []string, gpus int) {
	options = affordable(r, slices.Clone(options))
	if isBalanced(r) {
		options = balanced(options)
	}
	if len(options) == 0 {
		return nil, 0
	}
	if isBalanced(r) && slices.ContainsFunc(options, tried.isWhole) || aimOf(r) == v1beta1.OptimizeForLatency || aimOf(r) == v1beta1.OptimizeForThroughput {
		if whole := slices.DeleteFunc(slices.Clone(options), func(o tried) bool { return o.lowered }); len(whole) > 0 {
			options = whole
		}
	}
	if long := slices.DeleteFunc(slices.Clone(options), func(o tried) bool { return o.short }); isBalanced(r) && len(long) > 0 {
		options = long
	}
	if isBalanced(r) {
		options = repaid(options)
	}
	byObjective := func(a, b tried) int { return a.compare(b, aimOf(r)) }
	first := slices.MinFunc(options, byObjective)
	for _, o := range options {
		if byObjective(o, first) == 0 {
			best = append(best, o.name)
		}
	}
	return best, first.gpus
}

// aim returns the context and the concurrency for a request that names no machine.
func aim(r planner.Request) (length, concurrency int) {
	o, s := r.Objectives, r.Constraints.Engine
	load := typical(r)
	length = cmp.Or(s.MaxModelLen, o.MaxModelLen, max(8192, load.Input+load.Output))
	concurrency = cmp.Or(o.Concurrency, 4)
	if o.Concurrency == 0 && s.MaxNumSeqs > 0 {
		concurrency = min(concurrency, s.MaxNumSeqs)
	}
	return min(length, r.Model.Context), concurrency
}

// fewer returns the largest number of sequences that fits, if the user left it open. If none fits, it returns the
// least.
func fewer(r planner.Request, concurrency int, fits func(concurrency int) bool) int {
	fewest := 1
	if r.Objectives.Concurrency > 0 {
		fewest = concurrency
	}
	for at := concurrency; at > fewest; at-- {
		if fits(at) {
			return at
		}
	}
	return fewest
}

// typical returns the load for predicting the speed.
func typical(r planner.Request) physics.Load {
	return physics.Load{
		Open: true, Input: cmp.Or(r.Objectives.InputTokens, 1024), Output: cmp.Or(r.Objectives.OutputTokens, 256),
		Concurrency: r.Objectives.Concurrency,
	}
}

// affordable drops options above the price limit of Latency.
func affordable(r planner.Request, options []tried) []tried {
	if r.Objectives.OptimizeFor != v1beta1.OptimizeForLatency || r.Constraints.MaxHourlyPrice > 0 || len(options) == 0 {
		return options
	}
	cheapest, whole := math.Inf(1), slices.ContainsFunc(options, tried.isWhole)
	for _, o := range options {
		if !whole || !o.lowered {
			cheapest = min(cheapest, o.price)
		}
	}
	return slices.DeleteFunc(options, func(o tried) bool { return cheapest < math.MaxFloat64 && o.price > 2*cheapest })
}

// aimOf returns the objective of a request.
func aimOf(r planner.Request) v1beta1.OptimizeFor {
	return cmp.Or(r.Objectives.OptimizeFor, v1beta1.OptimizeForBalanced)
}

func isBalanced(r planner.Request) bool { return aimOf(r) == v1beta1.OptimizeForBalanced }

// balanced keeps options that save enough against fewer machines and cost at most a quarter more than the cheapest of
// them. It keeps every option if no price is known.
func balanced(options []tried) []tried {
	slices.SortStableFunc(options, func(a, b tried) int { return cmp.Compare(a.nodes, b.nodes) })
	var kept []tried
	for _, o := range options {
		saves := 0.6
		if o.network {
			saves = 0.75
		}
		if !slices.ContainsFunc(kept, func(k tried) bool { return k.nodes < o.nodes && o.price > saves*k.price }) {
			kept = append(kept, o)
		}
	}
	cheapest := math.Inf(1)
	for _, o := range kept {
		cheapest = min(cheapest, o.price)
	}
	return slices.DeleteFunc(kept, func(o tried) bool { return o.price > 1.25*cheapest+0.005 })
}

// repaid drops options whose surcharge per hour saves too little per token. It starts with the cheapest hour: each
// dearer option must cost a tenth less per token than the one kept before it.
func repaid(options []tried) []tried {
	perToken := func(o tried) float64 {
		if o.pace.OutputTokensPerSecond <= 0 || o.price == math.MaxFloat64 {
			return math.Inf(1)
		}
		return o.price / o.pace.OutputTokensPerSecond
	}
	slices.SortFunc(options, func(a, b tried) int { return cmp.Or(a.score.compare(b.score), cmp.Compare(a.name, b.name)) })
	var kept []tried
	for _, o := range options {
		if len(kept) == 0 || o.price == kept[len(kept)-1].price || perToken(o) <= 0.9*perToken(kept[len(kept)-1]) {
			if len(kept) > 0 && o.price == kept[len(kept)-1].price && perToken(o) > perToken(kept[len(kept)-1]) {
				continue
			}
			kept = append(kept, o)
		}
	}
	return kept
}

// score orders options before the tie-break by name.
type score struct {
	price       float64
	network     bool
	nodes, gpus int
	machineGPUs int
}

func (s score) compare(other score) int {
	networked := func(s score) int {
		if s.network {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(s.price, other.price), cmp.Compare(networked(s), networked(other)),
		cmp.Compare(s.nodes, other.nodes), cmp.Compare(s.gpus, other.gpus), cmp.Compare(s.machineGPUs, other.machineGPUs))
}

// tried is the result for one machine type.
type tried struct {
	score
	name string
	pace physics.Pace
	// lowered means less than the planned load, short means shorter sequences.
	lowered, short bool
	class          string
}

func (o tried) isWhole() bool { return !o.lowered }

// compare orders options by the objective, unknown figures last.
func (o tried) compare(other tried, by v1beta1.OptimizeFor) int {
	unknownLast := func(x float64, known bool) float64 {
		if !known {
			return math.Inf(1)
		}
		return x
	}
	key := func(o tried) float64 {
		switch by {
		case v1beta1.OptimizeForLatency:
			return unknownLast(o.pace.TPOT, o.pace.TPOT > 0)
		case v1beta1.OptimizeForThroughput, v1beta1.OptimizeForBalanced:
			speed := o.pace.OutputTokensPerSecond
			return unknownLast(o.price/3600/speed*1e6, speed > 0 && o.price < math.MaxFloat64)
		default:
			return 0
		}
	}
	return cmp.Or(cmp.Compare(key(o), key(other)), o.score.compare(other.score))
}

// excluded returns a machine's price per hour, infinite if unknown, and whether the request may use the machine at all.
func excluded(s sku.SKU, g sku.GPU, c planner.Constraints) (price float64, sold bool) {
	price, sold = offer(s, c)
	named := slices.Contains(c.InstanceTypes, s.Name)
	if s.Unusable != "" || c.GPUs > s.GPUs || len(c.InstanceTypes) > 0 && !named || g.ComputeCapability == "7.0" ||
		len(c.Accelerators) > 0 && g.Class != "Class-0" && g.Name != "GPU-1" ||
		price == math.MaxFloat64 && (c.MaxHourlyPrice > 0 || !named) {
		return 0, false
	}
	return price, sold
}

// offer returns the lowest price of a machine among the allowed capacity types.
func offer(s sku.SKU, c planner.Constraints) (price float64, sold bool) {
	onDemand, priced := s.Prices["eastus"]
	if !priced {
		onDemand = math.MaxFloat64
	}
	spot, priced := s.SpotPrices["eastus"]
	if !priced {
		spot = onDemand
	}
	asked := func(t v1beta1.CapacityType) bool {
		return slices.Contains(c.CapacityTypes, t) || len(c.CapacityTypes) == 0 && t != v1beta1.CapacitySpot
	}
	may := func(t v1beta1.CapacityType) bool {
		return asked(t) && !slices.ContainsFunc(c.Excluded, func(e planner.Exclusion) bool {
			return e.InstanceType == s.Name && (e.CapacityType == "" || e.CapacityType == t)
		})
	}
	var prices []float64
	if s.Reserved && may(v1beta1.CapacityReserved) {
		prices = append(prices, 0)
	}
	if s.Spot && may(v1beta1.CapacitySpot) {
		prices = append(prices, spot)
	}
	if may(v1beta1.CapacityOnDemand) {
		prices = append(prices, onDemand)
	}
	// The cloud may have an undeclared reservation, if the user wants reserved and not on demand.
	if len(prices) == 0 && may(v1beta1.CapacityReserved) && !asked(v1beta1.CapacityOnDemand) {
		prices = append(prices, onDemand)
	}
	if len(prices) == 0 {
		return 0, false
	}
	return slices.Min(prices), true
}

// tensorTrial tries one machine type.
type tensorTrial struct {
	sku                 sku.SKU
	gpu                 sku.GPU
	engine              *catalog.Engine
	request             *planner.Request
	length, concurrency int
	price               float64
	borderline          bool
	// lowering allows lowering the objectives that the user left open.
	lowering bool
	// shortest is the least length if the user set none; 0 if sequences are not shortened.
	shortest int
	// mostNodes is another limit of machines; 0 means none.
	mostNodes int
	// slow and lacking report whether layouts on the current number of machines were too slow, or lacked memory.
	slow, lacking bool
}

// tensorLayout is a possible layout.
type tensorLayout struct {
	tp, stages, replicas int
	whole                bool
	lowered, short       bool
	linked               bool
	pace                 physics.Pace
}

// best tries one machine, then more. On each number it tries all forms in the order of preference.
func (t *tensorTrial) best(formats map[string]model.Quantization) (tried, bool) {
	m, c := t.request.Model, t.request.Constraints
	most := t.mostStages()
	if t.sku.NetworkGBs == 0 {
		most = min(most, 2)
	}
	for _, limit := range []int{c.MaxNodes, t.mostNodes} {
		if limit > 0 {
			most = min(most, limit)
		}
	}
	for nodes := 1; nodes <= most; nodes++ {
		t.slow, t.lacking = false, false
		for i := range 2 * len(m.Artifacts) {
			a := m.Artifacts[i%len(m.Artifacts)]
			t.lowering = i >= len(m.Artifacts)
			if !a.Native && !slices.Contains(c.AllowedQuantizations, a.Quantization) ||
				a.Quantization == "bf16" && t.gpu.ComputeCapability == "7.5" {
				continue
			}
			weights := physics.NewModel(m.Shape, physics.Weights{
				Format: formats[a.Quantization], Bytes: a.LoadedBytes(), Basis: v1beta1.BasisExact,
			})
			for _, cache := range append([]string{""}, c.AllowedKVCacheTypes...) {
				if cache != "" && t.gpu.ComputeCapability == "7.5" {
					continue
				}
				if l, ok := t.layout(weights, nodes, cache); ok {
					return t.option(l, nodes), true
				}
			}
		}
		// More machines bring memory but little speed, so the planner tries only a few for speed.
		if !t.lacking && (!t.slow || nodes >= 4) && nodes >= c.Engine.PipelineParallel {
			break
		}
	}
	return tried{}, false
}

// option returns a layout with its price.
func (t *tensorTrial) option(l tensorLayout, nodes int) tried {
	price := t.price
	if price < math.MaxFloat64 {
		price = math.Round(price*float64(nodes)*1e6) / 1e6
	}
	return tried{name: t.sku.Name, class: t.gpu.Class, pace: l.pace, lowered: l.lowered, short: l.short, score: score{
		price: price, network: t.sku.NetworkGBs > 0, nodes: nodes, gpus: l.tp * l.stages * l.replicas, machineGPUs: t.sku.GPUs,
	}}
}

func (t *tensorTrial) mostStages() int {
	return max((2*t.request.Model.Shape.Layers+2)/3, t.request.Constraints.Engine.PipelineParallel)
}

// splits reports whether a model's layers can be cut into a number of parts.
func splits(s *model.Shape, tp int) bool {
	keep := false
	possible, _ := shares(s, tensorLayout{tp: tp, stages: 1, replicas: 1}, &keep)
	return possible
}

// layout returns the best layout of a form on a number of machines.
func (t *tensorTrial) layout(weights *physics.Model, nodes int, cache string) (best tensorLayout, ok bool) {
	c := t.request.Constraints
	var fastest tensorLayout
	usual := func(n int) bool { return c.GPUs > 0 || n&(n-1) == 0 }
	set := func(set, n int) bool { return set == n || set == 0 && usual(n) }
	for tp := 1; tp <= t.sku.GPUs; tp++ {
		for stages := 1; tp*stages <= t.sku.GPUs && stages*nodes <= t.mostStages(); stages++ {
			for replicas := 1; tp*stages*replicas <= t.sku.GPUs && (replicas == 1 || nodes == 1); replicas++ {
				if c.Engine.TensorParallel == 0 && tp&(tp-1) != 0 || c.Engine.TensorParallel > 0 && c.Engine.TensorParallel != tp || !set(c.Engine.DataParallel, replicas) ||
					c.Engine.PipelineParallel == 0 && !usual(stages) ||
					c.Engine.PipelineParallel > 0 && c.Engine.PipelineParallel != nodes*stages ||
					c.GPUs > 0 && tp*stages*replicas != c.GPUs {
					continue
				}
				l := tensorLayout{tp: tp, stages: stages, replicas: replicas}
				possible, whole := shares(&t.request.Model.Shape, l, c.Engine.ExpertParallel)
				if l.whole = whole; !possible || !t.try(weights, &l, nodes, cache) {
					continue
				}
				l.linked = t.sku.LinkedGPUs >= t.sku.GPUs
				if fastest.tp == 0 || l.faster(fastest) {
					fastest = l
				}
				if !ok || l.compare(best, t.request.Objectives.OptimizeFor) < 0 {
					best, ok = l, true
				}
			}
		}
	}
	e := c.Engine
	if ok && best.gpus() < t.sku.GPUs && c.GPUs+e.TensorParallel+e.PipelineParallel+e.DataParallel == 0 && fastest.faster(best) {
		return fastest, true // GPUs that are paid for do not idle if they make it faster
	}
	return best, ok
}

func (l tensorLayout) gpus() int { return l.tp * l.stages * l.replicas }

// faster reports whether a layout yields more tokens per second than another one, if both speeds are known.
func (l tensorLayout) faster(other tensorLayout) bool {
	step := func(l tensorLayout) bool { return l.whole && l.replicas > 1 }
	switch {
	case step(l) != step(other):
		return step(other)
	case l.lowered != other.lowered:
		return other.lowered
	default:
		return cmp.Or(cmp.Compare(other.pace.OutputTokensPerSecond, l.pace.OutputTokensPerSecond),
			cmp.Compare(l.gpus(), other.gpus()), cmp.Compare(other.tp, l.tp)) < 0
	}
}

// compare orders layouts on the same machines.
func (l tensorLayout) compare(other tensorLayout, by v1beta1.OptimizeFor) int {
	gpus := func(l tensorLayout) int { return l.tp * l.stages * l.replicas }
	inStep, each := 0, func(l tensorLayout) int {
		if l.whole {
			return gpus(l)
		}
		return l.tp * l.stages
	}
	if l.whole && l.replicas > 1 {
		inStep++
	}
	if other.whole && other.replicas > 1 {
		inStep--
	}
	stages := 0
	if l.linked {
		stages = cmp.Compare(l.stages, other.stages)
	}
	order := cmp.Or(inStep, cmp.Compare(each(l), each(other)), cmp.Compare(other.replicas, l.replicas), stages,
		cmp.Compare(l.pace.TPOT, other.pace.TPOT), cmp.Compare(other.tp, l.tp))
	switch by {
	case v1beta1.OptimizeForLatency:
		order = cmp.Or(inStep, cmp.Compare(l.pace.TPOT, other.pace.TPOT), cmp.Compare(gpus(l), gpus(other)), cmp.Compare(other.tp, l.tp))
	case v1beta1.OptimizeForThroughput:
		order = cmp.Or(cmp.Compare(other.pace.OutputTokensPerSecond, l.pace.OutputTokensPerSecond),
			cmp.Compare(gpus(l), gpus(other)), cmp.Compare(other.tp, l.tp))
	}
	return order
}

// try reports whether a layout holds the model and is fast enough. It sets the layout's speed.
func (t *tensorTrial) try(weights *physics.Model, l *tensorLayout, nodes int, cache string) bool {
	told := t.request.Constraints.Engine
	length, concurrency := t.length, t.concurrency
	sequences := func() int { return (concurrency + l.replicas - 1) / l.replicas }
	over := physics.Layout{
		TP: l.tp, PP: nodes * l.stages, DP: l.replicas, EP: l.whole, Nodes: nodes, LinkedGPUs: t.sku.LinkedGPUs, NetworkGBs: t.sku.NetworkGBs,
	}
	serving := func(seats, batch int) (physics.Serving, physics.Budget, float64) {
		s := physics.Serving{
			MaxModelLen: length, MaxNumSeqs: seats, MaxBatchedTokens: max(batch, seats), KVType: cache, Eager: told.Eager,
			Utilization: cmp.Or(told.GPUMemoryUtilization, min(math.Floor((1-1.5/t.gpu.MemoryGiB)*100)/100, 0.95)),
		}
		b := physics.Memory(weights, &t.gpu, over, &s, t.engine)
		return s, b, b.KVCache - weights.KVNeed(over, &s, length, sequences(), t.engine)
	}
	usual := 2048
	if t.gpu.MemoryGiB >= 70 {
		usual = 8192
	}
	least := func() (physics.Serving, physics.Budget, float64) {
		return serving(cmp.Or(told.MaxNumSeqs, sequences()), cmp.Or(told.MaxBatchedTokens, 2048))
	}
	if t.lowering {
		concurrency = fewer(*t.request, concurrency, func(at int) bool {
			concurrency = at
			_, _, spare := least()
			t.borderline = t.borderline || math.Abs(spare) < 1e-6
			return spare >= 0
		})
		_, _, spare := least()
		for down := length; spare < 0 && t.shortest > 0 && length > t.shortest; _, _, spare = least() {
			down = (down - 1) / 256 * 256
			length = max(down, t.shortest)
		}
	}
	l.short = length < t.length
	l.lowered = l.short || concurrency < t.concurrency
	fewest := cmp.Or(told.MaxNumSeqs, sequences())
	s, b, spare := least()
	t.borderline = t.borderline || math.Abs(spare) < 1e-6
	if spare < 0 {
		t.lacking = true
		return false
	}
	for _, batch := range []int{usual, 2048} { // smaller batches if the usual ones are too slow
		seats := 256
		for seats < sequences() {
			seats *= 2
		}
		for seats = cmp.Or(told.MaxNumSeqs, seats); ; seats = max(seats/2, fewest) {
			if s, b, spare = serving(seats, cmp.Or(told.MaxBatchedTokens, batch)); spare >= 0 {
				break
			}
			if s, b, spare = serving(seats, cmp.Or(told.MaxBatchedTokens, 2048)); spare >= 0 {
				break
			}
		}
		d := physics.Deployment{GPU: &t.gpu, Layout: over, Serving: &s, Budget: &b, Engine: t.engine}
		if l.pace = t.judge(weights, &d, s.MaxNumSeqs*l.replicas, length, concurrency); t.keepsFloors(l.pace) {
			return true
		}
	}
	t.slow = true
	return false
}

// judge returns the speed under the typical load. For Throughput without a concurrency, it is the speed under the
// largest load that keeps the floors.
func (t *tensorTrial) judge(weights *physics.Model, d *physics.Deployment, seats, length, concurrency int) physics.Pace {
	load := typical(*t.request)
	load.Output = max(1, min(load.Output, length/2))
	load.Input = max(1, min(load.Input, length-load.Output))
	load.Concurrency = cmp.Or(load.Concurrency, concurrency)
	pace := weights.Speed(d, load)
	if usual := load; t.request.Objectives.Concurrency == 0 && load.Concurrency < t.concurrency {
		usual.Concurrency = t.concurrency
		if p := weights.Speed(d, usual); !p.Queues && t.keepsFloors(p) {
			load, pace = usual, p
		}
	}
	if t.request.Objectives.OptimizeFor != v1beta1.OptimizeForThroughput || t.request.Objectives.Concurrency > 0 {
		return pace
	}
	for load.Concurrency *= 2; load.Concurrency <= seats && pace.TPOT > 0; load.Concurrency *= 2 {
		more := weights.Speed(d, load)
		if more.Queues || !t.keepsFloors(more) || more.OutputTokensPerSecond <= pace.OutputTokensPerSecond {
			break
		}
		pace = more
	}
	return pace
}

// keepsFloors reports whether a speed keeps the user's floors, or else the usual ones. An unknown speed misses the
// user's.
func (t *tensorTrial) keepsFloors(p physics.Pace) bool {
	o := t.request.Objectives
	if p.TPOT == 0 {
		return o.TimeToFirstToken == 0 && o.TimePerOutputToken == 0
	}
	in := func(limit time.Duration) float64 { return limit.Seconds() * 1000 * kept(p.Basis) }
	return p.TTFT <= in(cmp.Or(o.TimeToFirstToken, 5*time.Second)) && p.TPOT <= in(cmp.Or(o.TimePerOutputToken, 100*time.Millisecond))
}
