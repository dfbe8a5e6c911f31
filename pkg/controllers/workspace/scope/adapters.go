// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/workload"
)

// WantedAdapters returns the adapters for the running pods. If the current spec is not for these pods, they are those for
// which the pods were made, and isKnown is false: an earlier pass may have written later ones.
func (s *Scope) WantedAdapters() (list []adapters.Adapter, isKnown bool) {
	runs := s.Running()
	if s.Previous == nil && s.PlanErr == nil {
		return workload.LiveAdapters(s.Workspace.Inference.Adapters), true
	}
	if runs.Inputs == nil {
		return nil, false
	}
	return workload.LiveAdapters(runs.Inputs.Inference.Adapters), false
}

// StoredAdapters returns the adapters that the status says are loaded.
func (s *Scope) StoredAdapters() []string {
	endpoint, runs := s.Before.Endpoint, s.Running()
	if endpoint == nil || runs == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(endpoint.Models), func(name string) bool { return slices.Contains(runs.ServedNames, name) })
}

// servedNames returns the names at the endpoint: those of the running revision, and the adapters that the engine has
// loaded. If this pass has not read them, they are those of the status that the spec still has.
func (s *Scope) servedNames() []string {
	runs := s.Running()
	names := slices.Clone(runs.ServedNames)
	if !runs.LiveAdapters {
		return names
	}
	if s.Adapters == nil {
		want, isKnown := s.WantedAdapters()
		for _, name := range s.StoredAdapters() {
			if !isKnown || slices.ContainsFunc(want, func(a adapters.Adapter) bool { return a.Name == name }) {
				names = append(names, name)
			}
		}
		return names
	}
	for _, a := range s.Adapters {
		if a.State == v1beta1.AdapterLoaded {
			names = append(names, a.Name)
		}
	}
	return names
}
