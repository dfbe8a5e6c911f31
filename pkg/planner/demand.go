// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
)

// diskSpareGiB is kept free of weights and image: logs, caches, a file that is being replaced.
const diskSpareGiB = 1

// demand returns what a request wants machines for.
func (p *Planner) demand(r Request) (demand, error) {
	switch {
	case r.Model != nil:
		return p.modelDemand(r)
	case r.Template != nil:
		return templateDemand{*r.Template}, nil
	default:
		return nil, &InfeasibleError{
			Reason: v1beta1.ReasonSpecInvalid, Message: "there is nothing to plan for: set inference.preset or inference.template",
		}
	}
}

// templateDemand wants machines for pods of the user's own.
type templateDemand struct{ want TemplateDemand }

func (d templateDemand) nodes() int         { return max(d.want.Nodes, 1) }
func (d templateDemand) warnings() []string { return nil }

func (d templateDemand) place(m machine) (option, string) {
	if m.GPUs < d.want.GPUs {
		return option{}, fmt.Sprintf("has %s, the template asks for %d", count(m.GPUs, "GPU"), d.want.GPUs)
	}
	return option{gpus: d.want.GPUs}, ""
}

// modelDemand wants machines for one replica of a model.
type modelDemand struct {
	model model.Model
	// artifacts that may be served, best first: released precision before what the user consented to.
	artifacts []model.Artifact
	// engines that load them, by name.
	engines map[string]catalog.Engine
	target  target
	// gpus that the user asked for; 0 means any number.
	gpus  int
	warns []string
}

// layout is one replica of a model on one machine.
type layout struct {
	artifact model.Artifact
	engine   catalog.Engine
	gpus     int
	target   target
	memory   Memory
	warnings []string
}

func (p *Planner) modelDemand(r Request) (demand, error) {
	artifacts, warnings, err := p.artifacts(r)
	if err != nil {
		return nil, err
	}
	d := modelDemand{model: *r.Model, artifacts: artifacts, engines: p.engines, gpus: r.Constraints.GPUs}
	d.target, d.warns = targetFor(d.model, r.Objectives, r.Constraints.InstanceType != "")
	d.warns = append(d.warns, warnings...)
	return d, nil
}

// nodes is always one: this version serves a model from a single machine.
func (d modelDemand) nodes() int         { return 1 }
func (d modelDemand) warnings() []string { return d.warns }

// place looks for the best form of the model, then the fewest GPUs, that hold the target; only if none
// does is the target lowered.
func (d modelDemand) place(m machine) (option, string) {
	if m.GPUs == 0 {
		return option{}, "has no GPU"
	}
	if stages := d.model.Shape.Layers + 1; d.gpus > stages {
		return option{}, fmt.Sprintf("%d GPUs are asked for, the model's layers spread over %d at most", d.gpus, stages)
	}
	verdict, shortest := "", math.Inf(1)
	passes := []bool{false}
	if d.target.lowerable {
		passes = append(passes, true)
	}
	for _, lowering := range passes {
		for _, a := range d.artifacts {
			e := d.engines[a.Engine]
			if reason := illegal(e, a, m); reason != "" {
				if verdict == "" {
					verdict = reason
				}
				continue
			}
			l, lack, ok := d.fit(a, e, m, lowering)
			if ok {
				return option{layout: l, gpus: l.gpus, warnings: l.warnings}, ""
			}
			if lack < shortest {
				verdict, shortest = d.doesNotFit(a, l.target, lack), lack
			}
		}
	}
	return option{}, verdict
}

// fit lays one form of the model out on a machine, or returns by how many GiB the fullest GPU lacks
// memory where it lacks least.
func (d modelDemand) fit(a model.Artifact, e catalog.Engine, m machine, lowering bool) (layout, float64, bool) {
	least, most := 1, min(m.GPUs, d.model.Shape.Layers+1)
	if d.gpus > 0 {
		least, most = d.gpus, d.gpus
	}
	l := load{shape: d.model.Shape, artifact: a, law: e.Memory}
	lack, aim := math.Inf(1), d.target
	for gpus := least; gpus <= most; gpus++ {
		memory := func(t target) Memory { return l.budget(m.gpu.MemoryGiB, gpus, t.length, t.concurrency) }
		fits := func(t target) bool { return memory(t).Free() >= 0 }
		reached, ok := d.target, fits(d.target)
		if !ok && lowering {
			reached, ok = d.target.lowered(fits)
		}
		if ok {
			reached = reached.extended(fits)
			out := layout{artifact: a, engine: e, gpus: gpus, target: reached, memory: memory(reached)}
			if warning := loweredWarning(d.target, reached, m.Name); warning != "" {
				out.warnings = append(out.warnings, warning)
			}
			return out, 0, true
		}
		if lowering {
			aim = d.target.least()
		}
		lack = min(lack, -memory(aim).Free())
	}
	return layout{target: aim}, lack, false
}

// doesNotFit is the verdict on a machine that lacks memory.
func (d modelDemand) doesNotFit(a model.Artifact, t target, lack float64) string {
	form := ""
	if len(d.artifacts) > 1 {
		form = " with " + a.Quantization
	}
	return fmt.Sprintf("does not fit%s by %s GiB per GPU at %s", form, atLeastTenth(lack), t)
}

// illegal says why a machine cannot run a form of a model at all.
func illegal(e catalog.Engine, a model.Artifact, m machine) string {
	need, named := e.ComputeCapability[a.Quantization]
	what := a.Quantization
	if !named {
		need, named = e.ComputeCapability["default"]
		what = "engine " + e.Name
	}
	switch {
	case named && m.gpu.ComputeCapability == "":
		return fmt.Sprintf("%s needs an NVIDIA GPU of compute capability %s, %s is none", what, need, m.gpu.Class)
	case named && capability(m.gpu.ComputeCapability) < capability(need):
		return fmt.Sprintf("%s needs compute capability %s, %s has %s", what, need, m.gpu.Class, m.gpu.ComputeCapability)
	case m.VCPUs < e.CPUs:
		return fmt.Sprintf("has %s, engine %s needs %d", count(m.VCPUs, "vCPU"), e.Name, e.CPUs)
	case m.MemoryGiB < float64(e.MemoryGiB):
		return fmt.Sprintf("has %g GiB of memory, engine %s needs %d", m.MemoryGiB, e.Name, e.MemoryGiB)
	default:
		return ""
	}
}

// capability orders compute capabilities, whose form the catalogue has checked.
func capability(text string) int {
	major, minor, _ := strings.Cut(text, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a*10 + b
}

// artifacts returns the forms of the model that this version can load and the user allows, best first.
func (p *Planner) artifacts(r Request) ([]model.Artifact, []string, error) {
	if r.Engine != "" {
		if _, known := p.engines[strings.ToLower(r.Engine)]; !known {
			return nil, nil, p.engineUnknown(r)
		}
	}
	var loadable, usable []model.Artifact
	for _, a := range r.Model.Artifacts {
		if _, known := p.engines[a.Engine]; known && (r.Engine == "" || strings.EqualFold(a.Engine, r.Engine)) {
			loadable = append(loadable, a)
		}
	}
	if len(loadable) == 0 {
		return nil, nil, p.notSupported(r)
	}
	allowed := func(a model.Artifact) bool {
		return a.Native || slices.ContainsFunc(r.Constraints.AllowedQuantizations, func(q string) bool {
			return strings.EqualFold(q, a.Quantization)
		})
	}
	for _, a := range loadable {
		if allowed(a) {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return nil, nil, consentNeeded(r, loadable)
	}
	slices.SortStableFunc(usable, func(a, b model.Artifact) int { return boolOrder(a.Native, b.Native) })
	return usable, quantizationWarnings(r, loadable), nil
}

// quantizationWarnings tells of consent to forms that do not exist.
func quantizationWarnings(r Request, loadable []model.Artifact) []string {
	unknown := slices.DeleteFunc(distinct(r.Constraints.AllowedQuantizations), func(name string) bool {
		return slices.ContainsFunc(loadable, func(a model.Artifact) bool { return strings.EqualFold(a.Quantization, name) })
	})
	if len(unknown) == 0 {
		return nil
	}
	return []string{clip(fmt.Sprintf("inference.engine.allowedQuantizations: %s is published as %s, not as %s",
		r.Model.Name, quantizations(loadable), strings.Join(unknown, ", ")), longestWarning)}
}

// quantizations lists the forms of a model.
func quantizations(artifacts []model.Artifact) string {
	names := make([]string, len(artifacts))
	for i, a := range artifacts {
		names[i] = a.Quantization
	}
	return strings.Join(names, ", ")
}

// boolOrder puts true first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
