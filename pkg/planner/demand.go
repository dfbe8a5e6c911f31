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

// demand is the purpose of machines.
type demand interface {
	// place lays the demand out on machines of one type; nil if that is impossible.
	place(m *machine) (*option, refusal)
	// fewest machines of any option.
	fewest() int
	// warnings about the request, for any machine.
	warnings() []string
	// compare orders options by what the request optimises for; the price is compared afterwards.
	compare(a, b *option) int
}

// refusal is why a number of machines of one type do not meet a demand.
type refusal struct {
	nodes  int
	reason string
}

// demand returns a request's demand.
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
	// limit of machines; 0 means any number.
	limit int
	// named: the user named the machine type.
	named bool
	// singleNode is the reason for which no model spreads over machines; empty if one may.
	singleNode string
	// noRDMA: machines reach each other over the ordinary network only.
	noRDMA bool
	warns  []string
	// trial is the present layout, kept the best one and fastest the fastest so far.
	trial, kept, fastest layout
	// order of the forms on the present machine.
	order []int
	// placements found, by hardware.
	placements map[hardware]*placement
	// terse: nobody reads the reasons of rejections.
	terse bool
}

// parallelism is how a model may be laid out over GPUs.
type parallelism struct {
	model model.Model
	// format of the preferred form's weights.
	format *model.Quantization
	// settings of the engine by the user, if legal; tp, pp, dp and cp are 0 by default.
	settings       EngineSettings
	tp, pp, dp, cp int
	// gpus of each machine by the user; 0 means any number.
	gpus int
	// ways to try on the present machine; the memory is reused.
	ways []spread
}

// goals are the target, the floors and the objective.
type goals struct {
	target target
	floors floors
	// typical load for the speed; a Concurrency of 0 stands for the target's. saturate: the load may be as large as
	// the floors allow.
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

// legalise replaces settings that no machine could honour by the nearest legal ones, with warnings.
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

// legalReplicas returns the number of replicas nearest to the user's over which a mixture's experts are even, and the
// reason for another number.
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

// mostGPUs returns the largest number of GPUs of a machine under the constraints.
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

// Bounds of the user's share of a GPU's memory.
const (
	leastUtilization = 0.1
	mostUtilization  = 0.98
)

func (d *modelDemand) fewest() int        { return 1 }
func (d *modelDemand) warnings() []string { return d.warns }

// compare orders options by the objective; for Cost, the price decides.
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
