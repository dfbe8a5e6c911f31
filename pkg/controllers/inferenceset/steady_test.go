// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// mixed allows spot machines, and wants some replicas without them.
func mixed(replicas, onDemand int32) func(*v1beta1.InferenceSet) {
	return func(s *v1beta1.InferenceSet) {
		s.Spec.Replicas, s.Spec.OnDemandReplicas = new(replicas), onDemand
		s.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{
			CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot, v1beta1.CapacityOnDemand},
		}
	}
}

// kinds maps the names of the replicas to whether they may use spot machines.
func (s *stage) kinds(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, ws := range s.workspaces(t) {
		out[ws.Name] = allowsSpot(&ws)
	}
	return out
}

func tally(kinds map[string]bool) (steady, spot int) {
	for _, allowsSpot := range kinds {
		if allowsSpot {
			spot++
		} else {
			steady++
		}
	}
	return steady, spot
}

func TestOnDemandReplicas(t *testing.T) {
	s := newStage(t, mixed(4, 2))
	replicas := func(n int32) func(*v1beta1.InferenceSetSpec) {
		return func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(n) }
	}
	floor := func(n int32) func(*v1beta1.InferenceSetSpec) {
		return func(spec *v1beta1.InferenceSetSpec) { spec.OnDemandReplicas = n }
	}
	steps := []struct {
		reason       string
		edit         func(*v1beta1.InferenceSetSpec)
		steady, spot int
		// changed is how many replicas are new, or converted.
		changed int
	}{
		{"a new set", func(*v1beta1.InferenceSetSpec) {}, 2, 2, 4},
		{"scaling up adds spot machines", replicas(6), 2, 4, 2},
		{"scaling down takes them first", replicas(3), 2, 1, 0},
		{"and the others last", replicas(1), 1, 0, 0},
		{"zero", replicas(0), 0, 0, 0},
		{"back again", replicas(3), 2, 1, 3},
		{"a higher number converts one", floor(3), 3, 0, 1},
		{"a lower one, too", floor(2), 2, 1, 1},
		{"more than there are replicas", floor(100), 3, 0, 1},
		{"none", floor(0), 0, 3, 3},
	}
	before := map[string]bool{}
	for _, step := range steps {
		s.edit(t, step.edit)
		s.goOn(t)
		after := s.kinds(t)
		steady, spot := tally(after)
		changed := 0
		for name, allowsSpot := range after {
			if was, isOld := before[name]; !isOld || was != allowsSpot {
				changed++
			}
		}
		if diff := cmp.Diff([]int{step.steady, step.spot, step.changed}, []int{steady, spot, changed}); diff != "" {
			t.Errorf("%s: steady, spot and changed replicas (-want +got):\n%s", step.reason, diff)
		}
		before = after
	}
}

// TestEditKeepsOnDemandReplicas: an edit in place converts no replica, and one of fixed fields replaces each replica once.
func TestEditKeepsOnDemandReplicas(t *testing.T) {
	s := newStage(t, mixed(4, 2))
	s.goOn(t)
	before := s.kinds(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "other" })
	s.goOn(t)
	if diff := cmp.Diff(before, s.kinds(t)); diff != "" {
		t.Errorf("replicas (-before +after an edit in place):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"ReplicaCreated": 4, "ReplicaUpdated": 4}, s.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "other" })
	s.goOn(t)
	if steady, spot := tally(s.kinds(t)); steady != 2 || spot != 2 {
		t.Errorf("%d steady and %d spot replicas, want 2 and 2", steady, spot)
	}
	if diff := cmp.Diff(map[string]int{"ReplicaCreated": 4, "ReplicaDeleted": 4}, s.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// published returns the number of events since the last call, by reason.
func (s *stage) published() map[string]int {
	out := map[string]int{}
	for {
		select {
		case event := <-s.events:
			out[strings.Fields(event)[1]]++
		default:
			return out
		}
	}
}

// TestWithoutSpotNothingChanges: the field has no effect on a template without spot machines.
func TestWithoutSpotNothingChanges(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { set.Spec.OnDemandReplicas = 1 })
	s.goOn(t)
	for _, ws := range s.workspaces(t) {
		if ws.Resource.Placement != nil {
			t.Errorf("Workspace %s has %+v", client.ObjectKeyFromObject(&ws), ws.Resource.Placement)
		}
	}
}

func TestSteady(t *testing.T) {
	spot, onDemand, reserved := v1beta1.CapacitySpot, v1beta1.CapacityOnDemand, v1beta1.CapacityReserved
	tests := []struct {
		reason     string
		have, want []v1beta1.CapacityType
		differs    bool
	}{
		{"the default has no spot machines", nil, nil, false},
		{"on demand alone", []v1beta1.CapacityType{onDemand}, []v1beta1.CapacityType{onDemand}, false},
		{"spot or on demand", []v1beta1.CapacityType{spot, onDemand}, []v1beta1.CapacityType{onDemand}, true},
		{"all", []v1beta1.CapacityType{reserved, spot, onDemand}, []v1beta1.CapacityType{reserved, onDemand}, true},
		{"spot alone: the default for the others", []v1beta1.CapacityType{spot}, []v1beta1.CapacityType{reserved, onDemand}, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			have := template{Resource: v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{CapacityTypes: test.have}}}
			got, differs := have.steady()
			if diff := cmp.Diff(test.want, got.Resource.Placement.CapacityTypes); diff != "" || differs != test.differs {
				t.Errorf("it differs: %t; capacity types (-want +got):\n%s", differs, diff)
			}
			if diff := cmp.Diff(test.have, have.Resource.Placement.CapacityTypes); diff != "" {
				t.Errorf("the template itself changed:\n%s", diff)
			}
		})
	}
}
