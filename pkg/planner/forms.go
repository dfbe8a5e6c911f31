// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/wording"
)

// form is one way to serve a model: its weights in one format, an engine, and one type of KV cache.
type form struct {
	artifact model.Artifact
	format   model.Quantization
	engine   *catalog.Engine
	// kvType is the type of the KV cache; empty means the model's own.
	kvType string
	// insteadOf is the format that this form replaces on GPUs without arithmetic for it; empty if the form is for all
	// GPUs.
	insteadOf string
	// weights counts the copies of the weights on the machine's disk.
	weights WeightsDisk
	// physics computes memory and speed. Forms that differ only in the KV cache share it.
	physics *physics.Model
	// runs are benchmarks of the model in this format, or of a model with its architecture and size.
	runs []catalog.Measurement
	// starts are those of the runs, and of the namespace's engines, that report the memory at their start.
	starts []catalog.Measurement
	// lessons are the speeds of the namespace's own engines with this model.
	lessons []catalog.Measurement
	// unsplit caches why the model cannot be split 1, 2, 4, … ways; nil before the first call.
	unsplit [7]*string
	// unspread caches the same if experts stay whole.
	unspread [7]*string
}

// String names the form for a message.
func (f form) String() string {
	if f.kvType != "" {
		return f.artifact.Quantization + " and KV cache in " + f.kvType
	}
	return f.artifact.Quantization
}

// forms returns the possible and allowed ways to serve the model, best first: the published precision before others.
func (p *Planner) forms(r Request) ([]form, []string, error) {
	artifacts, warnings, err := p.artifacts(r)
	if err != nil {
		return nil, nil, err
	}
	beside, told, err := adapters(r, p.engines[strings.ToLower(p.engineFor(r))])
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, told...)
	computed, err := p.computed(r, artifacts)
	if err != nil {
		return nil, nil, err
	}
	var out []form
	for _, c := range computed {
		a := c.artifact
		format, _ := p.catalog.Quantization(a.Quantization) // the catalogue checked that it exists
		engine := p.engines[strings.ToLower(a.Engine)]
		basis := v1beta1.BasisExact
		if !a.BytesExact() {
			basis = v1beta1.BasisEstimated
		}
		weights := physics.NewModel(r.Model.Shape, physics.Weights{
			Format: format, Bytes: a.LoadedBytes(), Basis: basis, Adapters: beside,
		})
		runs := p.catalog.Measurements(r.Model, &a)
		own := r.startsOf(&a)
		types, ignored := kvTypes(r, engine)
		warnings = append(warnings, slices.DeleteFunc(ignored, func(w string) bool { return slices.Contains(warnings, w) })...)
		for _, kvType := range types {
			out = append(out, form{
				artifact: a, format: format, engine: engine, kvType: kvType, insteadOf: c.insteadOf, weights: r.Weights, physics: weights,
				runs: runs, starts: append(physics.Starts(runs), physics.Starts(own)...), lessons: physics.Lessons(own),
			})
		}
	}
	return out, warnings, nil
}

// speed predicts the speed of a deployment under a load.
func (f *form) speed(d *physics.Deployment, load physics.Load) pace {
	return f.physics.LearnedSpeed(d, load, f.runs, f.lessons)
}

// startsOf returns the request's Starts with the weights of an artifact.
func (r *Request) startsOf(a *model.Artifact) (out []catalog.Measurement) {
	for i := range r.Starts {
		start := &r.Starts[i]
		if strings.EqualFold(start.Engine, a.Engine) && strings.EqualFold(start.Model, a.Repo) && start.Quantization == a.Quantization {
			out = append(out, *start)
		}
	}
	return out
}

// kvTypes returns the types of KV cache to consider: the user's choice, or else the model's own and then the allowed
// ones. It warns of types that cannot be planned.
func kvTypes(r Request, e *catalog.Engine) (types, warnings []string) {
	own := []string{""}
	if e.Split != catalog.SplitTensor {
		return own, nil
	}
	set, warnings := knownKVTypes(kvFlag, []string{r.Constraints.Engine.KVCacheType}, &r.Model.Shape, e)
	if len(set) > 0 {
		return set, warnings
	}
	allowed, more := knownKVTypes("inference.engine.allowedKVCacheTypes", distinct(r.Constraints.AllowedKVCacheTypes), &r.Model.Shape, e)
	return append(own, allowed...), append(warnings, more...)
}

// automatic is the value with which an engine chooses a setting on its own.
const automatic = "auto"

// artifacts returns the weights that the engine can load and the user allows, best first.
func (p *Planner) artifacts(r Request) ([]model.Artifact, []string, error) {
	if r.Engine != "" {
		if _, known := p.engines[strings.ToLower(r.Engine)]; !known {
			return nil, nil, p.engineUnknown(r)
		}
	}
	var loadable, usable []model.Artifact
	engine := p.engineFor(r)
	for _, a := range r.Model.Artifacts {
		if engine != "" && strings.EqualFold(a.Engine, engine) {
			loadable = append(loadable, a)
		}
	}
	if len(loadable) == 0 {
		return nil, nil, p.notSupported(r)
	}
	for _, a := range loadable {
		if p.allows(r.Constraints, a) {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return nil, nil, consentNeeded(r, loadable)
	}
	slices.SortStableFunc(usable, func(a, b model.Artifact) int { return boolOrder(a.Native, b.Native) })
	return usable, p.quantizationWarnings(r, loadable), nil
}

// engineFor returns the user's engine, or else the first available engine of the model's weights.
func (p *Planner) engineFor(r Request) string {
	if r.Engine != "" {
		return r.Engine
	}
	for _, a := range r.Model.Artifacts {
		if p.engines[strings.ToLower(a.Engine)] != nil {
			return a.Engine
		}
	}
	return ""
}

// allows reports whether the user accepts the precision of the weights.
func (p *Planner) allows(c Constraints, a model.Artifact) bool {
	return a.Native || slices.ContainsFunc(c.AllowedQuantizations, func(name string) bool { return p.isFormat(a, name) })
}

// isFormat reports whether a name means the format of the weights, or its family.
func (p *Planner) isFormat(a model.Artifact, name string) bool {
	format, _ := p.catalog.Quantization(a.Quantization) // the catalogue checked that it exists
	same := func(other string) bool { return strings.EqualFold(name, other) }
	return same(a.Quantization) || same(format.Family) || slices.ContainsFunc(format.Aliases, same)
}

// isPublished reports whether a form has the publisher's precision.
func (f *form) isPublished() bool { return f.artifact.Native && f.insteadOf == "" }

// bits returns the rough number of bits per parameter. Formats with the same number rank equally.
func (f *form) bits() int { return int(f.format.BytesPerParam * 8) }

// computes reports whether a GPU has arithmetic for a form of the weights. If it has none, kernels unpack them first.
func (f *form) computes(m *machine) bool {
	return f.artifact.Native || m.gpu.PeakTFLOPs[f.format.Peak] > 0
}

// firstLike returns the index of the first form with the same number of bits as f.
func (d *modelDemand) firstLike(f *form) int {
	return slices.IndexFunc(d.forms, func(g form) bool { return g.bits() == f.bits() && g.artifact.Native == f.artifact.Native })
}

// formsFor returns the indices of the forms in the order for a machine. Among forms with the same number of bits, the
// ones that its GPU computes in come first.
func (d *modelDemand) formsFor(m *machine) []int {
	out := d.order[:0]
	for i := range d.forms {
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b int) int {
		f, g := &d.forms[a], &d.forms[b]
		return cmp.Or(cmp.Compare(d.firstLike(f), d.firstLike(g)), boolOrder(f.computes(m), g.computes(m)))
	})
	d.order = out
	return out
}

// quantizationWarnings warns if the user consents to a format in which the model is not published.
func (p *Planner) quantizationWarnings(r Request, loadable []model.Artifact) []string {
	unknown := slices.DeleteFunc(distinct(r.Constraints.AllowedQuantizations), func(name string) bool {
		return slices.ContainsFunc(loadable, func(a model.Artifact) bool {
			return p.isFormat(a, name) || p.isFloat16(name) && p.isBFloat16(a) && r.Model.Float16 != model.Float16Breaks
		})
	})
	if len(unknown) == 0 {
		return nil
	}
	return []string{wording.Clip(fmt.Sprintf("inference.engine.allowedQuantizations: %s is published as %s, not as %s",
		r.Model.Name, quantizations(loadable), strings.Join(unknown, ", ")), longestWarning)}
}
