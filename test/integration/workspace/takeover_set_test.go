// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// setOfKAITO makes an InferenceSet of KAITO's with two replicas that serve in karpenter mode.
func (w *world) setOfKAITO(t *testing.T) (*v1beta1.InferenceSet, []*served) {
	t.Helper()
	form := kaitoForm(w.namespace(t), "chat")
	set := &v1beta1.InferenceSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: form.Namespace, Name: form.Name, Finalizers: []string{"inferenceset.finalizer.kaito.sh"},
			Annotations: map[string]string{"inferenceset.kaito.io/hash": strings.Repeat("7823", 16), "inferenceset.kaito.io/revision": "1"},
		},
		Spec: v1beta1.InferenceSetSpec{
			Replicas: new(int32(2)), Selector: form.Resource.LabelSelector.DeepCopy(),
			Template: v1beta1.InferenceSetTemplate{
				Resource: v1beta1.InferenceSetResource{InstanceType: form.Resource.InstanceType}, Inference: form.Inference.DeepCopy(),
			},
		},
	}
	w.createSet(t, set)
	var all []*served
	for _, suffix := range []string{"wqbcv", "x7k2p"} {
		ws := kaitoForm(set.Namespace, set.Name+"-"+suffix)
		ws.Labels = map[string]string{v1beta1.LabelInferenceSet: set.Name}
		ws.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind))}
		s := w.leftByKAITO(t, ws)
		s.inKarpenterMode(t)
		all = append(all, s)
	}
	for _, s := range all {
		eventually(t, "KAITO's pod ready", func() (bool, string) {
			found := &appsv1.StatefulSet{}
			err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s.ws), found)
			return err == nil && found.Status.ReadyReplicas == 1, fmt.Sprint(err)
		})
	}
	return set, all
}

// own are the objects of one of several Workspaces in a namespace.
func (s *served) own(t *testing.T) map[string]string {
	t.Helper()
	out := s.exact(t)
	maps.DeleteFunc(out, func(name, _ string) bool { return !strings.Contains(name, s.ws.Name) })
	return out
}

// TestTakeoverOfAnInferenceSet takes the replicas of a set over while they serve. An edit of the set rolls one of them, and
// the other is given back meanwhile: nothing of it changes.
func TestTakeoverOfAnInferenceSet(t *testing.T) {
	w := enter(t)
	set, all := w.setOfKAITO(t)
	before := map[string]map[string]string{}
	for _, s := range all {
		before[s.ws.Name] = s.own(t)
	}
	stay := func(what string, replicas ...*served) {
		t.Helper()
		for _, s := range replicas {
			if diff := cmp.Diff(before[s.ws.Name], s.own(t)); diff != "" {
				t.Errorf("%s changed KAITO's objects of %s (-before +after):\n%s", what, s.ws.Name, diff)
			}
			if got := w.karpenter.ClaimsEver(s.ws.UID); got != 0 {
				t.Errorf("%s bought %d machines for %s", what, got, s.ws.Name)
			}
		}
	}
	life := w.begin(t, faults.NewRecorder())
	for _, s := range all {
		s.untilCondition(t, s.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	}
	stay("the start of the controller", all...)
	w.berth(t, set.Namespace, "adopt", "--all")
	for _, s := range all {
		s.untilCondition(t, s.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	}
	w.untilSet(t, set, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReplicasReady)
	stay("the takeover", all...)
	for _, write := range life.recorder.Writes() {
		if strings.HasPrefix(write, "create *v1beta1.Workspace") || strings.HasPrefix(write, "delete ") {
			t.Errorf("the controller wrote: %s", write)
		}
	}

	w.karpenter.Script(set.Spec.Template.Resource.InstanceType, sim.Hangs)
	t.Cleanup(func() { w.karpenter.Script(set.Spec.Template.Resource.InstanceType, sim.Works) })
	former := set.DeepCopy()
	set.Spec.Template.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"seed": "3"}}
	if err := w.client.Patch(t.Context(), set, client.MergeFrom(former)); err != nil {
		t.Fatal(err)
	}
	var rolls, other *served
	eventually(t, "a machine for one replica", func() (bool, string) {
		for i, s := range all {
			if w.karpenter.ClaimsEver(s.ws.UID) == 1 {
				rolls, other = s, all[1-i]
			}
		}
		return rolls != nil, "no machine was requested"
	})
	other.untilCondition(t, other.ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonFrozen)
	w.berth(t, set.Namespace, "adopt", other.ws.Name, "--undo")
	other.untilCondition(t, other.ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonServedByKAITO)
	stay("the undo", other)

	w.karpenter.Script(set.Spec.Template.Resource.InstanceType, sim.Works)
	w.nudge(t, rolls.ws)
	eventually(t, "the pods of one replica replaced", func() (bool, string) { return rolls.isRolled(t) })
	rolls.checkRolled(t, rolls.address(t))
	stay("the edit of the set", other)
	if names := w.childNames(t, set); len(names) != 2 {
		t.Errorf("replicas %v, want the two of before", names)
	}
	w.removeSet(t, set)
}
