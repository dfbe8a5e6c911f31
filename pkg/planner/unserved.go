// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
)

// quantizations lists the formats of a model's weights.
func quantizations(artifacts []model.Artifact) string {
	names := make([]string, 0, len(artifacts))
	for _, a := range artifacts {
		if !slices.Contains(names, a.Quantization) {
			names = append(names, a.Quantization)
		}
	}
	return strings.Join(names, ", ")
}

// engineUnknown returns the error for an engine that this version does not have.
func (p *Planner) engineUnknown(r Request) error {
	return &InfeasibleError{
		Reason: v1beta1.ReasonEngineUnknown,
		Message: fmt.Sprintf("inference.engine.name: %q is not an engine of this version: use %s, or leave it out",
			r.Engine, strings.Join(slices.Sorted(maps.Keys(p.engines)), " or ")),
	}
}

// notSupported returns the error for a known model that no available engine serves.
func (p *Planner) notSupported(r Request) error {
	if r.Engine != "" && len(r.Model.Artifacts) > 0 {
		return &InfeasibleError{
			Reason: v1beta1.ReasonNotSupported,
			Message: fmt.Sprintf("inference.engine.name: preset %s has no weights for engine %s: leave inference.engine.name out",
				r.Model.Name, r.Engine),
		}
	}
	needs := r.Model.Needs
	if len(r.Model.Artifacts) > 0 {
		needs = r.Model.Artifacts[0].Engine
	}
	var served []string
	for _, m := range p.catalog.Models() {
		if slices.ContainsFunc(m.Artifacts, func(a model.Artifact) bool { return p.engines[strings.ToLower(a.Engine)] != nil }) {
			served = append(served, m.Name)
		}
	}
	return &InfeasibleError{
		Reason: v1beta1.ReasonNotSupported,
		Message: fmt.Sprintf("preset %s needs the %s engine; this version serves %s",
			r.Model.Name, needs, strings.Join(served, ", ")),
	}
}

// consentNeeded returns the error for a model with weights in reduced precision only, without the user's consent.
func consentNeeded(r Request, loadable []model.Artifact) error {
	return &InfeasibleError{
		Reason: v1beta1.ReasonNotSupported,
		Message: fmt.Sprintf("preset %s is published for engine %s in reduced precision only (%s), which needs your consent: "+
			"set inference.engine.allowedQuantizations, for example to [%s]",
			r.Model.Name, loadable[0].Engine, quantizations(loadable), loadable[0].Quantization),
	}
}
