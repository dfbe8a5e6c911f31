// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"math"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Deployment is an engine on GPUs.
type Deployment struct {
	GPU     *sku.GPU
	Layout  Layout
	Serving *Serving
	// Budget of the memory limits the number of sequences at once.
	Budget *Budget
	Engine *catalog.Engine
}

// Speed predicts the speed of a deployment under a number of open requests. Unless the load is open, each client sends
// its next request when it has the answer, and all clients start at once, as in benchmarks. The pace is zero if the
// hardware's peak is unknown, and if not even one sequence fits; in the second case it queues.
//
// A step takes the time to read the weights and the KV cache of the sequences, or the time to compute, whichever is
// longer. It reads only the experts that its tokens choose, at random. Sums over GPUs and overheads are added. Prompts
// join the steps of running sequences and lengthen them: so a sequence waits for the prompts of others.
func (m *Model) Speed(d *Deployment, load Load) Pace {
	if load.Rate > 0 {
		return atRate(load, func(closed Load) Pace { return m.Speed(d, closed) })
	}
	out := Pace{Basis: v1beta1.BasisEstimated}
	r, known := m.rooflineOf(d)
	if !known || load.Concurrency < 1 || load.Output < 1 {
		return out
	}
	replicas := float64(min(max(d.Layout.DP, 1), load.Concurrency))
	open := float64(load.Concurrency) / replicas
	r.input, r.output = float64(max(load.Input, 1)), float64(load.Output)
	serving := d.Serving.settled(d.GPU, &d.Engine.Profile)
	seats := m.seats(d, &serving, r.input+r.output/2)
	out.Queues = seats < 1 || !m.holds(d, &serving, load.Input+load.Output, int(math.Ceil(open)))
	if seats < 1 {
		return out
	}
	running := min(open, seats)
	p := pipelineOf(d, m.shape.Layers)
	s := steady{roofline: &r, pipeline: &p, joining: r.promptingAt(chunkOf(d, &serving), running/p.batches), open: load.Open}
	s.settle(running)
	first, answer := s.first(running), r.output*s.token
	first = max(first, running*s.work(running)-answer)
	rate := running / (first + answer)
	out.OutputTokensPerSecond = replicas * rate * r.output
	// By Little's law, the open sequences wait except for the running ones. A sequence waits for room for its prompt.
	// If the engine preempts it because there is no room for its answer, it waits for that room too.
	wait := (open - running) / rate
	early := r.input / (r.input + r.output/2)
	out.TTFT = (first + wait*early) * 1e3
	out.TPOT = (s.token + wait*(1-early)/r.output) * 1e3
	return out
}

// steady is a replica under a constant load.
type steady struct {
	*roofline
	*pipeline
	// joining computes the times of arriving prompts.
	joining prompting
	// open: requests arrive at random.
	open bool
	// step is the time to compute a token of each decoding sequence, token the time between two tokens of one sequence.
	step, token float64
	// prompts is the number of prompts computed together, in one step or in successive chunks, and prompt the time of
	// each. shared is the time they save together by joining a step, because it reads the weights once. longest is the
	// time of their longest chunk in such a step.
	prompts, prompt, shared, longest float64
}

// settle finds the times for a number of running sequences, some of which are still in their prompts. If ranks step
// together, all wait for a prompt of any rank. settle assumes that prompts of different ranks never coincide, because
// their number is unknown.
func (s *steady) settle(running float64) {
	decoding := running
	for range rounds {
		s.step = s.stepTime(s.roofline, decoding)
		all := decoding * s.ranks
		others := (all - min(all, 1)) / s.output
		s.pack(others)
		s.token = s.step + (others*s.prompt-min(others/s.prompts, 1)*s.shared)/s.batches
		answer := s.output * s.token
		decoding = max(running*answer/(s.first(running)+answer), min(running, 1))
	}
}

// pack finds how many prompts are computed together, and the times, if a number of prompts arrive in each step. Prompts
// that arrive during one step join the next one, up to the tokens of a step. Arrivals are random, so a step with any of
// n per step has n / (1 - exp(-n)) of them on average.
func (s *steady) pack(arrivals float64) {
	prompts := 1.0
	if arrivals > 0 {
		prompts = min(-arrivals/math.Expm1(-arrivals), max(s.joining.chunk/s.input, 1))
	}
	if prompts == s.prompts {
		return // if each prompt fills a step, the times stay
	}
	time, shared, longest := s.joining.time(prompts)
	s.prompts, s.prompt, s.shared, s.longest = prompts, time/prompts, shared, longest
}

// rounds of settle reach an error of 0.1 %, because sequences spend little of their time in prompts.
const rounds = 3

// work returns the shortest time that a replica computes for each request while a number of sequences run, as if all of
// them decoded together. A replica computes one step at a time, so it cannot finish requests faster: prompts that arrive
// together wait for one another.
func (s *steady) work(running float64) float64 {
	return s.ranks*(s.prompt-s.shared/s.prompts)/s.batches + s.output*s.step/running
}

// first returns the time to first token while a number of sequences run.
func (s *steady) first(running float64) float64 {
	// The chunks of a prompt follow one another through the stages, so the time of the longest one counts in every
	// stage.
	own := (s.prompt*s.prompts - s.shared + (s.batches-1)*s.longest) / s.batches
	law := s.speed
	before := law.Burst * running * s.ranks
	if s.open {
		before = s.before(running * s.ranks)
	}
	return law.FirstMicros*micro + law.FirstSteps*s.step + own + before*s.prompt/s.batches + s.hops(s.input, s.roofline)
}

// before returns the number of prompts that a random arrival waits for. If prompts take a share rho of the time and are
// equally long, it is rho / (2 - 2 rho) (the queue M/D/1), but at most all others.
func (s *steady) before(running float64) float64 {
	share := running * s.prompt / s.batches / (s.output * s.token)
	most := max(running-1, 0)
	if share >= 1 {
		return most
	}
	return min(share/(2-2*share), most)
}

// chunkOf returns the number of prompt tokens that an engine computes in a step.
func chunkOf(d *Deployment, serving *Serving) float64 {
	if d.Engine.Split == catalog.SplitLayers && d.Serving.MaxBatchedTokens <= 0 {
		return float64(max(d.Engine.Memory.BatchTokens, 1))
	}
	return float64(serving.MaxBatchedTokens)
}

// holds reports whether a replica has room for a number of sequences up to their ends. If they start together, they
// also end together.
func (m *Model) holds(d *Deployment, serving *Serving, length, sequences int) bool {
	if d.Engine.Split == catalog.SplitLayers {
		return float64(sequences) <= d.Budget.MaxConcurrency
	}
	return sequences <= serving.MaxNumSeqs && m.KVNeed(d.Layout, serving, length, sequences, d.Engine) <= d.Budget.KVCache
}

// seats returns the number of sequences of a length that a replica runs at once, limited by its settings and by the KV
// cache.
func (m *Model) seats(d *Deployment, serving *Serving, length float64) float64 {
	if d.Engine.Split == catalog.SplitLayers {
		return math.Floor(d.Budget.MaxConcurrency)
	}
	told := float64(serving.MaxNumSeqs)
	if m.uniform {
		return math.Floor(min(told, float64(d.Budget.KVTokens)/length))
	}
	each, e := 0.0, m.elementsOf(serving.KVType)
	for i := range m.work.mixers {
		each += m.work.mixers[i].held(length, max(d.Layout.TP, 1), e)
	}
	each /= float64(max(d.Layout.PP, 1))
	if each <= 0 {
		return told
	}
	held := max(d.Budget.KVCache, 0) * gib * pooled / each
	if held < 1 && d.Budget.MaxConcurrency >= 1 {
		held = 1 // by the engine's own check, a whole sequence fits
	}
	return math.Floor(min(told, held))
}

// pooled is the usable part of a KV cache with several kinds of layers. Rounding takes the rest.
const pooled = 0.95

// pipeline describes how stages work together.
type pipeline struct {
	stages float64
	// batches is the number of batches of sequences in flight, one in each stage.
	batches float64
	// slow is the ratio of the time of a full pipeline to the sum of its stages' times. The longest stage decides, and
	// stages wait for one another.
	slow float64
	hop  catalog.Hop
}

// pipelineOf describes the stages of a layout. An engine that splits by layers computes all sequences in one batch,
// stage after stage.
func pipelineOf(d *Deployment, layers int) pipeline {
	pp := max(d.Layout.PP, 1)
	out := pipeline{stages: float64(pp), batches: 1, slow: 1}
	if pp == 1 {
		return out
	}
	if d.Engine.Split == catalog.SplitTensor {
		out.batches = out.stages
		out.slow = float64(ceilDiv(layers, pp)*pp) / float64(max(layers, 1)) / d.Engine.Speed.Pipeline
	}
	hops := &d.Engine.Speed.Hops
	switch {
	case d.Layout.Nodes <= 1:
		out.hop = hops.Machine
		if d.Layout.LinkedGPUs >= pp*max(d.Layout.TP, 1) && d.GPU.LinkGBs > 0 {
			out.hop.GBs = d.GPU.LinkGBs
		}
	case d.Layout.NetworkGBs > 0:
		out.hop = hops.RDMA
		out.hop.GBs = d.Layout.NetworkGBs
	default:
		out.hop = hops.Ethernet
	}
	return out
}

// stepTime returns the time to compute a token of every sequence.
func (p *pipeline) stepTime(r *roofline, sequences float64) float64 {
	batch := max(sequences/p.batches, min(sequences, 1))
	time := r.decodeTime(batch)
	if p.stages > 1 {
		full := min(1, (batch*p.batches-1)/p.batches)
		time *= 1 + (p.slow-1)*max(full, 0)
	}
	return time + p.hops(batch, r)
}

// hops returns the time to send a number of tokens from the first stage to the last.
func (p *pipeline) hops(tokens float64, r *roofline) float64 {
	if p.stages <= 1 {
		return 0
	}
	return (p.stages - 1) * (p.hop.Micros*micro + tokens*r.hidden*activationBytes/(p.hop.GBs*giga))
}
