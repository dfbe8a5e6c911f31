// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
		out[ws.Name] = allowsSpot(ws.Resource.Placement)
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

// TestSteadyConverges: whatever the numbers, and however slowly replicas become ready, a set ends with as many steady
// replicas as it can have, and creates none that it deletes again before it was ready.
func TestSteadyConverges(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 2))
		s := set(mixed(int32(random.IntN(5)), int32(random.IntN(4))))
		s.Spec.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{MaxUnavailable: new(intstr.FromInt32(int32(random.IntN(3))))}
		spec, err := templateOf(s)
		if err != nil {
			t.Fatal(err)
		}
		var children []*v1beta1.Workspace
		since, wasReady := map[string]int{}, map[string]bool{}
		made, changed := 0, 0
		add := func(of template) {
			ws := of.child(s, fmt.Sprintf("ws-%d", made))
			ws.CreationTimestamp = metav1.NewTime(time.Unix(int64(made), 0))
			made++
			since[ws.Name] = changed
			children = append(children, ws)
		}
		look := func() *pass {
			p := newPass(s)
			p.children, p.target = children, variantsOf(s, spec)
			p.views = p.target.views(s, children, p.target)
			for i := range p.views {
				p.views[i].IsProven = p.views[i].IsReady
			}
			p.decision = p.decide()
			return p
		}
		for step := range 400 {
			if step == 130 || step == 260 { // another number of replicas, or of those that are steady
				s.Spec.Replicas, s.Spec.OnDemandReplicas = new(int32(random.IntN(5))), int32(random.IntN(4))
				changed++
			}
			p := look()
			for _, name := range p.decision.Delete {
				if !wasReady[name] && since[name] == changed {
					t.Fatalf("seed %d, step %d: %s is deleted before it was ready, though nothing changed", seed, step, name)
				}
				children = slices.DeleteFunc(children, func(ws *v1beta1.Workspace) bool { return ws.Name == name })
			}
			for _, name := range p.decision.Update {
				ws := find(children, name)
				ws.Resource, ws.Status.Conditions = p.target.of(p.isSteady(name)).child(s, name).Resource, nil
			}
			steady := p.target.lacking(p.views, false)
			for i := range p.decision.Create {
				add(p.target.of(i < steady))
			}
			for _, ws := range children {
				if random.IntN(10) == 0 {
					wasReady[ws.Name] = true
					ws.Status.Conditions = []metav1.Condition{yes(v1beta1.ConditionReady, v1beta1.ReasonServing, "")}
				}
			}
		}
		p := look()
		steady := 0
		for _, ws := range children {
			if !allowsSpot(ws.Resource.Placement) {
				steady++
			}
		}
		if want := min(int(s.Spec.OnDemandReplicas), s.DesiredReplicas()); steady != want || len(children) != s.DesiredReplicas() || !p.decision.IsIdle() {
			t.Fatalf("seed %d ends with %d replicas, %d steady, want %d and %d; decision %+v", seed, len(children), steady, s.DesiredReplicas(), want, p.decision)
		}
	}
}

// TestAssign: of replicas that are alike, the one whose machines are not spot machines is to be steady.
func TestAssign(t *testing.T) {
	s := set(mixed(2, 1))
	spec, err := templateOf(s)
	if err != nil {
		t.Fatal(err)
	}
	older, newer := spec.child(s, "older"), spec.child(s, "newer")
	older.Status.Plan = &v1beta1.PlanStatus{CapacityType: v1beta1.CapacitySpot}
	newer.Status.Plan = &v1beta1.PlanStatus{CapacityType: v1beta1.CapacityOnDemand}
	variants := variantsOf(s, spec)
	got := variants.assign(variants.renderer(s), []*v1beta1.Workspace{older, newer})
	if diff := cmp.Diff(map[string]bool{"newer": true}, got); diff != "" {
		t.Errorf("steady replicas (-want +got):\n%s", diff)
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
