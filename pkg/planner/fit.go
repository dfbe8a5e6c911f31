// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// gib is a GiB in bytes.
const gib = 1 << 30

// An engine runs usualSequences at once if they fit and the request sets nothing else, and at most mostSequences.
const (
	usualSequences = 256
	mostSequences  = 1 << 16
)

// pace is the speed of a layout.
type pace = physics.Pace

// fitted holds the engine's settings for a layout, and the memory of its fullest GPU.
type fitted struct {
	target  target
	serving physics.Serving
	budget  physics.Budget
	memory  Memory
}

// fit finds the settings with which a layout holds the target, or a lower one if lowering is set. If there are none, it
// returns how many GiB the fullest GPU lacks.
func (d *modelDemand) fit(f *form, m *machine, way spread, lowering bool) (fitted, float64) {
	if !lowering {
		if lack := d.tryTarget(f, m, way, d.target); lack > 0 {
			return fitted{target: d.target}, lack
		}
		return d.settle(f, m, way, d.target), 0
	}
	least := d.target.least()
	if lack := d.tryTarget(f, m, way, least); lack > 0 {
		return fitted{target: least}, lack
	}
	t := d.target.lowered(func(t target) bool { return d.tryTarget(f, m, way, t) <= 0 })
	return d.settle(f, m, way, t), 0
}

// tryTarget returns how many GiB the fullest GPU lacks for a target with the smallest settings; 0 or less if it fits.
func (d *modelDemand) tryTarget(f *form, m *machine, way spread, t target) float64 {
	if f.engine.Split == catalog.SplitLayers {
		return -d.settle(f, m, way, t).memory.Free()
	}
	_, batch := d.batchTokens(f.engine, m)
	serving := d.serving(f, m, t, d.fewestSequences(way, t), batch)
	budget := f.memory(m, way, serving)
	return f.need(way, serving, perReplica(t, way)) - f.room(budget)
}

// settle chooses the settings for a target that fits: as many sequences at once as the memory allows.
func (d *modelDemand) settle(f *form, m *machine, way spread, t target) fitted {
	if f.engine.Split == catalog.SplitLayers {
		return d.settleLayers(f, m, way, t)
	}
	usual, least := d.batchTokens(f.engine, m)
	return d.settleBatch(f, m, way, t, [...]int{usual, least})
}

// settleBatch is settle for two batch sizes in tokens. It uses the second one if the first takes too much memory.
func (d *modelDemand) settleBatch(f *form, m *machine, way spread, t target, batches [2]int) fitted {
	for sequences := d.mostSequences(way, t); ; sequences /= 2 {
		sequences = max(sequences, d.fewestSequences(way, t))
		for _, batch := range batches {
			serving := d.serving(f, m, t, sequences, batch)
			budget := f.memory(m, way, serving)
			last := sequences == d.fewestSequences(way, t) && batch == batches[1]
			if last || f.need(way, serving, perReplica(t, way)) <= f.room(budget) {
				return fitted{target: t, serving: serving, budget: budget, memory: memoryOf(budget, serving)}
			}
		}
	}
}

// settleLayers is settle for an engine that allocates the KV cache of all its sequences when it starts.
func (d *modelDemand) settleLayers(f *form, m *machine, way spread, t target) fitted {
	budget := f.physics.LayerSplit(m.gpu.MemoryGiB, way.pipeline(), t.length, t.concurrency, &f.engine.Memory)
	return fitted{
		target: t, budget: budget,
		serving: physics.Serving{MaxModelLen: t.length, MaxNumSeqs: t.concurrency, MaxBatchedTokens: f.engine.Memory.BatchTokens},
		memory: Memory{
			Total: budget.Total, Weights: budget.Weights, KVCache: budget.KVCache,
			Overhead: thousandths(budget.Activation + budget.NonTorch + budget.Graphs + budget.Adapters), Basis: budget.Basis,
		},
	}
}

// serving returns the settings of an engine that profiles its memory.
func (d *modelDemand) serving(f *form, m *machine, t target, sequences, batch int) physics.Serving {
	out := physics.Serving{
		// The engine does not start with fewer tokens in a batch than sequences.
		MaxModelLen: t.length, MaxNumSeqs: sequences, MaxBatchedTokens: max(batch, sequences),
		Utilization: d.settings.GPUMemoryUtilization, KVType: f.kvType, Eager: d.settings.Eager,
		Media: d.settings.Media,
	}
	if out.Utilization == 0 {
		out.Utilization = utilization(f.engine, m.gpu.MemoryGiB)
	}
	return out
}

// utilization returns the engine's share of a GPU's memory, rounded down to hundredths. The rest is spare.
func utilization(e *catalog.Engine, total float64) float64 {
	return min(math.Floor((1-e.Profile.SpareGiB/total)*100)/100, e.Profile.MostUsed)
}

// batchTokens returns the engine's default number of tokens of a step: usual for this GPU, and least for the GPU with
// the smallest default. A user's choice replaces both.
func (d *modelDemand) batchTokens(e *catalog.Engine, m *machine) (usual, least int) {
	if asked := d.settings.MaxBatchedTokens; asked > 0 {
		return asked, asked
	}
	_, usual = e.Profile.Default(m.gpu.Kind(), m.gpu.MemoryGiB)
	least = usual
	for i := range e.Profile.Defaults {
		least = min(least, e.Profile.Defaults[i].BatchTokens)
	}
	return usual, least
}

// fewestSequences and mostSequences limit the number of sequences that a replica runs at once.
func (d *modelDemand) fewestSequences(way spread, t target) int {
	if d.settings.MaxNumSeqs > 0 {
		return d.settings.MaxNumSeqs
	}
	return min(perReplica(t, way).concurrency, mostSequences)
}

func (d *modelDemand) mostSequences(way spread, t target) int {
	if d.settings.MaxNumSeqs > 0 {
		return d.settings.MaxNumSeqs
	}
	most := usualSequences
	for most < perReplica(t, way).concurrency && most < mostSequences {
		most *= 2
	}
	return most
}

// perReplica returns one replica's part of a target.
func perReplica(t target, way spread) target {
	t.concurrency = (t.concurrency + way.replicas - 1) / way.replicas
	return t
}

// memory returns the budget of the fullest GPU.
func (f *form) memory(m *machine, way spread, s physics.Serving) physics.Budget {
	d := physics.Deployment{GPU: &m.gpu, Layout: way.physics(m), Serving: &s, Engine: f.engine}
	return physics.MeasuredMemory(f.physics, &d, f.starts)
}

// room returns the KV cache in GiB that a plan may use. It keeps a margin, so that the engine starts even if the budget
// is too optimistic.
func (f *form) room(b physics.Budget) float64 {
	return b.KVCache - f.engine.Profile.MarginGiB.Of(b.Basis)
}

// need returns how many GiB of KV cache the fullest GPU needs for the sequences of a target.
func (f *form) need(way spread, s physics.Serving, t target) float64 {
	layout := physics.Layout{TP: way.tp, PP: way.pipeline(), DP: 1, CP: way.cp, Nodes: way.nodes}
	return f.physics.KVNeed(layout, &s, t.length, t.concurrency, f.engine)
}

// physics converts a spread for package physics.
func (s spread) physics(m *machine) physics.Layout {
	return physics.Layout{
		TP: s.tp, PP: s.pipeline(), DP: s.replicas, EP: s.ep, CP: s.cp, Nodes: s.nodes, LinkedGPUs: m.LinkedGPUs,
	}
}

// memoryOf converts a budget for a plan. Memory outside the engine's share counts as free.
func memoryOf(b physics.Budget, s physics.Serving) Memory {
	basis := b.Basis
	if b.Measured {
		basis = v1beta1.BasisMeasured
	}
	return Memory{
		Total: b.Total, Weights: thousandths(b.Weights), KVCache: math.Floor(b.KVCache*1000) / 1000,
		Overhead: thousandths(b.Total*s.Utilization - b.Weights - b.KVCache), Basis: basis,
	}
}

// thousandths rounds up to 0.001 GiB: more digits would suggest an exact figure.
func thousandths(gibs float64) float64 {
	return math.Ceil(gibs*1000-1e-6) / 1000
}

// extended lengthens the sequences of a layout as far as they fit, and returns the settings.
func (d *modelDemand) extended(l *layout, m *machine) fitted {
	if l.form.engine.Split == catalog.SplitLayers {
		fits := func(t target) bool { return d.settleLayers(l.form, m, l.spread, t).memory.Free() >= 0 }
		return d.settleLayers(l.form, m, l.spread, l.fitted.target.extended(fits))
	}
	out := l.fitted
	fits := func(t target) bool {
		s := out.serving
		s.MaxModelLen = t.length
		return l.form.need(l.spread, s, perReplica(t, l.spread)) <= l.form.room(l.form.memory(m, l.spread, s))
	}
	out.target = out.target.extended(fits)
	out.serving.MaxModelLen = out.target.length
	out.budget = l.form.memory(m, l.spread, out.serving)
	out.memory = memoryOf(out.budget, out.serving)
	if held := int(out.budget.MaxConcurrency) * l.spread.replicas; !out.target.concurrencySet {
		out.target.concurrency = max(out.target.concurrency, min(held, out.serving.MaxNumSeqs*l.spread.replicas))
	}
	return out
}

// needed returns how many GiB of KV cache the fullest GPU needs for the target of a layout.
func (d *modelDemand) needed(l *layout) float64 {
	if l.form.engine.Split == catalog.SplitLayers {
		return l.fitted.memory.KVCache
	}
	return l.form.need(l.spread, l.fitted.serving, perReplica(l.fitted.target, l.spread))
}

// loadFor returns the load for predicting the speed. Its requests are no longer than the target's sequences.
func (g *goals) loadFor(t target) physics.Load {
	out := g.typical
	out.Open = true
	out.Output = max(1, min(out.Output, t.length/2))
	out.Input = max(1, min(out.Input, t.length-out.Output))
	if out.Concurrency == 0 {
		out.Concurrency = t.concurrency
	}
	return out
}

// judge predicts the speed of a layout under the typical load. For Throughput without a concurrency, it raises the load
// while that yields more tokens and keeps the floors.
func (d *modelDemand) judge(l *layout, m *machine) {
	deployed := d.deployment(l, m)
	l.rdma = deployed.Layout.Nodes > 1 && deployed.Layout.NetworkGBs > 0
	l.load = d.loadFor(l.fitted.target)
	if l.form.engine.Speed.Basis == "" {
		return // the engine has no law of speed
	}
	l.pace = l.form.speed(&deployed, l.load)
	l.judgeRate(&deployed)
	d.judgeUsual(l, &deployed)
	if !d.saturate || l.pace.TPOT == 0 {
		return
	}
	for load := l.load; ; {
		load.Concurrency *= 2
		if load.Concurrency > l.fitted.serving.MaxNumSeqs*l.spread.replicas {
			return
		}
		p := l.form.speed(&deployed, load)
		if p.Queues || !d.floors.kept(&p) ||
			p.OutputTokensPerSecond <= l.pace.OutputTokensPerSecond {
			return
		}
		l.load, l.pace = load, p
	}
}

// judgeRate checks whether a layout keeps up with a rate of requests. It adds the margin of the speed to the rate,
// because without spare capacity a queue grows forever.
func (l *layout) judgeRate(deployed *physics.Deployment) {
	if l.load.Rate == 0 || l.pace.TPOT == 0 {
		return
	}
	if !l.pace.Queues {
		more := l.load
		more.Rate /= margin(l.pace.Basis)
		p := l.form.speed(deployed, more)
		l.pace.Queues = p.Queues
	}
	l.load.Concurrency = 0
	if !l.pace.Queues {
		l.load.Concurrency = int(math.Ceil(l.pace.InFlight))
	}
}

// judgeUsual predicts the speed of a layout with a lowered number of sequences under the usual load. Typical requests
// are shorter than the sequences of the target, so the KV cache may hold the usual number of them. The layout then
// takes the usual load, because prices per token compare only under the same load.
func (g *goals) judgeUsual(l *layout, deployed *physics.Deployment) {
	usual := l.load
	usual.Concurrency = g.target.concurrency
	if g.typical.Concurrency > 0 || g.typical.Rate > 0 || usual.Concurrency <= l.load.Concurrency {
		return
	}
	if p := l.form.speed(deployed, usual); !p.Queues && g.floors.kept(&p) {
		l.load, l.pace = usual, p
	}
}

// deployment describes a layout on machines of one type for package physics.
func (d *modelDemand) deployment(l *layout, m *machine) physics.Deployment {
	out := physics.Deployment{
		GPU: &m.gpu, Layout: l.spread.physics(m), Serving: &l.fitted.serving, Budget: &l.fitted.budget, Engine: l.form.engine,
	}
	out.Layout.NetworkGBs = d.networkGBs(m)
	return out
}

// longestTTFT returns the time to first token in ms of the longest prompt without other load; 0 if unknown.
func (d *modelDemand) longestTTFT(l *layout, m *machine) float64 {
	if l.pace.TPOT == 0 {
		return 0
	}
	deployed := d.deployment(l, m)
	longest := physics.Load{Input: l.fitted.target.length - 1, Output: 1, Concurrency: 1, Open: true}
	return l.form.physics.Speed(&deployed, longest).TTFT
}

// isTooSlow reports whether a layout misses a floor that is not waived. If it misses one with the engine's usual
// batches, isTooSlow also tries the smallest, and keeps them in l if they help: parts of a prompt then pass the stages
// of a pipeline sooner, and delay other requests less.
func (d *modelDemand) isTooSlow(l *layout, m *machine) bool {
	if !l.overrun() && (d.floors.waived || !d.isSlow(l)) {
		return false
	}
	usual, least := 0, 0
	if l.form.engine.Split == catalog.SplitTensor {
		usual, least = d.batchTokens(l.form.engine, m)
	}
	if least == usual {
		return true
	}
	slower := *l
	l.fitted = d.settleBatch(l.form, m, l.spread, l.fitted.target, [...]int{least, least})
	d.judge(l, m)
	if l.overrun() || d.isSlow(l) {
		*l = slower // the verdict names the usual batches
		return true
	}
	return false
}

// overrun reports whether requests arrive faster than the layout answers them, as far as its speed is known.
func (l *layout) overrun() bool { return l.load.Rate > 0 && (l.pace.Queues || l.pace.TPOT == 0) }

// isSlow reports whether a layout misses a floor. A layout of unknown speed misses the user's floors, but not the usual
// ones.
func (g *goals) isSlow(l *layout) bool {
	if l.pace.TPOT == 0 {
		return g.floors.set
	}
	return !g.floors.kept(&l.pace)
}

// slowness describes the floor that a layout misses; "" if it keeps all.
func (g *goals) slowness(l *layout) string {
	p := &l.pace
	if l.overrun() && p.TPOT == 0 {
		return "its speed is not known, and inference.objectives.requestsPerSecond depends on it"
	}
	if l.overrun() {
		return fmt.Sprintf("does not keep up with %s requests per second", decimal(l.load.Rate))
	}
	if p.TPOT == 0 {
		if g.floors.set {
			return "its speed is not known, and inference.objectives.timeToFirstToken or inference.objectives.timePerOutputToken sets a limit"
		}
		return ""
	}
	at := "at " + count(l.load.Concurrency, "request")
	each, figures := at, string(p.Basis)
	if p.Slowdown > 1 {
		each, figures = at+fmt.Sprintf(" (%s × the prediction, as measured on engines of this namespace)", decimal(p.Slowdown)), "such"
	}
	ttft, tpot := g.floors.limits(p)
	switch {
	case p.TPOT > millis(g.floors.tpot):
		took, _ := apart(p.TPOT, millis(g.floors.tpot), 0)
		return fmt.Sprintf("too slow: %s ms per token %s, the limit is %v", took, each, g.floors.tpot)
	case p.TTFT > millis(g.floors.ttft):
		took, _ := apart(p.TTFT/1000, g.floors.ttft.Seconds(), 1)
		return fmt.Sprintf("too slow: %s s to the first token %s, the limit is %v", took, at, g.floors.ttft)
	case p.TPOT > tpot:
		took, most := apart(p.TPOT, tpot, 0)
		return fmt.Sprintf("too slow: %s ms per token %s; the limit is %v, and %s figures must stay below %s ms",
			took, each, g.floors.tpot, figures, most)
	case p.TTFT > ttft:
		took, most := apart(p.TTFT/1000, ttft/1000, 1)
		return fmt.Sprintf("too slow: %s s to the first token %s; the limit is %v, and %s figures must stay below %s s",
			took, at, g.floors.ttft, p.Basis, most)
	default:
		return ""
	}
}

// closeness describes the floor that a layout barely keeps; "" if there is none.
func (g *goals) closeness(l *layout) string {
	p := &l.pace
	ttft, tpot := g.floors.limits(p)
	switch {
	case p.TPOT > closeTo*tpot:
		return fmt.Sprintf("a token takes %.0f ms (%s), close to the limit of %v", p.TPOT, p.Basis, g.floors.tpot)
	case p.TTFT > closeTo*ttft:
		return fmt.Sprintf("the first token takes %.1f s (%s), close to the limit of %v", p.TTFT/1000, p.Basis, g.floors.ttft)
	default:
		return ""
	}
}

// networkGBs returns the usable RDMA bandwidth of one GPU to other machines, in GB/s; 0 without RDMA.
func (d *modelDemand) networkGBs(m *machine) float64 {
	if d.noRDMA {
		return 0
	}
	return m.NetworkGBs
}
