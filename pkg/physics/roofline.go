// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"math"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// roofline computes the times of a model's steps on GPUs. All times are in seconds. All rates are in bytes or
// operations per second that kernels reach.
type roofline struct {
	w     *work
	speed *catalog.Speed
	sum   reducer
	tp    int
	// ranks is the number of replicas that compute every step together, and gather exchanges tokens between them.
	// shared is the number of GPUs that share the experts' work.
	ranks, shared float64
	gather        reducer
	// fullest is the number of standard deviations by which the work of the busiest GPU exceeds the mean; 0 if experts
	// are cut.
	fullest float64
	// blocks is the number of rows that each expert multiplies in addition to those of its tokens, and blockRate the
	// rate in operations per second.
	blocks, blockRate float64
	// linear, plain and experts are the rates of the kernels.
	linear, plain, experts rates
	// cache is the bandwidth of attention in bytes per second, attention its rate of operations over a prompt.
	cache, attention float64
	// padding is the ratio of the heads that kernels of sparse attention compute on each GPU to its share of the heads.
	padding  float64
	elements elements
	hidden   float64
	// step and layers are the overheads of a step and of all its layers.
	step      float64
	layers    float64
	allLayers float64
	// input and output are the tokens of a sequence.
	input, output float64
}

// rates are the bandwidth in bytes and the compute rate in operations per second of one kernel.
type rates struct {
	bandwidth, compute float64
}

// sixteen returns the peak in 16 bits. Older GPUs have it only for fp16.
func sixteen(gpu *sku.GPU) float64 {
	return max(gpu.PeakTFLOPs["bf16"], gpu.PeakTFLOPs["fp16"])
}

// rooflineOf looks up the constants of a deployment. It returns false if the hardware's peak is unknown.
func (m *Model) rooflineOf(d *Deployment) (roofline, bool) {
	speed, gpu := &d.Engine.Speed, d.GPU
	peak := sixteen(gpu)
	if peak <= 0 || gpu.BandwidthGBs <= 0 {
		return roofline{}, false
	}
	r := roofline{
		w: &m.work, speed: speed, tp: max(d.Layout.TP, 1), hidden: float64(m.shape.Hidden),
		sum: reducerOf(gpu, &d.Layout, speed), elements: m.elementsOf(d.Serving.KVType), allLayers: float64(m.shape.Layers),
		ranks: float64(d.Layout.ranks()), shared: float64(d.Layout.group()),
	}
	if r.ranks > 1 {
		together := d.Layout
		together.TP, together.DP = d.Layout.group(), 1
		r.gather = reducerOf(gpu, &together, speed)
	}
	if d.Layout.EP {
		r.fullest = highest(r.shared)
	}
	r.plain = ratesOf(gpu, speed, speed.Dense, defaultKernel, "")
	r.linear = r.plain
	if m.quantisesLinear() {
		r.linear = ratesOf(gpu, speed, speed.Dense, m.weights.Format.Name, m.weights.Format.Peak)
	}
	if len(m.work.experts) > 0 {
		r.experts = ratesOf(gpu, speed, speed.Experts, m.weights.Format.Name, m.weights.Format.Peak)
		r.addBlocks(m, d)
	}
	g := generation(gpu, speed)
	r.cache = gpu.BandwidthGBs * giga * speed.KVBandwidth * g.Bandwidth
	r.attention = peak * tera * speed.Attention * g.Compute
	if former := speed.FormerCache; former.Capability == gpu.ComputeCapability && r.elements.each < activationBytes &&
		isFormer(d.Serving.Version, former.Until) {
		r.cache *= former.Share
	}
	if m.shape.Sinks && g.Sinks > 0 {
		r.attention *= g.Sinks
	}
	r.padding = padding(m, d)
	r.addOverheads(m, d)
	return r, true
}

// padding returns the ratio of the heads that kernels of sparse attention compute on each GPU to its share of the heads.
func padding(m *Model, d *Deployment) float64 {
	if mla := m.shape.MLA; mla == nil || mla.IndexHeads == 0 {
		return 1
	}
	tp := max(d.Layout.TP, 1)
	heads := ceilDiv(m.shape.Heads, tp)
	for i := range d.Engine.SparseAttention {
		if s := &d.Engine.SparseAttention[i]; s.Capability == d.GPU.ComputeCapability && s.Heads > 0 {
			heads = roundUp(heads, s.Heads)
		}
	}
	return float64(heads*tp) / float64(m.shape.Heads)
}

// addOverheads computes the overheads of a step and of its layers.
func (r *roofline) addOverheads(m *Model, d *Deployment) {
	speed := &d.Engine.Speed
	r.step = speed.StepMicros * micro
	if former := speed.Former; isFormer(d.Serving.Version, former.Until) && !d.Serving.Async {
		r.step = former.StepMicros * micro
	}
	perLayer := 0.0
	if len(m.work.experts) > 0 {
		expert, _ := kernelOf(speed.Experts, m.weights.Format.Name).On(d.GPU.ComputeCapability)
		perLayer = expert.LayerMicros
	}
	half := speed.LayerMicros / 2
	r.layers = (r.w.halves*half + (r.w.expertLayers-r.w.bare)*perLayer + r.w.bare*bare(perLayer, half)) * micro
	if r.tp > 1 {
		r.layers += r.w.sums / 2 * speed.ParallelMicros * micro
	}
	if d.Serving.Eager {
		r.layers += (r.w.halves/2 + r.w.expertLayers - r.w.bare/2) * speed.EagerMicros * micro
	}
}

// bare returns the overhead of a layer that has experts but no attention. layer is the overhead of a layer with both,
// and half that of the attention or the MLP in a layer without experts. Experts take at least as long as an MLP, but not
// longer than the whole layer.
func bare(layer, half float64) float64 {
	return max(layer-half, min(layer, half))
}

// addBlocks is for releases that multiply whole blocks of rows by every expert. These are large dense multiplications
// and run at their rate.
func (r *roofline) addBlocks(m *Model, d *Deployment) {
	former := &d.Engine.Speed.FormerBlocks
	if former.Format != m.weights.Format.Name || former.Capability != d.GPU.ComputeCapability || r.shared >= float64(former.WithoutGPUs) ||
		!isFormer(d.Serving.Version, former.Until) || older(d.Serving.Version, former.Since) {
		return
	}
	r.blocks = float64(former.Rows - 1)
	r.blockRate = ratesOf(d.GPU, &d.Engine.Speed, d.Engine.Speed.Dense, former.Format, m.weights.Format.Peak).compute
}

// isFormer reports whether version is set and older than until; false without until.
func isFormer(version, until string) bool {
	return until != "" && version != "" && older(version, until)
}

const (
	giga = 1e9
	tera = 1e12
	// defaultKernel is for matrices of 16 bits, and for others that are decompressed to 16 bits.
	defaultKernel = "default"
)

// quantisesLinear reports whether the format covers all matrices and not only the experts.
func (m *Model) quantisesLinear() bool {
	return m.weights.Format.Scope != "experts"
}

// kernelOf returns the kernel of a format, or else the default one.
func kernelOf(kernels map[string]catalog.Kernel, format string) catalog.Kernel {
	if k, ok := kernels[format]; ok {
		return k
	}
	return kernels[defaultKernel]
}

// generation returns the factors of a GPU in comparison to others: of its class if the law names it, or else of its
// compute capability. They are 1 by default.
func generation(gpu *sku.GPU, speed *catalog.Speed) catalog.Generation {
	if g, ok := speed.Generations[gpu.Kind()]; ok {
		return g
	}
	if g, ok := speed.Generations[gpu.ComputeCapability]; ok {
		return g
	}
	return catalog.Generation{Bandwidth: 1, Compute: 1, NarrowCompute: 1}
}

// ratesOf returns the rates of a kernel on a GPU. If the GPU cannot compute in the type of the weights, kernels
// decompress them to 16 bits and multiply these. The decompression costs no time.
func ratesOf(gpu *sku.GPU, speed *catalog.Speed, kernels map[string]catalog.Kernel, format, peakType string) rates {
	g := generation(gpu, speed)
	k, own := kernelOf(kernels, format).On(gpu.ComputeCapability)
	peakType = cmp.Or(own, peakType)
	out := rates{bandwidth: gpu.BandwidthGBs * giga * k.Bandwidth * g.Bandwidth}
	share, peak := k.Compute*g.Compute, sixteen(gpu)
	switch narrow := gpu.PeakTFLOPs[peakType]; {
	case peakType == "" || peakType == "bf16" || peakType == "fp16":
	case narrow > 0:
		share, peak = k.Compute*g.NarrowCompute, narrow
	default:
		share = kernels[defaultKernel].Compute * g.Compute
	}
	out.compute = peak * tera * share
	return out
}

// matrices returns the time to multiply a number of tokens by the model's matrices. It reads only the experts that the
// tokens choose. all is the number of tokens of all ranks, because the experts multiply those.
func (r *roofline) matrices(tokens, all float64) float64 {
	tp := float64(r.tp)
	bytes, params := r.w.linear.on(tp)
	memory, compute := bytes/r.linear.bandwidth, 2*params*tokens/r.linear.compute
	bytes, params = r.w.plain.on(tp)
	memory += (bytes + r.w.output/tp) / r.plain.bandwidth
	compute += 2 * params * tokens / r.plain.compute
	time := either(memory, compute)
	if len(r.w.experts) == 0 {
		return time
	}
	memory, compute = 0, 0
	blocks := 0.0
	for i := range r.w.experts {
		e := &r.w.experts[i]
		hit, chosen := e.hit(all, r.speed.Skew), e.topK*all
		if r.fullest > 0 {
			hit, chosen = r.ofFullest(e, hit, chosen)
		}
		memory += e.layers * hit * e.bytes
		compute += 2 * e.layers * chosen * e.params
		blocks += 2 * e.layers * e.experts * r.blocks * e.params
	}
	compute /= r.experts.compute
	if blocks > 0 {
		compute += blocks / r.blockRate
	}
	return time + either(memory/r.shared/r.experts.bandwidth, compute/r.shared)
}

// ofFullest raises the number of experts read and the number of times they are chosen, as if every GPU had as much work
// as the busiest one, because the others wait for it. All GPUs have the same number of experts. By chance, some have
// more of the chosen and of the popular experts.
func (r *roofline) ofFullest(e *expertWork, hit, chosen float64) (fullestHit, fullestChosen float64) {
	own, others := e.experts/r.shared, 1-1/r.shared
	mean := hit / r.shared
	mean += r.fullest * math.Sqrt(mean*max(1-mean/own, 0)*others)
	spread := math.Sqrt((r.shared/chosen + r.speed.Skew/own) * others)
	return min(mean*r.shared, e.experts), min(chosen*(1+r.fullest*spread), chosen*r.shared)
}

// highest returns the approximate expected maximum of a number of standard normal deviates (Blom, 1958).
func highest(of float64) float64 {
	return math.Sqrt2 * math.Erfinv(2*(of-0.375)/(of+0.25)-1)
}

// either returns a smooth maximum of two overlapping times: the fourth root of the sum of their fourth powers.
func either(a, b float64) float64 {
	a, b = a*a, b*b
	return math.Sqrt(math.Sqrt(a*a + b*b))
}

// sums returns the time to sum the parts of a number of tokens in all layers. Ranks gather all tokens before the
// experts and scatter the sums after them (allgather_reducescatter, vLLM's default). Together, these two take as long
// as one sum over all GPUs (AgRsAll2AllManager in vllm/distributed/device_communicators/all2all.py).
func (r *roofline) sums(tokens, all float64) float64 {
	if r.ranks <= 1 {
		return r.w.sums * r.sum.seconds(tokens*r.hidden*activationBytes)
	}
	return (r.w.sums-r.w.expertLayers)*r.sum.seconds(tokens*r.hidden*activationBytes) +
		r.w.expertLayers*r.gather.seconds(all*r.hidden*activationBytes)
}

// activationBytes is the size of an activation's element.
const activationBytes = 2

// decodeTime returns the time of a step that computes one token for each of a number of sequences.
func (r *roofline) decodeTime(sequences float64) float64 {
	read := r.cached()
	all := sequences * r.ranks
	time := r.matrices(sequences, all) + sequences*max(read/r.cache, r.sparse()/r.attention) + r.sums(sequences, all) + r.layers
	return time + r.step + r.speed.SequenceMicros*sequences*micro
}

// sparse returns the operations of sparse attention for one query on each GPU. Its kernels compute the same heads and
// tokens for every query, so decoding takes as long as a token of a prompt.
func (r *roofline) sparse() float64 {
	operations := 0.0
	for i := range r.w.mixers {
		if m := &r.w.mixers[i]; m.fixed {
			operations += m.pair * m.chosen
		}
	}
	return operations * r.padding / float64(r.tp)
}

// prompting computes the times of prompts in the steps of a replica, for any number of prompts together.
type prompting struct {
	*roofline
	// chunk is the number of prompt tokens in a step.
	chunk float64
	// attention is the number of operations of attention over one prompt.
	attention float64
	// sequences is the number of decoding sequences of one rank, all of all ranks. matrices and sums are the times for
	// them.
	sequences, all float64
	matrices, sums float64
	// full is the time of a step with one chunk and nothing else. saved is the part of it that a step of the sequences
	// shares. time sets both at first use.
	full, saved float64
}

// promptingAt prepares prompts that join steps with a number of sequences of each rank.
func (r *roofline) promptingAt(chunk, sequences float64) prompting {
	split, whole := 0.0, 0.0
	for i := range r.w.mixers {
		m := &r.w.mixers[i]
		if !m.fixed {
			split += m.pair * m.pairs(r.input)
		}
		whole += m.index * r.input * r.input / 2
	}
	// Short prompts leave parts of the GPU without work in attention.
	short := 1 + r.speed.AttentionTokens/max(r.input, 1)
	p := prompting{
		roofline: r, chunk: chunk, attention: short*(split/float64(r.tp)+whole) + r.input*r.sparse(),
		sequences: sequences, all: sequences * r.ranks,
	}
	p.matrices, p.sums = r.matrices(p.sequences, p.all), r.sums(p.sequences, p.all)
	return p
}

// time returns the time of a number of prompts together, chunk by chunk. shared is the part of it that steps of the
// sequences share, and longest the time of the longest chunk in such a step.
func (p *prompting) time(prompts float64) (time, shared, longest float64) {
	attention := prompts * p.attention / p.roofline.attention
	tokens := prompts * p.input
	chunks := max(math.Ceil(tokens/p.chunk-roundingError)-1, 0)
	time, shared = p.chunkTime(tokens - chunks*p.chunk)
	longest = time - shared + attention
	if chunks > 0 {
		if p.full == 0 {
			p.full, p.saved = p.chunkTime(p.chunk)
		}
		time, shared, longest = time+chunks*p.full, shared+chunks*p.saved, p.full-p.saved+attention/chunks
	}
	return time + attention, shared, longest
}

// roundingError is for numbers of prompts that fill a chunk exactly.
const roundingError = 1e-9

// chunkTime returns the time of a number of prompt tokens without attention, and the part of it that a step of the
// sequences shares.
func (p *prompting) chunkTime(tokens float64) (time, shared float64) {
	alone := p.roofline.matrices(tokens, tokens) + p.roofline.sums(tokens, tokens)
	joined := p.roofline.matrices(p.sequences+tokens, p.all+tokens) + p.roofline.sums(p.sequences+tokens, p.all+tokens) -
		p.matrices - p.sums
	return alone + p.allLayers*p.speed.PromptMicros*micro, min(max(alone-joined, 0), alone)
}
