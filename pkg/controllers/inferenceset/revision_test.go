// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// TestLostRevision: a set whose previous template somebody deleted or replaced only scales down, and a person has to act.
func TestLostRevision(t *testing.T) {
	for _, isReplaced := range []bool{false, true} {
		t.Run(fmt.Sprintf("replaced %t", isReplaced), func(t *testing.T) {
			s := newStage(t)
			s.broken = stalledState
			s.goOn(t)
			s.edit(t, breaks)
			s.fail(t)
			lost := &appsv1.ControllerRevision{}
			if err := s.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: s.set(t).Status.CurrentRevision}, lost); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
			if isReplaced {
				forged := lost.DeepCopy()
				forged.ResourceVersion, forged.Data.Raw = "", []byte(`{"inference":{"preset":{"name":"another"}}}`)
				if err := s.Create(t.Context(), forged); err != nil {
					t.Fatal(err)
				}
			}
			before := s.workspaces(t)
			s.goOn(t)
			if diff := cmp.Diff(before, s.workspaces(t)); diff != "" {
				t.Errorf("Workspaces (-before +after):\n%s", diff)
			}
			found := s.set(t)
			ready := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionReady)
			if ready.Reason != v1beta1.ReasonRolledBack || found.Status.ReadyReplicas != 2 {
				t.Errorf("%d ready replicas, and Ready is %+v", found.Status.ReadyReplicas, ready)
			}

			scale := func(replicas, want int32) {
				t.Helper()
				s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(replicas) })
				s.goOn(t)
				ready := meta.FindStatusCondition(s.set(t).Status.Conditions, v1beta1.ConditionReady)
				start := fmt.Sprintf("%d/%d replicas are ready. ControllerRevision ", want, replicas)
				end := "edit spec.template. Until you edit it, the set creates and updates no replica"
				if ready.Reason != v1beta1.ReasonRolledBack || !strings.HasPrefix(ready.Message, start) || !strings.HasSuffix(ready.Message, end) {
					t.Errorf("Ready is %+v, want %s: %s … %s", ready, v1beta1.ReasonRolledBack, start, end)
				}
				if left := s.workspaces(t); len(left) != int(want) {
					t.Errorf("%d replicas, want %d", len(left), want)
				}
			}
			scale(1, 1)
			scale(3, 1)
			scale(0, 0)
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
				spec.Replicas, spec.Template.Inference.Config = new(int32(2)), "better"
			})
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better")
		})
	}
}

// recode gives the stored templates the form and the names of another version of Modelberth.
func (s *stage) recode(t *testing.T) {
	t.Helper()
	names := map[string]string{}
	for _, name := range s.revisions(t) {
		object := &appsv1.ControllerRevision{}
		if err := s.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, object); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		object.ResourceVersion, object.Data.Raw = "", []byte(strings.Replace(string(object.Data.Raw), "{", `{"former":null,`, 1))
		object.Name = revisionName(set(), templateHash(set(), object.Data.Raw))
		names[name] = object.Name
		if err := s.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	found := s.set(t)
	found.Status.CurrentRevision = names[found.Status.CurrentRevision]
	if found.Status.Rollout != nil {
		found.Status.Rollout.Revision = names[found.Status.Rollout.Revision]
	}
	if err := s.Status().Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeKeepsTheFailure: a new version that encodes templates differently does not try a failed one again.
func TestUpgradeKeepsTheFailure(t *testing.T) {
	s := newStage(t)
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.fail(t)
	failed := s.set(t).Status.Rollout
	s.published()
	s.recode(t)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "")
	if diff := cmp.Diff(failed, s.set(t).Status.Rollout); diff != "" {
		t.Errorf("rollout (-before the upgrade +after it):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{}, s.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "better" })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better")
}

// TestUpgradeStartsNoRollout: nor is a template that works a new one, though a replica does not answer.
func TestUpgradeStartsNoRollout(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { breaks(&set.Spec) })
	s.broken = answering()
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	s.recode(t)
	s.broken = startingState
	s.observe(t)
	s.goOn(t)
	s.clock.Step(24 * time.Hour)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasNotReady, "broken", "broken")
	if found := s.set(t); found.Status.CurrentRevision != good || found.Status.Rollout != nil {
		t.Errorf("status %+v, want the revision %s and no rollout", found.Status, good)
	}
}

// TestFailedTemplateIsDeletedFirst: of two ready replicas, the one with the template that failed is dispensable.
func TestFailedTemplateIsDeletedFirst(t *testing.T) {
	failed, former := ready("a"), ready("b")
	failed.isUpdated = true
	p := pass{set: set(func(s *v1beta1.InferenceSet) { s.Spec.Replicas = new(int32(1)) }), views: []view{failed, former}}
	if diff := cmp.Diff(replicas.Decision{Delete: []string{"a"}}, p.shrink()); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
}

// TestBothRevisionsStay: until the status names the new one, the set may have to return to the former one.
func TestBothRevisionsStay(t *testing.T) {
	s := newStage(t)
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	p := &pass{set: s.set(t), spec: &revision{name: "chat-2", data: []byte("{}")}, current: "chat-2"}
	if err := s.reconciler.ensureRevision(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"chat-2", good}, s.revisions(t)); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	p = &pass{set: s.set(t), spec: &revision{name: "chat-3", data: []byte("{}")}, current: "chat-3"}
	p.set.Status.CurrentRevision = "chat-2"
	if err := s.reconciler.ensureRevision(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"chat-2", "chat-3"}, s.revisions(t)); diff != "" {
		t.Errorf("revisions after the next template (-want +got):\n%s", diff)
	}
}
