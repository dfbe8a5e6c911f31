// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// spread is one way to split a model over machines.
type spread struct {
	// nodes is the number of machines. On each of them, tp GPUs share every layer, stages follow one another, and
	// replicas are whole copies. With more than one replica there is one node.
	nodes, tp, stages, replicas int
	// ep spreads whole experts over the GPUs of all replicas. Each replica has the rest of the model, and all compute
	// every step together.
	ep bool
	// cp is how many GPUs of each tensor-parallel group hold different tokens of the KV cache; 0 by default.
	cp int
}

// gpus returns the number of GPUs in use on each machine.
func (s spread) gpus() int { return s.tp * s.stages * s.replicas }

// copyGPUs returns the number of GPUs of each machine that hold one copy of the model.
func (s spread) copyGPUs() int {
	if s.ep {
		return s.gpus()
	}
	return s.tp * s.stages
}

// inStep reports whether replicas share experts. No published benchmark confirms the speed of such a layout.
func (s spread) inStep() bool { return s.ep && s.replicas > 1 }

// pipeline returns the number of stages on all machines.
func (s spread) pipeline() int { return s.nodes * s.stages }

// spreads returns the ways to split a model over a number of machines, and the reason why it lacks the larger
// tensor-parallel sizes.
func (p *parallelism) spreads(f *form, m *machine, nodes int) (ways []spread, illegal string) {
	if f.engine.Split == catalog.SplitLayers {
		return p.layerSpreads(m, nodes), ""
	}
	first := max(p.tp, 1)
	if first > m.GPUs {
		return nil, fmt.Sprintf("has %s, but tensor parallelism over %d is requested", count(m.GPUs, "GPU"), first)
	}
	ways = p.ways[:0]
	for tp := first; tp <= m.GPUs; tp *= 2 {
		cut, whole := f.unsplittable(&p.model.Shape, tp), f.unspreadable(&p.model.Shape, tp)
		if illegal = cut; illegal != "" && (whole != "" || p.settings.keepsExpertsCut()) {
			break
		}
		illegal = ""
		ways = p.tensorSpreads(ways, m, nodes, tp, cut == "")
		if p.tp > 0 {
			break
		}
	}
	p.ways = ways
	return ways, illegal
}

// keepsExpertsCut and keepsExpertsWhole report whether the user turned expert parallelism off or on.
func (s *EngineSettings) keepsExpertsCut() bool {
	return s.ExpertParallel != nil && !*s.ExpertParallel
}

func (s *EngineSettings) keepsExpertsWhole() bool {
	return s.ExpertParallel != nil && *s.ExpertParallel
}

// unsplittable is cannotSplit with a cache, because the search needs it for every machine.
func (f *form) unsplittable(s *model.Shape, parts int) string {
	return remembered(&f.unsplit, parts, func() string { return cannotSplit(s, &f.format, parts, false) })
}

// unspreadable is the same with whole experts.
func (f *form) unspreadable(s *model.Shape, parts int) string {
	return remembered(&f.unspread, parts, func() string { return cannotSplit(s, &f.format, parts, true) })
}

func remembered(answers *[7]*string, parts int, ask func() string) string {
	at := bits.TrailingZeros(uint(parts))
	if parts != 1<<at || at >= len(answers) {
		return ask()
	}
	if answers[at] == nil {
		reason := ask()
		answers[at] = &reason
	}
	return *answers[at]
}

// layerSpreads returns the ways that give each GPU a run of layers.
func (p *parallelism) layerSpreads(m *machine, nodes int) []spread {
	least, most := 1, min(m.GPUs, (p.model.Shape.Layers+1)/nodes)
	if m.gpu.Whole != "" {
		most = 1 // a process can use only one MIG slice
	}
	if p.gpus > 0 {
		least, most = p.gpus, min(p.gpus, most)
	}
	var ways []spread
	for stages := least; stages <= most; stages++ {
		ways = append(ways, spread{nodes: nodes, tp: 1, stages: stages, replicas: 1})
	}
	return ways
}

// tensorSpreads adds the ways to use machines with one tensor-parallel size. cut says whether experts can be cut into
// that many parts.
func (p *parallelism) tensorSpreads(ways []spread, m *machine, nodes, tp int, cut bool) []spread {
	first := 1
	if p.pp > 0 {
		first = p.pp / nodes
		if first*nodes != p.pp {
			return ways
		}
	}
	next := func(n int) int { return 2 * n }
	if p.gpus > 0 {
		next = func(n int) int { return n + 1 } // the user's number need not be a power of two
	}
	for stages := first; tp*stages <= m.GPUs && nodes*stages <= p.mostStages(); stages = next(stages) {
		way := spread{nodes: nodes, tp: tp, stages: stages, replicas: max(p.dp, 1), cp: p.cp}
		for ; way.gpus() <= m.GPUs && (nodes == 1 || way.replicas == 1); way.replicas = next(way.replicas) {
			way.ep = p.sharesExperts(way, cut)
			if p.isLegal(way, cut) && (m.gpu.Whole == "" || way.gpus() == 1) {
				ways = append(ways, way)
			}
			if p.dp > 0 {
				break
			}
		}
		if p.pp > 0 {
			break
		}
	}
	return ways
}

// sharesExperts reports whether a way spreads whole experts: the user chose that, or they cannot be cut, or there are
// several replicas. For several replicas, the engine would otherwise cut each expert over all their GPUs, into smaller
// parts.
func (p *parallelism) sharesExperts(way spread, cut bool) bool {
	if p.model.Shape.MoE == nil || way.tp*way.replicas == 1 || p.settings.keepsExpertsCut() {
		return false
	}
	return way.replicas > 1 || !cut || p.settings.keepsExpertsWhole()
}

// isLegal reports whether a way uses the requested number of GPUs and puts as many experts on each. Replicas that share
// experts may have one stage only, because more is a rare combination.
func (p *parallelism) isLegal(way spread, cut bool) bool {
	moe := p.model.Shape.MoE
	switch {
	case p.gpus > 0 && p.gpus != way.gpus(), !cut && !way.ep, cannotShareContext(&p.model.Shape, way.tp, way.cp) != "":
		return false
	case moe == nil:
		return true
	case !way.ep:
		return way.replicas == 1
	default:
		return moe.Experts%(way.tp*way.replicas) == 0 && (way.replicas == 1 || way.stages == 1)
	}
}

// mostStages returns the longest sensible pipeline: two stages for three layers. With one layer per stage, GPUs mostly
// wait.
func (p *parallelism) mostStages() int {
	return max((2*p.model.Shape.Layers+2)/3, p.pp)
}

// cannotSplit explains why a model's layers cannot be cut into a number of parts. If whole is set, it spreads whole
// experts instead of cutting them.
func cannotSplit(s *model.Shape, q *model.Quantization, parts int, whole bool) string {
	if parts == 1 {
		return ""
	}
	if s.Heads%parts != 0 {
		return fmt.Sprintf("%d attention heads cannot be split %d ways", s.Heads, parts)
	}
	if s.MLA == nil && s.KVHeads%parts != 0 && parts%s.KVHeads != 0 {
		return fmt.Sprintf("%d KV heads cannot be split %d ways", s.KVHeads, parts)
	}
	if whole && s.MoE != nil && s.MoE.Experts%parts != 0 {
		return fmt.Sprintf("%d experts cannot be spread evenly over %d GPUs", s.MoE.Experts, parts)
	}
	for _, l := range s.LayerKinds() {
		if whole {
			l.Experts = 0
		}
		if reason := cannotCut(&l, q, parts); reason != "" {
			return reason
		}
	}
	return ""
}

// cannotShareContext explains why the GPUs that share a layer cannot hold the KV cache's tokens in a number of parts.
// Such GPUs must hold the same heads (verify_with_parallel_config in vllm/config/model.py).
func cannotShareContext(s *model.Shape, tp, parts int) string {
	if parts <= 1 {
		return ""
	}
	if slices.ContainsFunc(s.Pattern, func(g model.LayerGroup) bool { return g.Mixer != model.MixerFull && g.Mixer != model.MixerNone }) {
		return "some layers have sliding-window attention or a recurrent state"
	}
	switch copies := tp / s.KVHeads; {
	case tp%parts != 0:
		return fmt.Sprintf("%s cannot be divided by %d", count(tp, "GPU"), parts)
	case s.MLA != nil:
		return "" // every GPU holds the same latent vectors
	case copies < parts:
		return fmt.Sprintf("each of %s is on %d of %s", count(s.KVHeads, "KV head"), max(copies, 1), count(tp, "GPU"))
	case s.Heads/s.KVHeads%parts != 0:
		return fmt.Sprintf("%d query heads per KV head cannot be divided by %d", s.Heads/s.KVHeads, parts)
	}
	return ""
}

// legalContext returns the largest possible number of parts of the KV cache's tokens up to the user's number, and the
// reason if it differs.
func (p *parallelism) legalContext(wanted, gpus int) (int, string) {
	tp := max(p.tp, 1)
	for p.tp == 0 && 2*tp <= gpus && cannotSplit(&p.model.Shape, p.format, 2*tp, p.model.Shape.MoE != nil) == "" {
		tp *= 2
	}
	reason := cannotShareContext(&p.model.Shape, tp, wanted)
	legal := wanted
	for legal > 1 && cannotShareContext(&p.model.Shape, tp, legal) != "" {
		legal--
	}
	return legal, reason
}

// cannotCut explains why a layer's matrices cannot be cut into a number of parts.
func cannotCut(l *model.Layers, q *model.Quantization, parts int) string {
	block := max(q.Block, 1)
	if l.Experts > 0 && (l.ExpertWidth%parts != 0 || l.ExpertWidth/parts%block != 0) {
		return fmt.Sprintf("experts of width %d cannot be split %d ways%s", l.ExpertWidth, parts, inBlocks(block, q))
	}
	if q.Scope == model.ScopeExperts {
		block = 1
	}
	if l.DenseWidth > 0 && (l.DenseWidth%parts != 0 || l.DenseWidth/parts%block != 0) {
		return fmt.Sprintf("an MLP of width %d cannot be split %d ways%s", l.DenseWidth, parts, inBlocks(block, q))
	}
	return ""
}

// inBlocks names the blocks of a format for a message; "" without blocks.
func inBlocks(block int, q *model.Quantization) string {
	if block == 1 {
		return ""
	}
	return fmt.Sprintf(" in %s's blocks of %d", q.Name, block)
}

// legalParallel returns the tensor-parallel size nearest to the user's that fits the model's shape and the machines'
// GPUs, and the reason if it differs.
func (p *parallelism) legalParallel(wanted, gpus int) (int, string) {
	cannot := func(parts int) string {
		reason := cannotSplit(&p.model.Shape, p.format, parts, false)
		if reason != "" && !p.settings.keepsExpertsCut() && cannotSplit(&p.model.Shape, p.format, parts, true) == "" {
			return ""
		}
		return reason
	}
	reason := cannot(wanted)
	if reason == "" && wanted > gpus {
		reason = fmt.Sprintf("no allowed machine has more than %s", count(gpus, "GPU"))
	}
	if reason == "" {
		return wanted, ""
	}
	nearest := 1
	for parts := 2; parts <= min(p.model.Shape.Heads, gpus); parts++ {
		if cannot(parts) == "" && abs(parts-wanted) < abs(nearest-wanted) {
			nearest = parts
		}
	}
	return nearest, reason
}

func abs(n int) int { return max(n, -n) }
