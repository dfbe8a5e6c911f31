// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// canary makes a set of three replicas, two of which keep the previous template.
func canary(set *v1beta1.InferenceSet) {
	set.Spec.Replicas = new(int32(3))
	set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(2))
	set.Spec.UpdateStrategy.RollingUpdate.CanaryWeight = new(int32(5))
}

func better(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "better" }

// split returns the weight of the canaries and their configs; nothing if the status has no canary.
func (s *stage) split(t *testing.T) (weight int32, configs []string) {
	t.Helper()
	now := s.set(t).Status.Canary
	if now == nil {
		return 0, nil
	}
	for _, ws := range s.workspaces(t) {
		if ws.Labels[v1beta1.LabelTemplateHash] == now.TemplateHash {
			configs = append(configs, ws.Inference.Config)
		}
	}
	return ptr.Deref(now.Weight, -1), configs
}

func (s *stage) expectSplit(t *testing.T, wantWeight int32, wantConfigs ...string) {
	t.Helper()
	weight, configs := s.split(t)
	if weight != wantWeight || !cmp.Equal(wantConfigs, configs) {
		t.Errorf("canaries with the configs %q have the weight %d, want %q and %d", configs, weight, wantConfigs, wantWeight)
	}
}

// TestCanary follows a canary from the edit to its end: all replicas get the template, or none keeps it.
func TestCanary(t *testing.T) {
	for _, edit := range []struct {
		reason string
		change func(*v1beta1.InferenceSetSpec)
	}{
		{"in place", better},
		{"by a surplus replica", func(spec *v1beta1.InferenceSetSpec) {
			better(spec)
			spec.Template.Inference.Preset.Name = "other"
		}},
	} {
		t.Run(edit.reason, func(t *testing.T) {
			s := newStage(t, canary)
			s.goOn(t)
			s.expectSplit(t, 0)

			s.edit(t, edit.change)
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "", "", "better")
			s.expectSplit(t, 5, "better")
			ready := meta.FindStatusCondition(s.set(t).Status.Conditions, v1beta1.ConditionReady)
			if want := "3/3 replicas are ready. The router sends 5% of the requests to the new template (on 1 of 3 replicas)"; ready.Message != want {
				t.Errorf("Ready says %q, want %q", ready.Message, want)
			}

			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate.CanaryWeight = new(int32(50)) })
			s.goOn(t)
			s.expectSplit(t, 50, "better")

			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate.Partition = nil })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better")
			s.expectSplit(t, 0)
		})
	}
}

// TestCanaryIsScaled: new replicas get the previous template while a partition requires it, so the canary's share of the
// requests does not go to a growing share of the replicas.
func TestCanaryIsScaled(t *testing.T) {
	s := newStage(t, canary)
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		better(spec)
		spec.UpdateStrategy.RollingUpdate.Partition = new(int32(4))
	})
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "")
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(6)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "", "", "better", "better")
	s.expectSplit(t, 5, "better", "better")

	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(0)) })
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(5)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "", "", "better")
	s.expectSplit(t, 5, "better")

	byHash := map[string][]string{}
	for _, ws := range s.workspaces(t) {
		hash := ws.Labels[v1beta1.LabelTemplateHash]
		byHash[hash] = append(byHash[hash], ws.Inference.Config)
	}
	previous := strings.TrimPrefix(s.set(t).Status.CurrentRevision, set().Name+"-")
	want := map[string][]string{previous: {"", "", "", ""}, s.set(t).Status.Canary.TemplateHash: {"better"}}
	if diff := cmp.Diff(want, byHash); diff != "" {
		t.Errorf("configs by the hash of the template (-want +got):\n%s", diff)
	}
}

// TestCanaryIsRolledBack: the failed canary returns, and the split ends when it has returned.
func TestCanaryIsRolledBack(t *testing.T) {
	s := newStage(t, canary)
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.goOn(t)
	s.expectSplit(t, 5, "broken")
	s.clock.Step(usualSettling)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "", "")
	s.expectSplit(t, 0)
}

// TestCanaryWithoutPreviousTemplate: if the previous template is lost, the set creates no replica that a partition keeps
// on it, and a person has to act.
func TestCanaryWithoutPreviousTemplate(t *testing.T) {
	s := newStage(t, canary)
	s.goOn(t)
	s.edit(t, better)
	s.goOn(t)
	lost := &appsv1.ControllerRevision{}
	lost.Namespace, lost.Name = set().Namespace, s.set(t).Status.CurrentRevision
	if err := s.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		spec.Replicas, spec.UpdateStrategy.RollingUpdate.Partition = new(int32(5)), new(int32(3))
	})
	s.goOn(t)
	if n := len(s.workspaces(t)); n != 4 {
		t.Errorf("there are %d replicas, want 4: only one may have the new template", n)
	}
	stalled := meta.FindStatusCondition(s.set(t).Status.Conditions, v1beta1.ConditionStalled)
	if stalled == nil || stalled.Reason != v1beta1.ReasonReplicaBlocked {
		t.Errorf("Stalled is %+v", stalled)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate.Partition = nil })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better", "better", "better")
}

// TestCanarySurvivesCrashes: whichever write's answer is lost, the same replicas have the same templates in the end.
func TestCanarySurvivesCrashes(t *testing.T) {
	for failing := range 40 {
		s := newStage(t, canary)
		s.goOn(t)
		s.writes, s.failing = 0, failing
		s.edit(t, better)
		s.goOn(t)
		s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
			spec.Replicas, spec.UpdateStrategy.RollingUpdate.Partition = new(int32(5)), new(int32(4))
		})
		s.goOn(t)
		s.expect(t, v1beta1.ReasonReplicasReady, "", "", "", "", "better")
		s.expectSplit(t, 5, "better")
		if s.writes <= failing {
			return
		}
	}
	t.Error("the canary takes more than 40 writes")
}

// TestOnDemandReplicasOfACanary: replicas with the previous template count as those that keep off spot machines.
func TestOnDemandReplicasOfACanary(t *testing.T) {
	s := newStage(t, mixed(3, 2), canary)
	s.goOn(t)
	s.edit(t, better)
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		spec.Replicas, spec.UpdateStrategy.RollingUpdate.Partition = new(int32(6)), new(int32(5))
	})
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "", "", "", "better")
	if steady, spot := tally(s.kinds(t)); steady != 2 || spot != 4 {
		t.Errorf("%d replicas keep off spot machines, and %d use them: want 2 and 4", steady, spot)
	}
}

// TestCanaryIsScaledDown: the replicas with the previous template stay, and the new template never counts as the one that
// works, even if the others are gone.
func TestCanaryIsScaledDown(t *testing.T) {
	s := newStage(t, canary)
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	s.edit(t, better)
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(1)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "")
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(3)) })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "better")

	for _, ws := range s.workspaces(t) {
		if ws.Inference.Config == "" {
			if err := s.Delete(t.Context(), &ws); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "better")
	if now := s.set(t).Status.CurrentRevision; now != good {
		t.Errorf("the current revision is %s, want %s", now, good)
	}
}

// TestCanaryIsEditedAgain: the second edit replaces the first canary, and not another replica with the previous template.
func TestCanaryIsEditedAgain(t *testing.T) {
	s := newStage(t, canary)
	s.goOn(t)
	s.edit(t, better)
	s.goOn(t)
	for _, ws := range s.workspaces(t) {
		if ws.Inference.Config == "" { // otherwise, the dearest ones are replaced first
			ws.Status.Plan = &v1beta1.PlanStatus{HourlyPrice: "5.00"}
			if err := s.Status().Update(t.Context(), &ws); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "best" })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "", "best")
	s.expectSplit(t, 5, "best")
}

// TestCanaryWithoutLabel: without the label, the router could not find the canary, so the status has no split.
func TestCanaryWithoutLabel(t *testing.T) {
	s := newStage(t, canary)
	s.goOn(t)
	s.edit(t, better)
	s.goOn(t)
	for _, ws := range s.workspaces(t) {
		delete(ws.Labels, v1beta1.LabelTemplateHash)
		if err := s.Update(t.Context(), &ws); err != nil {
			t.Fatal(err)
		}
	}
	s.goOn(t)
	s.expectSplit(t, 0)
}

// TestOnDemandReplicasAreAdded: replicas with the previous template that may use spot machines do not count as those that
// keep off them, so new ones do.
func TestOnDemandReplicasAreAdded(t *testing.T) {
	s := newStage(t, mixed(3, 0), canary)
	s.goOn(t)
	s.edit(t, better)
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		spec.OnDemandReplicas = 2
		spec.Replicas, spec.UpdateStrategy.RollingUpdate.Partition = new(int32(6)), new(int32(5))
	})
	s.goOn(t)
	if steady, spot := tally(s.kinds(t)); steady != 2 || spot != 4 {
		t.Errorf("%d replicas keep off spot machines, and %d use them: want 2 and 4", steady, spot)
	}
}
