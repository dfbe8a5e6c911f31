// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/usd"
)

// mostNodes is more machines than any model of the catalogue needs.
const mostNodes = 256

// plainNodes is the largest number of machines without RDMA that share a model, unless the user named their type. Every
// stage boundary sends a message over the ordinary network in every step, and each machine may fail.
const plainNodes = 2

// slowNodes is the largest number of machines to try if fewer hold the model but are too slow. More machines do not
// always bring memory: some layouts lack it on any number of machines.
const slowNodes = 4

// layout is a deployment of a model on machines of one type.
type layout struct {
	form   *form
	spread spread
	fitted fitted
	// pace is the speed under load.
	pace pace
	load physics.Load
	// rdma: the plan relies on RDMA between its machines.
	rdma bool
	// needed is the KV cache in GiB of one GPU for the target. A plan may have more.
	needed float64
	// linked: a fast link connects all GPUs of a machine.
	linked bool
	// lowered: the layout holds less than the target. short: its sequences are shorter.
	lowered, short bool
}

// place puts the model on machines of one type. Types with the same hardware share a layout.
func (d *modelDemand) place(m *machine) (*option, refusal) {
	if m.GPUs == 0 {
		return nil, refusal{1, "has no GPU"}
	}
	p := d.placementOn(m)
	switch {
	case p.why != nil && d.terse:
		return nil, refusal{p.why.count(), "unsuitable"}
	case p.why != nil:
		return nil, refusal{p.why.count(), d.verdict(m, p.why)}
	}
	l := p.layout
	return &option{layout: l, nodes: l.spread.nodes, gpus: l.spread.gpus(), warnings: d.layoutWarnings(&l, m)}, refusal{}
}

// hardware has the properties of a machine type that decide the layout.
type hardware struct {
	gpu          string
	gpus, linked int
	networkGBs   float64
	// vCPUs and memoryGiB are 0 if the machine has enough for the engine.
	vCPUs     int
	memoryGiB float64
}

// placement is the layout on machines of one type, or the reason why there is none.
type placement struct {
	layout layout
	why    *misfit
}

// placementOn returns the placement on a machine, shared by machines with the same hardware.
func (d *modelDemand) placementOn(m *machine) *placement {
	if m.there != nil {
		return d.placement(m)
	}
	key := hardware{gpu: m.gpu.Name, gpus: m.GPUs, linked: m.LinkedGPUs, networkGBs: m.NetworkGBs}
	if e := d.forms[0].engine; m.VCPUs < e.CPUs || m.MemoryGiB < float64(e.MemoryGiB) {
		key.vCPUs, key.memoryGiB = m.VCPUs, m.MemoryGiB
	}
	if p, known := d.placements[key]; known {
		return p
	}
	p := d.placement(m)
	if d.placements == nil {
		d.placements = map[hardware]*placement{}
	}
	d.placements[key] = p
	return p
}

// placement finds the layout with the fewest machines, and among these the best form of the model, that holds the
// target and is fast enough. It lowers objectives that the user left open before it adds a machine.
func (d *modelDemand) placement(m *machine) *placement {
	why, order := newMisfit(), d.formsFor(m)
	first, last := d.fewestNodes(m), d.mostNodes(m)
	if first > last && !d.terse {
		first = last // so that the verdict has the missing memory
	}
	for nodes := first; nodes <= last; nodes++ {
		d.holding.reset()
		for _, lowering := range d.passes() {
			for _, i := range order {
				if l := d.placeForm(&d.forms[i], m, nodes, lowering, why); l != nil {
					return &placement{layout: *l}
				}
			}
		}
		if !why.moreNodesHelp || why.slow != "" && nodes >= slowNodes {
			break
		}
		why.moreNodesHelp = false
	}
	return &placement{why: why}
}

// holding records which layouts hold the whole target. The second pass tries the same layouts in the same order as the
// first one, so it need not compute their memory again.
type holding struct {
	whole []bool
	at    int
}

func (h *holding) reset()         { h.whole, h.at = h.whole[:0], 0 }
func (h *holding) add(whole bool) { h.whole = append(h.whole, whole) }

// next reports whether the next layout of the second pass holds the whole target.
func (h *holding) next() bool {
	h.at++
	return h.whole[h.at-1]
}

// misfit collects the reasons why a machine type is unsuitable.
type misfit struct {
	// illegal explains why the machine cannot run any form. slow explains why forms that fit miss the floors. unsplit
	// explains why a larger tensor-parallel size is impossible.
	illegal, slow, unsplit string
	// slowNodes is the number of machines of the layout in slow.
	slowNodes int
	// missed is the factor by which this layout misses a floor.
	missed float64
	// lack is the smallest number of GiB that a GPU lacks, with its form, target and number of machines.
	lack   float64
	form   *form
	target target
	nodes  int
	// moreNodesHelp: more machines may bring the missing memory or speed.
	moreNodesHelp bool
}

func newMisfit() *misfit { return &misfit{lack: math.Inf(1)} }

// count returns the number of machines in a verdict.
func (why *misfit) count() int {
	if why.slow != "" {
		return why.slowNodes
	}
	return max(why.nodes, 1)
}

// passes returns the values of lowering to try: first the whole target, then a lower one if objectives are open.
func (g *goals) passes() []bool {
	if g.target.lowerable() {
		return []bool{false, true}
	}
	return []bool{false}
}

// placeForm returns the best layout of one form of the model on a number of machines; nil if there is none.
func (d *modelDemand) placeForm(f *form, m *machine, nodes int, lowering bool, why *misfit) *layout {
	if f.standsBack(&d.model.Shape, m) {
		return nil
	}
	if reason := illegal(f, &d.model.Shape, m); reason != "" {
		why.illegal = cmp.Or(why.illegal, reason)
		return nil
	}
	ways, unsplit := d.spreads(f, m, nodes)
	if len(ways) == 0 && nodes < d.pp {
		why.moreNodesHelp = true // the requested stages do not fit fewer machines
	}
	why.unsplit = cmp.Or(unsplit, why.unsplit)
	// A search tries thousands of layouts, so it reuses the memory of these three.
	l, best, fastest := &d.trial, &d.kept, &d.fastest
	best.form, fastest.form = nil, nil
	for _, way := range ways {
		*l = layout{form: f, spread: way, linked: m.LinkedGPUs >= m.GPUs}
		if !d.try(l, m, lowering, why) {
			continue
		}
		if best.form == nil || d.better(m, l, best) < 0 {
			*best = *l
		}
		if fastest.form == nil || byTokens(l, fastest) < 0 {
			*fastest = *l
		}
	}
	if best.form == nil {
		return nil
	}
	if d.idles(best, m) && byTokens(fastest, best) < 0 {
		best = fastest
	}
	best.needed = d.needed(best)
	best.fitted = d.extended(best, m)
	// A KV cache grows in steps of blocks and states, so the result may hold a target that did not fit with the fewest
	// sequences.
	best.lowered, best.short = best.fitted.target.below(d.target), best.fitted.target.length < d.target.length
	return best
}

// try finds the settings of a layout and reports whether it is suitable. If it is not, why gets the reason.
func (d *modelDemand) try(l *layout, m *machine, lowering bool, why *misfit) bool {
	if lowering && d.holding.next() {
		return false // the whole target fits, so the first pass found it too slow
	}
	var lack float64
	l.fitted, lack = d.fit(l.form, m, l.spread, lowering)
	if !lowering {
		d.holding.add(lack <= 0)
	}
	if lack > 0 {
		why.record(l.form, l.fitted.target, l.spread.nodes, lack)
		return false
	}
	l.lowered, l.short = l.fitted.target.below(d.target), l.fitted.target.length < d.target.length
	d.judge(l, m)
	if d.isTooSlow(l, m) {
		// Stages on more machines work on requests in turn, and so are slightly faster.
		why.recordSlow(d, l, l.spread.nodes)
		why.moreNodesHelp = why.moreNodesHelp || !l.overrun()
		return false
	}
	return true
}

// recordSlow keeps the layout that misses the floors by the smallest factor.
func (why *misfit) recordSlow(d *modelDemand, l *layout, nodes int) {
	ttft, tpot := d.floors.limits(&l.pace)
	missed := max(l.pace.TTFT/ttft, l.pace.TPOT/tpot)
	if l.overrun() {
		missed = math.Inf(1)
	}
	if why.slow == "" || missed < why.missed {
		why.slow, why.slowNodes, why.missed = d.slowness(l), nodes, missed
	}
}

// record keeps the smallest lack of memory.
func (why *misfit) record(f *form, t target, nodes int, lack float64) {
	why.moreNodesHelp = why.moreNodesHelp || f.engine.MultiNode
	if lack < why.lack {
		why.lack, why.form, why.target, why.nodes = lack, f, t, nodes
	}
}

// idles reports whether a layout leaves GPUs of a bought machine idle, though the user set no number of GPUs.
func (d *modelDemand) idles(l *layout, m *machine) bool {
	chosen := d.gpus + d.tp + d.pp + d.dp
	return m.there == nil && chosen == 0 && l.form.engine.Split == catalog.SplitTensor && l.spread.gpus() < m.GPUs
}

// byTokens orders layouts by their tokens per second. Layouts of proven speed and with the whole target come first.
func byTokens(a, b *layout) int {
	return cmp.Or(
		boolOrder(!a.spread.inStep(), !b.spread.inStep()), boolOrder(!a.lowered, !b.lowered),
		cmp.Compare(b.pace.OutputTokensPerSecond, a.pace.OutputTokensPerSecond),
		cmp.Compare(a.spread.gpus(), b.spread.gpus()), cmp.Compare(b.spread.tp, a.spread.tp))
}

// byLayout orders layouts on the same machines, so their cost is equal.
func (g *goals) byLayout(a, b *layout) int {
	// For replicas that share experts, there is one start-up log and no benchmark. They come after other layouts,
	// except for Throughput.
	measured := boolOrder(!a.spread.inStep(), !b.spread.inStep())
	// A waived floor excludes no layout, but layouts that keep it come first.
	waived := boolOrder(!g.floors.waived || !g.isSlow(a), !g.floors.waived || !g.isSlow(b))
	// If a fast link connects the GPUs, tensor parallelism costs less than waiting for another stage.
	stages := 0
	if a.linked && b.linked {
		stages = cmp.Compare(a.spread.stages, b.spread.stages)
	}
	switch g.optimizeFor {
	case v1beta1.OptimizeForLatency:
		return cmp.Or(
			measured, boolOrder(a.pace.TPOT > 0, b.pace.TPOT > 0), cmp.Compare(a.pace.TPOT, b.pace.TPOT),
			cmp.Compare(a.spread.gpus(), b.spread.gpus()), cmp.Compare(b.spread.tp, a.spread.tp))
	case v1beta1.OptimizeForThroughput:
		return cmp.Or(
			cmp.Compare(b.pace.OutputTokensPerSecond, a.pace.OutputTokensPerSecond),
			cmp.Compare(a.spread.gpus(), b.spread.gpus()), cmp.Compare(b.spread.tp, a.spread.tp))
	default:
		// The smallest replica spends the least time on communication between GPUs. More replicas use the rest of a
		// paid machine.
		return cmp.Or(
			measured, waived, cmp.Compare(a.spread.copyGPUs(), b.spread.copyGPUs()), cmp.Compare(b.spread.replicas, a.spread.replicas),
			stages, cmp.Compare(a.pace.TPOT, b.pace.TPOT), cmp.Compare(b.spread.tp, a.spread.tp))
	}
}

// fewestNodes returns a lower bound of the number of machines: fewer cannot hold weights and KV cache in any split. It
// may exceed the allowed number.
func (d *modelDemand) fewestNodes(m *machine) int {
	if d.forms[0].engine.Split == catalog.SplitLayers || !d.spreadsOverNodes() {
		return 1
	}
	t := d.target
	if t.lowerable() {
		t = t.least()
	}
	least := math.Inf(1)
	for i := range d.forms {
		f := &d.forms[i]
		s := physics.Serving{MaxModelLen: 1, MaxNumSeqs: 1, MaxBatchedTokens: 1, KVType: f.kvType}
		cache := f.physics.KVNeed(physics.Layout{TP: 1, PP: 1, DP: 1, Nodes: 1}, &s, t.length, t.concurrency, f.engine)
		least = min(least, f.physics.Bytes()/gib+cache)
	}
	// The rounding of KV cache to blocks may make the estimate too high, so take 90 % of it.
	nodes := int(math.Ceil(0.9 * least / (m.gpu.MemoryGiB * float64(m.GPUs))))
	return max(1, nodes)
}

// mostNodes returns the largest number of machines of a type that a plan may use.
func (d *modelDemand) mostNodes(m *machine) int {
	most := min(mostNodes, d.mostStages())
	if !d.named && d.networkGBs(m) == 0 {
		most = min(most, plainNodes)
	}
	if !d.spreadsOverNodes() || m.gpu.Whole != "" {
		most = 1
	}
	if d.limit > 0 {
		most = min(most, d.limit)
	}
	if m.there != nil {
		most = min(most, len(m.there))
	}
	return most
}

// spreadsOverNodes reports whether one copy of the model can be served from several machines.
func (d *modelDemand) spreadsOverNodes() bool {
	return d.singleNode == "" && d.forms[0].engine.MultiNode
}

// illegal explains why a machine can never run a form of a model; "" if it can.
func illegal(f *form, s *model.Shape, m *machine) string {
	if reason := CannotRun(f.engine, s, f.artifact.Quantization, f.kvName(), &m.gpu); reason != "" {
		return reason
	}
	switch e := f.engine; {
	case m.VCPUs < e.CPUs:
		return fmt.Sprintf("has %s, but engine %s needs %d", count(m.VCPUs, "vCPU"), e.Name, e.CPUs)
	case m.MemoryGiB < float64(e.MemoryGiB):
		return fmt.Sprintf("has %g GiB of memory, but engine %s needs %d", m.MemoryGiB, e.Name, e.MemoryGiB)
	default:
		return ""
	}
}

// verdict explains why a machine type is unsuitable.
func (d *modelDemand) verdict(m *machine, why *misfit) string {
	switch {
	case why.slow != "":
		return why.slow
	case why.form != nil:
		return d.doesNotFit(m, why)
	case why.illegal != "":
		return why.illegal
	case why.unsplit != "":
		return why.unsplit
	case d.gpus > 0 && d.forms[0].engine.Split == catalog.SplitTensor:
		return fmt.Sprintf("no valid combination of tensor, pipeline and data parallelism uses %s", count(d.gpus, "GPU"))
	case d.gpus > 0:
		return fmt.Sprintf("%d GPUs are requested, but the model's layers spread over at most %d", d.gpus, d.model.Shape.Layers+1)
	default:
		return "no valid way to spread the model over these GPUs"
	}
}

// fromOneMachine is the reason not to spread a model if the administrator gives none.
const fromOneMachine = "this version serves a model from one machine"

// doesNotFit describes the missing memory, and why more machines are no remedy.
func (d *modelDemand) doesNotFit(m *machine, why *misfit) string {
	text := fmt.Sprintf("does not fit%s by %s GiB per GPU at %s", formNamed(why.form, d.forms), atLeastTenth(why.lack), why.target)
	if why.nodes > 1 {
		text += fmt.Sprintf(" on %d machines", why.nodes)
	}
	switch {
	case m.gpu.Whole != "":
		text += ", and a model cannot spread over slices of a GPU"
	case why.form.engine.Split == catalog.SplitLayers && !why.form.engine.MultiNode:
	case !d.spreadsOverNodes():
		text += ", and " + cmp.Or(d.singleNode, fromOneMachine)
	case d.limit > 0 && d.limit == d.mostNodes(m):
		text += fmt.Sprintf(", and the limit is %s (resource.count)", count(d.limit, "machine"))
	case m.there != nil && len(m.there) == d.mostNodes(m):
		text += ", and no more such nodes are free in one zone"
	case d.mostNodes(m) == plainNodes && !d.named:
		text += ", and plans use more machines only with RDMA" + unusedRDMA(m) + " or if you name the machine type"
	case why.form.engine.Split == catalog.SplitLayers:
	default:
		text += d.whyNoMore(m, why.form)
	}
	if why.unsplit != "" && why.form.engine.Split == catalog.SplitTensor {
		text += "; " + why.unsplit
	}
	return text
}

// formNamed names a form if others were possible.
func formNamed(f *form, forms []form) string {
	if f.insteadOf != "" || slices.ContainsFunc(forms[1:], func(other form) bool { return other.insteadOf == "" }) {
		return " with " + f.String()
	}
	return ""
}

// unusedRDMA says how to let pods use a machine's RDMA; "" if it has none.
func unusedRDMA(m *machine) string {
	if m.NetworkGBs == 0 {
		return ""
	}
	return " for pods (set rdma.resource in the chart)"
}

// layoutWarnings warns of objectives that a layout misses or barely keeps, and of idle GPUs.
func (d *modelDemand) layoutWarnings(l *layout, m *machine) []string {
	var warnings []string
	if text := d.loweredWarning(l.fitted.target, m); text != "" {
		warnings = append(warnings, text)
	}
	if told := d.settings.MaxNumSeqs; told > 0 && told*l.spread.replicas < d.target.concurrency {
		where := count(l.spread.replicas, "replica")
		if l.spread.replicas > 1 {
			where = "each of " + where
		}
		warnings = append(warnings, fmt.Sprintf("max-num-seqs: %d on %s is below inference.objectives.concurrency (%d): "+
			"further requests wait", told, where, d.target.concurrency))
	}
	if idle := m.GPUs - l.spread.gpus(); d.named && d.idles(l, m) {
		warnings = append(warnings, idleWarning(idle, m))
	}
	switch slow := d.slowness(l); {
	case slow != "" && d.floors.waived:
		warnings = append(warnings, slow+": to enforce the limit, set inference.objectives.timeToFirstToken or inference.objectives.timePerOutputToken, or "+m.elsewhere()+" to get a faster machine")
	case slow == "" && d.closeness(l) != "":
		warnings = append(warnings, d.closeness(l))
	}
	return warnings
}

// idleWarning warns of the GPUs of a paid machine that stay idle.
func idleWarning(idle int, m *machine) string {
	text := fmt.Sprintf("the model leaves %s of %d on %s idle", count(idle, "GPU"), m.GPUs, m.Name)
	if m.price > 0 {
		text += fmt.Sprintf(" (%s of %s)", usd.PerHour(m.price*float64(idle)/float64(m.GPUs)), usd.PerHour(m.price))
	}
	return text + ": using them would not make the model faster; leave resource.instanceType out to get a smaller machine"
}

// whyNoMore explains why more machines do not help.
func (d *modelDemand) whyNoMore(m *machine, f *form) string {
	layer := f.physics.LayerBytes(m.GPUs) / gib
	if 2*layer > m.gpu.MemoryGiB*f.engine.Profile.MostUsed {
		return fmt.Sprintf(": more machines do not help, because at least one of them must hold two layers, and a layer takes %.1f GiB of each GPU", layer)
	}
	return fmt.Sprintf(": more machines do not help, because at least one of them must hold two layers with their KV cache and overhead, "+
		"and a layer takes %.1f GiB of each GPU", layer)
}

// better orders layouts on the same machines. A bought machine is paid for, so a layout may use all of it. Free GPUs of
// existing nodes may serve others, so a layout takes few of them; only for Latency it may take more, but no copies of
// the model.
func (d *modelDemand) better(m *machine, a, b *layout) int {
	switch {
	case m.there == nil:
		return d.byLayout(a, b)
	case d.optimizeFor == v1beta1.OptimizeForLatency:
		return cmp.Or(cmp.Compare(a.spread.replicas, b.spread.replicas), d.byLayout(a, b))
	default:
		return cmp.Or(cmp.Compare(a.spread.gpus(), b.spread.gpus()), d.byLayout(a, b))
	}
}
