// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/controllers/inferenceset"
	"github.com/modelberth/modelberth/test/integration/faults"
)

func TestInferenceSetRollsOut(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 3)
	w.createSet(t, set)
	w.untilScaled(t, set, 3)
	before := w.childNames(t, set)

	stop := w.watchReplicas(t, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "EDIT", Value: "1"}}}
	})
	w.untilScaled(t, set, 3)
	if least := stop(); least < 2 {
		t.Errorf("an edit in place left %d replicas ready, want at least 2", least)
	}
	if after := w.childNames(t, set); !slices.Equal(before, after) {
		t.Errorf("an edit in place replaced %v by %v", before, after)
	}

	stop = w.watchReplicas(t, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { // which a Workspace cannot change
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		spec.Template.Resource.InstanceType = "Standard_NC24ads_A100_v4"
	})
	w.untilScaled(t, set, 3)
	if least := stop(); least < 3 {
		t.Errorf("a replacement left %d replicas ready, want 3", least)
	}
	for _, ws := range w.children(t, set) {
		if slices.Contains(before, ws.Name) && ws.Resource.InstanceType == "" {
			t.Errorf("Workspace %s keeps the former template", ws.Name)
		}
	}
	w.removeSet(t, set)
}

// watchReplicas watches how many replicas are ready at least.
func (w *world) watchReplicas(t *testing.T, set *v1beta1.InferenceSet) (stop func() int) {
	t.Helper()
	done, result := make(chan struct{}), make(chan int, 1)
	set = set.DeepCopy()
	go func() {
		least := 1000
		for {
			list := &v1beta1.WorkspaceList{}
			if err := w.client.List(context.Background(), list, client.InNamespace(set.Namespace)); err == nil {
				ready := 0
				for i := range list.Items {
					ws := &list.Items[i]
					found := condition(ws, v1beta1.ConditionReady)
					if ws.DeletionTimestamp.IsZero() && found.Status == metav1.ConditionTrue && found.ObservedGeneration == ws.Generation {
						ready++
					}
				}
				least = min(least, ready)
			}
			select {
			case <-done:
				result <- least
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() int { close(done); return <-result }
}

// TestInferenceSetStopsABrokenRollout: a template without a suitable machine reaches one replica, or a surplus one. The
// former template repairs the set.
func TestInferenceSetStopsABrokenRollout(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	tests := []struct {
		reason  string
		breakIt func(*v1beta1.InferenceSetSpec)
		mend    func(*v1beta1.InferenceSetSpec)
		ready   int32
	}{
		{
			"in place", func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "missing" },
			func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "" }, 1,
		},
		{
			"by a surplus replica", func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "no-such-model" },
			func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "tiny-chat" }, 2,
		},
	}
	set := setForm(w.namespace(t), "chat", 2)
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			w.edit(t, set, test.breakIt)
			w.untilSet(t, set, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonRolloutStopped)
			w.untilSet(t, set, v1beta1.ConditionAvailable, metav1.ConditionTrue, v1beta1.ReasonReplicaAvailable)
			during(t, "the others serve", time.Second, func() (bool, string) {
				if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
					return false, err.Error()
				}
				return set.Status.ReadyReplicas >= test.ready, setSaying(set)
			})
			w.edit(t, set, test.mend)
			w.untilScaled(t, set, 2)
			if meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionStalled) != nil {
				t.Errorf("the set is still stalled: %s", setSaying(set))
			}
		})
	}
	w.removeSet(t, set)
}

// TestInferenceSetKeepsSomeOffSpot: of three replicas, one is bought on demand, and scaling down keeps it.
func TestInferenceSetKeepsSomeOffSpot(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 3)
	set.Spec.OnDemandReplicas = 1
	set.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{
		CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot, v1beta1.CapacityOnDemand},
	}
	w.createSet(t, set)
	w.untilScaled(t, set, 3)
	bought := func() map[v1beta1.CapacityType]int {
		out := map[v1beta1.CapacityType]int{}
		for _, ws := range w.children(t, set) {
			out[ws.Status.Plan.CapacityType]++
		}
		return out
	}
	want := map[v1beta1.CapacityType]int{v1beta1.CapacitySpot: 2, v1beta1.CapacityOnDemand: 1}
	if diff := cmp.Diff(want, bought()); diff != "" {
		t.Errorf("replicas by the capacity type of their machines (-want +got):\n%s", diff)
	}
	w.scale(t, set, 1)
	w.untilScaled(t, set, 1)
	if diff := cmp.Diff(map[v1beta1.CapacityType]int{v1beta1.CapacityOnDemand: 1}, bought()); diff != "" {
		t.Errorf("after scaling down (-want +got):\n%s", diff)
	}
	w.removeSet(t, set)
}

// TestInferenceSetRollsBack: a broken template reaches one replica, or a surplus one. Both replicas return to the
// previous template, with a restart of the controller in between.
func TestInferenceSetRollsBack(t *testing.T) {
	w := enter(t)
	begin := func() *life {
		return w.beginHooked(t, faults.NewRecorder(), w.options(), app.Hooks{
			Sets: func(config *inferenceset.Config) { config.Settling = time.Second },
		})
	}
	life := begin()
	set := setForm(w.namespace(t), "chat", 2)
	set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{Rollback: &v1beta1.RollbackSpec{}}
	// The stored template is found by a hash, so it must come back from the API server as it was sent.
	set.Spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "ODD", Value: "<&> é \"\u2028"}}}
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	good := set.Status.CurrentRevision
	for _, breakIt := range []func(*v1beta1.InferenceSpec){
		func(inference *v1beta1.InferenceSpec) { inference.Config = "missing" },
		func(inference *v1beta1.InferenceSpec) { inference.Config, inference.Preset.Name = "", "no-such-model" },
	} {
		w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { breakIt(spec.Template.Inference) })
		w.untilSet(t, set, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonRolledBack)
		life.end(t)
		life = begin()
		eventually(t, "two ready replicas with the previous template", func() (bool, string) {
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				return false, err.Error()
			}
			children := w.children(t, set)
			for i := range children {
				if inference := children[i].Inference; inference.Config != "" || inference.Preset.Name != "tiny-chat" {
					return false, setSaying(set)
				}
			}
			return len(children) == 2 && set.Status.ReadyReplicas == 2 && set.Status.UpdatedReplicas == 0, setSaying(set)
		})
		if set.Status.CurrentRevision != good || good == "" {
			t.Errorf("the current revision is %q, want %q", set.Status.CurrentRevision, good)
		}
	}
	w.checkSettled(t, life, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "tiny-chat" })
	w.untilScaled(t, set, 2)
	if set.Status.Rollout != nil {
		t.Errorf("the rollout %+v is still recorded", set.Status.Rollout)
	}
	w.removeSet(t, set)
}

// TestInferenceSetCanary: one of three replicas gets an edit, and new replicas get the previous template, also after a
// restart of the controller. The status has the split of the requests, and the labels of the Workspaces agree with it.
func TestInferenceSetCanary(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 3)
	set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{
		Partition: new(int32(2)), CanaryWeight: new(int32(5)), Rollback: &v1beta1.RollbackSpec{},
	}
	w.createSet(t, set)
	w.untilScaled(t, set, 3)
	if set.Status.Canary != nil {
		t.Errorf("canary %+v without an edit", set.Status.Canary)
	}
	splits := func(replicas, canaries int) {
		t.Helper()
		eventually(t, "the split of the requests", func() (bool, string) {
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				return false, err.Error()
			}
			children, updated, labelled := w.children(t, set), 0, 0
			for i := range children {
				isUpdated := children[i].Inference.Engine != nil
				updated += map[bool]int{true: 1}[isUpdated]
				if canary := set.Status.Canary; canary != nil && isUpdated == (children[i].Labels[v1beta1.LabelTemplateHash] == canary.TemplateHash) {
					labelled++
				}
			}
			ready := set.Status.ObservedGeneration == set.Generation && int(set.Status.ReadyReplicas) == replicas &&
				meta.IsStatusConditionTrue(set.Status.Conditions, v1beta1.ConditionReady)
			return ready && len(children) == replicas && updated == canaries && labelled == replicas && *set.Status.Canary.Weight == 5, setSaying(set)
		})
	}
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "EDIT", Value: "1"}}}
	})
	splits(3, 1)
	life.end(t)
	life = w.begin(t, faults.NewRecorder())
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.Replicas, spec.UpdateStrategy.RollingUpdate.Partition = new(int32(5)), new(int32(4))
	})
	splits(5, 1)
	w.checkSettled(t, life, set)
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate.Partition = nil })
	w.untilScaled(t, set, 5)
	if set.Status.Canary != nil {
		t.Errorf("canary %+v after the rollout", set.Status.Canary)
	}
	w.removeSet(t, set)
}
