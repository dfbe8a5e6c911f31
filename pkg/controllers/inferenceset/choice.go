// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// choice holds the zones that a set chose for a replica; it is empty without a choice.
type choice struct {
	// zones are the zones that the replica may use.
	zones []string
	// tried are the zones that the set chose one after the other, the present one last.
	tried []string
}

// present returns the zone in which a replica without a machine looks for one; empty without a choice.
func (c choice) present() string {
	if len(c.tried) == 0 {
		return ""
	}
	return c.tried[len(c.tried)-1]
}

// in returns the template for a replica with a choice.
func (t template) in(c choice) template {
	if len(c.zones) == 0 {
		return t
	}
	placement := t.Resource.Placement.DeepCopy()
	if placement == nil {
		placement = &v1beta1.PlacementSpec{}
	}
	placement.Zones = slices.Clone(c.zones)
	t.Resource.Placement, t.tried = placement, strings.Join(c.tried, ",")
	return t
}

// chosen returns the choice that a Workspace has; none if the template no longer allows its zones. A Workspace keeps its
// choice when the set no longer spreads: no replica restarts for its zone alone.
func (t template) chosen(ws *v1beta1.Workspace) choice {
	tried := ws.Annotations[v1beta1.AnnotationZoneSpread]
	if tried == "" || ws.Resource.Placement == nil {
		return choice{}
	}
	allowed, zones := t.zones(), ws.Resource.Placement.Zones
	isForbidden := func(zone string) bool { return len(allowed) > 0 && !slices.Contains(allowed, zone) }
	if len(zones) == 0 || slices.ContainsFunc(zones, isForbidden) {
		return choice{}
	}
	left := slices.DeleteFunc(strings.Split(tried, ","), isForbidden)
	if len(left) == 0 { // somebody has edited the annotation
		left = zones
	}
	return choice{zones, left}
}

// spreadOf returns how the replicas with a template spread over zones; it is off without spec.zoneSpread, or with fewer
// than two zones.
func spreadOf(set *v1beta1.InferenceSet, t template) replicas.Spread {
	policy := set.Spec.ZoneSpread
	if policy == nil {
		return replicas.Spread{}
	}
	out := replicas.Spread{MaxSkew: max(1, int(policy.MaxSkew)), IsStrict: policy.WhenUnsatisfiable == v1beta1.DoNotSchedule}
	for _, zone := range t.zones() {
		if !slices.Contains(out.Zones, zone) {
			out.Zones = append(out.Zones, zone)
		}
	}
	return out
}

// zones returns the allowed zones; nil means any.
func (t template) zones() []string {
	if t.Resource.Placement == nil {
		return nil
	}
	return t.Resource.Placement.Zones
}
