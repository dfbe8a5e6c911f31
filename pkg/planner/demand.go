// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/wording"
)

// demand is what the machines are for: a model, or the user's own pods.
type demand interface {
	// place puts the demand on machines of one type. The option is nil if that is impossible.
	place(m *machine) (*option, refusal)
	// fewest returns the least number of machines of any option.
	fewest() int
	// warnings returns the warnings about the request that hold for any machine.
	warnings() []string
	// compare orders options by the objective. The planner compares prices afterwards.
	compare(a, b *option) int
}

// refusal is the reason why a number of machines of one type does not meet a demand.
type refusal struct {
	nodes  int
	reason string
}

// demand returns the demand of a request.
func (p *Planner) demand(r Request) (demand, error) {
	switch {
	case r.Model != nil:
		d, err := p.modelDemand(r)
		if err != nil {
			return nil, err
		}
		return d, nil
	case r.Template != nil:
		return templateDemand{*r.Template}, nil
	default:
		return nil, &InfeasibleError{
			Reason: v1beta1.ReasonSpecInvalid, Message: "the Workspace names no model: set inference.preset or inference.template",
		}
	}
}

// templateDemand requests machines for the user's own pods.
type templateDemand struct{ want TemplateDemand }

func (d templateDemand) fewest() int              { return max(d.want.Nodes, 1) }
func (d templateDemand) warnings() []string       { return nil }
func (d templateDemand) compare(_, _ *option) int { return 0 }

func (d templateDemand) place(m *machine) (*option, refusal) {
	if m.GPUs < d.want.GPUs {
		return nil, refusal{d.fewest(), fmt.Sprintf("has %s, but the template requests %d", count(m.GPUs, "GPU"), d.want.GPUs)}
	}
	return &option{nodes: d.fewest(), gpus: d.want.GPUs}, refusal{}
}

// modelDemand requests machines for one deployment of a model.
type modelDemand struct {
	parallelism
	goals
	// forms to serve, best first.
	forms []form
	// limit is the largest number of machines; 0 means any number.
	limit int
	// named: the user named the machine type.
	named bool
	// singleNode is the reason why no model may spread over machines; empty if a model may.
	singleNode string
	// noRDMA: pods cannot use RDMA, only the ordinary network.
	noRDMA bool
	warns  []string
	// trial is the layout under test, kept the best and fastest the fastest one so far. placeForm reuses their memory.
	trial, kept, fastest layout
	// holding has what the first pass over the layouts on a number of machines found.
	holding holding
	// order is the order of the forms for the machine under test.
	order []int
	// placements caches the results by hardware.
	placements map[hardware]*placement
	// terse: nobody reads the reasons of rejections, so the search skips them, and does not try shorter sequences.
	terse bool
}

// parallelism limits how a model may be split over GPUs.
type parallelism struct {
	model model.Model
	// format is the format of the preferred form's weights.
	format *model.Quantization
	// settings are the user's engine settings, as far as they are legal. tp, pp, dp and cp are 0 if the user chose
	// none.
	settings       EngineSettings
	tp, pp, dp, cp int
	// gpus is the user's number of GPUs of each machine; 0 means any number.
	gpus int
	// ways are the spreads to try on the machine under test. spreads reuses the memory.
	ways []spread
}

// goals are the target, the floors and the objective.
type goals struct {
	target target
	floors floors
	// typical is the load for predicting the speed; a Concurrency of 0 means the target's. saturate: the speed counts
	// under the largest load that keeps the floors.
	typical     physics.Load
	saturate    bool
	optimizeFor v1beta1.OptimizeFor
	objective   catalog.Objective
}

func (p *Planner) modelDemand(r Request) (*modelDemand, error) {
	forms, warnings, err := p.forms(r)
	if err != nil {
		return nil, err
	}
	c := r.Constraints
	named := c.InstanceType != ""
	d := &modelDemand{forms: forms, named: named, limit: c.MaxNodes, singleNode: c.OneMachine, noRDMA: p.settings.NoRDMA}
	d.parallelism = parallelism{
		model: *r.Model, format: &forms[0].format, settings: c.Engine, gpus: c.GPUs,
		pp: c.Engine.PipelineParallel, dp: c.Engine.DataParallel,
	}
	d.goals = goals{
		optimizeFor: cmp.Or(r.Objectives.OptimizeFor, v1beta1.OptimizeForBalanced),
		typical:     typicalLoad(r.Objectives), floors: floorsFor(r.Objectives, named),
	}
	d.objective = p.catalog.Objective(d.optimizeFor)
	if p.settings.SingleNode {
		d.singleNode = fromOneMachine
	}
	d.saturate = d.optimizeFor == v1beta1.OptimizeForThroughput && r.Objectives.Concurrency == 0 && r.Objectives.RequestsPerSecond == 0
	if c.Engine.MaxModelLen > 0 {
		r.Objectives.MaxModelLen = c.Engine.MaxModelLen
	}
	d.target, d.warns = targetFor(d.model, r.Objectives, named)
	d.warns = append(d.warns, warnings...)
	d.warns = append(d.warns, d.legalise(p.mostGPUs(c))...)
	return d, nil
}

// legalise replaces settings that are possible on no machine by the nearest legal ones, with warnings.
func (d *modelDemand) legalise(gpus int) []string {
	var warnings []string
	replace := func(setting string, from, to any, reason string) {
		warnings = append(warnings, wording.Clip(fmt.Sprintf("%s: %v is replaced by %v: %s", setting, from, to, reason), longestWarning))
	}
	if wanted := d.settings.TensorParallel; wanted > 0 {
		legal, reason := d.legalParallel(wanted, gpus)
		if d.tp = legal; reason != "" {
			replace("tensor-parallel-size", wanted, legal, reason)
		}
	}
	if wanted := d.settings.ContextParallel; wanted > 0 {
		legal, reason := d.legalContext(wanted, gpus)
		if d.cp = legal; legal != wanted {
			replace("decode-context-parallel-size", wanted, legal, reason)
		}
	}
	if told := d.settings.MaxNumSeqs; told > 0 && told < d.target.concurrency && !d.target.concurrencySet {
		d.target.concurrency = told
	}
	if layers := d.model.Shape.Layers; d.pp > layers {
		replace("pipeline-parallel-size", d.pp, layers, fmt.Sprintf("the model has %d layers", layers))
		d.pp = layers
	}
	if legal, reason := d.legalReplicas(); reason != "" {
		replace("data-parallel-size", d.dp, legal, reason)
		d.dp = legal
	}
	if d.model.Shape.MoE == nil && d.settings.keepsExpertsWhole() {
		replace("enable-expert-parallel", true, false, "the model has no experts")
	}
	if share := d.settings.GPUMemoryUtilization; share != 0 {
		if legal := min(max(share, leastUtilization), mostUtilization); legal != share {
			replace("gpu-memory-utilization", share, legal, fmt.Sprintf("it must be from %g to %g", leastUtilization, mostUtilization))
			d.settings.GPUMemoryUtilization = legal
		}
	}
	return warnings
}

// legalReplicas returns the number of replicas nearest to the user's that spreads a mixture's experts evenly, and the
// reason if the number differs.
func (p *parallelism) legalReplicas() (int, string) {
	moe := p.model.Shape.MoE
	switch {
	case p.dp <= 1 || moe == nil:
		return p.dp, ""
	case p.settings.keepsExpertsCut():
		return 1, "data-parallel replicas share the model's experts, but enable-expert-parallel is off"
	}
	for replicas := p.dp; ; replicas-- {
		if over := max(p.tp, 1) * replicas; moe.Experts%over == 0 || replicas == 1 {
			if replicas == p.dp {
				return p.dp, ""
			}
			return replicas, fmt.Sprintf("%d experts cannot be spread evenly over %d GPUs", moe.Experts, max(p.tp, 1)*p.dp)
		}
	}
}

// mostGPUs returns the largest number of GPUs of a machine type that the constraints allow.
func (mkt *market) mostGPUs(c Constraints) int {
	most := 1
	for i := range mkt.machines {
		m := &mkt.machines[i]
		if m.Unusable == "" && (c.InstanceType == "" && len(c.InstanceTypes) == 0 || strings.EqualFold(m.Name, c.InstanceType) ||
			len(c.InstanceTypes) > 0 && isNamed(Constraints{InstanceTypes: c.InstanceTypes}, m)) {
			most = max(most, m.GPUs)
		}
	}
	return most
}

// Bounds of gpu-memory-utilization, the engine's share of a GPU's memory.
const (
	leastUtilization = 0.1
	mostUtilization  = 0.98
)

func (d *modelDemand) fewest() int        { return 1 }
func (d *modelDemand) warnings() []string { return d.warns }

// compare orders options by the objective. For Cost all are equal, so the price decides.
func (g *goals) compare(a, b *option) int {
	whole := boolOrder(!a.layout.lowered, !b.layout.lowered)
	switch g.optimizeFor {
	case v1beta1.OptimizeForBalanced:
		return byBalance(a, b)
	case v1beta1.OptimizeForLatency:
		return cmp.Or(
			whole,
			boolOrder(a.layout.pace.TPOT > 0, b.layout.pace.TPOT > 0),
			cmp.Compare(a.layout.pace.TPOT, b.layout.pace.TPOT))
	case v1beta1.OptimizeForThroughput:
		return cmp.Or(whole, byToken(a, b))
	default:
		return 0
	}
}
