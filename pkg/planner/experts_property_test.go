// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"math/rand/v2"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// mixExperts makes a random world's model a mixture of experts. Some experts cannot be cut or spread.
func mixExperts(r *rand.Rand, w *world) {
	w.Models[0].Shape.MoE = &model.MoE{
		Experts: []int{6, 6, 8, 12, 128}[r.IntN(5)], TopK: 1 + r.IntN(4), Intermediate: []int{7, 96, 768, 1536}[r.IntN(4)],
		SharedIntermediate: []int{0, 0, 512}[r.IntN(3)],
	}
}

// randomSharing sets random replicas and expert parallelism, as far as the number of experts allows.
func randomSharing(r *rand.Rand, w world, c *planner.Constraints) {
	e, moe := &c.Engine, w.Models[0].Shape.MoE
	if moe == nil {
		return
	}
	if r.IntN(3) == 0 {
		e.DataParallel = 1 + r.IntN(4)
	}
	if moe.Experts%(max(e.TensorParallel, 1)*max(e.DataParallel, 1)) != 0 {
		e.DataParallel = 0
	}
	if whole := r.IntN(2) == 0; r.IntN(2) == 0 && (whole || e.DataParallel <= 1) {
		e.ExpertParallel = &whole
	}
}

// shares reports whether a layout is possible, and whether its experts stay whole. told is the user's choice.
func shares(s *model.Shape, l tensorLayout, told *bool) (possible, whole bool) {
	rest := s.Heads%l.tp == 0 && (s.KVHeads%l.tp == 0 || l.tp%s.KVHeads == 0)
	if s.MoE == nil {
		return rest && s.Intermediate%l.tp == 0, false
	}
	rest = rest && s.MoE.SharedIntermediate%l.tp == 0
	cut := s.MoE.Intermediate%l.tp == 0
	gpus := l.tp * l.replicas
	whole = gpus > 1 && (l.replicas > 1 || !cut || told != nil && *told) && (told == nil || *told)
	switch {
	case whole:
		return rest && s.MoE.Experts%gpus == 0 && (l.replicas == 1 || l.stages == 1), true
	default:
		return rest && cut && l.replicas == 1, false
	}
}
