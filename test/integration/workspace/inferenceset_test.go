// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// setForm is an InferenceSet that leaves the machines to the planner.
func setForm(namespace, name string, replicas int32) *v1beta1.InferenceSet {
	return &v1beta1.InferenceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.InferenceSetSpec{
			Replicas: &replicas,
			Template: v1beta1.InferenceSetTemplate{
				Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
			},
		},
	}
}

// createSet creates a set, and deletes it with all its objects at the end of the story.
func (w *world) createSet(t *testing.T, set *v1beta1.InferenceSet) {
	t.Helper()
	if err := w.client.Create(t.Context(), set); err != nil {
		t.Fatalf("creating InferenceSet %s: %v", set.Name, err)
	}
	key := client.ObjectKeyFromObject(set)
	t.Cleanup(func() { w.clearSet(t, key) })
}

// clearSet deletes the remains of a story.
func (w *world) clearSet(t *testing.T, key client.ObjectKey) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	set := &v1beta1.InferenceSet{}
	if err := w.client.Get(ctx, key, set); err == nil {
		if t.Failed() {
			t.Logf("the set said: %s", setSaying(set))
		}
		_ = w.client.Delete(ctx, set)
		_ = w.client.Patch(ctx, set, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	list := &v1beta1.WorkspaceList{}
	if err := w.client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		t.Errorf("listing the Workspaces of %s: %v", key, err)
	}
	for i := range list.Items {
		ws := &list.Items[i]
		if t.Failed() {
			t.Logf("Workspace %s said: %s", ws.Name, saying(ws))
		}
		w.clear(t, client.ObjectKeyFromObject(ws), ws.UID)
	}
}

func setSaying(set *v1beta1.InferenceSet) string {
	var out []string
	for _, c := range set.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s(%s): %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return fmt.Sprintf("%d replicas, %d ready, %d updated; %s", set.Status.Replicas, set.Status.ReadyReplicas,
		set.Status.UpdatedReplicas, strings.Join(out, "; "))
}

// untilSet waits for a condition of a set about its current spec.
func (w *world) untilSet(t *testing.T, set *v1beta1.InferenceSet, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s=%s(%s)", kind, status, reason), func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return false, err.Error()
		}
		found := meta.FindStatusCondition(set.Status.Conditions, kind)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == set.Generation, setSaying(set)
	})
}

// untilScaled waits until a set has exactly the given number of replicas, all of them ready.
func (w *world) untilScaled(t *testing.T, set *v1beta1.InferenceSet, replicas int) {
	t.Helper()
	w.untilSet(t, set, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReplicasReady)
	eventually(t, fmt.Sprintf("%d Workspaces", replicas), func() (bool, string) {
		names := w.childNames(t, set)
		return len(names) == replicas, strings.Join(names, " ")
	})
	if int(set.Status.ReadyReplicas) != replicas || int(set.Status.Replicas) != replicas {
		t.Errorf("status: %s; want %d", setSaying(set), replicas)
	}
}

func (w *world) children(t *testing.T, set *v1beta1.InferenceSet) []v1beta1.Workspace {
	t.Helper()
	list := &v1beta1.WorkspaceList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(set.Namespace)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(ws v1beta1.Workspace) bool { return !metav1.IsControlledBy(&ws, set) })
}

func (w *world) childNames(t *testing.T, set *v1beta1.InferenceSet) []string {
	t.Helper()
	var out []string
	for _, ws := range w.children(t, set) {
		out = append(out, ws.Name)
	}
	slices.Sort(out)
	return out
}

// scale sets the number of replicas through the scale subresource, as kubectl scale and autoscalers do.
func (w *world) scale(t *testing.T, set *v1beta1.InferenceSet, replicas int32) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := w.client.SubResource("scale").Patch(t.Context(), set.DeepCopy(), patch); err != nil {
		t.Fatalf("scaling to %d: %v", replicas, err)
	}
}

// edit changes a set's spec.
func (w *world) edit(t *testing.T, set *v1beta1.InferenceSet, change func(*v1beta1.InferenceSetSpec)) {
	t.Helper()
	eventually(t, "the edit", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return false, err.Error()
		}
		change(&set.Spec)
		err := w.client.Update(t.Context(), set)
		return err == nil, fmt.Sprint(err)
	})
}

// removeSet deletes a set, and waits until it is gone with its Workspaces and machines.
func (w *world) removeSet(t *testing.T, set *v1beta1.InferenceSet) {
	t.Helper()
	if err := w.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the set gone", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		return apierrors.IsNotFound(err), setSaying(set)
	})
	if names := w.childNames(t, set); len(names) > 0 {
		t.Errorf("the set is gone before its Workspaces %v", names)
	}
}

// claimsOf are the NodeClaims of a namespace's Workspaces.
func (w *world) claimsOf(t *testing.T, namespace string) int {
	t.Helper()
	list := &karpv1.NodeClaimList{}
	err := w.client.List(t.Context(), list, client.MatchingLabels{v1beta1.LabelMachineWorkspaceNamespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestInferenceSetScales(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 0)
	w.createSet(t, set)
	w.untilScaled(t, set, 0)
	w.untilSet(t, set, v1beta1.ConditionAvailable, metav1.ConditionFalse, v1beta1.ReasonScaledToZero)

	w.scale(t, set, 1)
	w.untilScaled(t, set, 1)
	first := w.childNames(t, set)[0]
	time.Sleep(1100 * time.Millisecond) // creation times have seconds: the next replicas are to be younger
	w.scale(t, set, 3)
	w.untilScaled(t, set, 3)
	w.untilSet(t, set, v1beta1.ConditionInferenceSetReady, metav1.ConditionTrue, v1beta1.ReasonInferenceSetReady)
	w.checkSetService(t, set)
	w.checkChildren(t, set)
	if set.Status.HourlyPrice == "" || set.Status.Selector != "inferenceset.kaito.sh/created-by=chat" {
		t.Errorf("price %q and selector %q", set.Status.HourlyPrice, set.Status.Selector)
	}

	w.checkSettled(t, life, set)

	w.scale(t, set, 1)
	w.untilScaled(t, set, 1)
	if got := w.childNames(t, set); got[0] != first {
		t.Errorf("scaling down kept %v, want the oldest, %s", got, first)
	}
	w.scale(t, set, 0)
	w.untilScaled(t, set, 0)
	eventually(t, "no machine", func() (bool, string) { n := w.claimsOf(t, set.Namespace); return n == 0, fmt.Sprint(n) })
	w.removeSet(t, set)
}

// checkSetService checks that the Service of a set leads to the first pod of each replica.
func (w *world) checkSetService(t *testing.T, set *v1beta1.InferenceSet) {
	t.Helper()
	service := &corev1.Service{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), service); err != nil {
		t.Fatal(err)
	}
	if port := service.Spec.Ports[0]; port.Port != 80 || port.TargetPort.IntValue() != 5000 || service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service's port is %+v", port)
	}
	want := map[string]string{"inferenceset.kaito.sh/created-by": set.Name, "apps.kubernetes.io/pod-index": "0"}
	if diff := cmp.Diff(want, service.Spec.Selector); diff != "" {
		t.Errorf("the Service's selector (-want +got):\n%s", diff)
	}
	pods := &corev1.PodList{} // the stand-ins give them no index
	err := w.client.List(t.Context(), pods, client.InNamespace(set.Namespace), client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != set.DesiredReplicas() {
		t.Errorf("the Service selects %d pods, want %d", len(pods.Items), set.DesiredReplicas())
	}
}

// checkChildren checks the contract's names of a replica.
func (w *world) checkChildren(t *testing.T, set *v1beta1.InferenceSet) {
	t.Helper()
	for _, ws := range w.children(t, set) {
		if !strings.HasPrefix(ws.Name, "chat-") || ws.Labels["inferenceset.kaito.sh/created-by"] != "chat" {
			t.Errorf("Workspace %s has labels %v", ws.Name, ws.Labels)
		}
		if models := ws.Status.Endpoint.Models; len(models) == 0 || models[0] != "chat" {
			t.Errorf("Workspace %s answers as %v, want the set's name first", ws.Name, models)
		}
	}
}

// checkSettled checks that a settled set costs no request, in the running controller and in the next one.
func (w *world) checkSettled(t *testing.T, life *life, set *v1beta1.InferenceSet) {
	t.Helper()
	before := len(life.recorder.Writes())
	version := set.ResourceVersion
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"look again"}}}`))
	if err := w.client.Patch(t.Context(), set, patch); err != nil || set.ResourceVersion == version {
		t.Fatalf("waking the set: %v", err)
	}
	time.Sleep(time.Second)
	if writes := life.recorder.Writes()[before:]; len(writes) > 0 {
		t.Errorf("a settled set was written: %q", writes)
	}
	life.end(t)
	next := w.begin(t, faults.NewRecorder())
	eventually(t, "the next controller lists the sets", func() (bool, string) {
		return len(next.requests.about("/inferencesets"))+len(next.watches.about("/inferencesets")) > 0, "it does not"
	})
	time.Sleep(2 * time.Second)
	for _, write := range next.recorder.Writes() {
		if !strings.Contains(write, "NodePool") {
			t.Errorf("a restart wrote %q", write)
		}
	}
}

// TestInferenceSetTakesEditsOfReplicasBack: a user adds a field to one replica and takes one out of another.
func TestInferenceSetTakesEditsOfReplicasBack(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 2)
	set.Spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "A", Value: "1"}}}
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	before := w.childNames(t, set)
	for i, edit := range []string{`{"resource":{"placement":{"maxHourlyPrice":"50"}}}`, `{"inference":{"engine":null}}`} {
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: before[i]}}
		if err := w.client.Patch(t.Context(), ws, client.RawPatch(types.MergePatchType, []byte(edit))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both as the template says", func() (bool, string) {
		for _, ws := range w.children(t, set) {
			if ws.Resource.Placement != nil || ws.Inference.Engine == nil {
				return false, fmt.Sprintf("%s: %+v, %+v", ws.Name, ws.Resource, ws.Inference)
			}
		}
		return true, ""
	})
	w.untilScaled(t, set, 2)
	if after := w.childNames(t, set); !slices.Equal(before, after) {
		t.Errorf("replicas %v were replaced by %v", before, after)
	}
	w.removeSet(t, set)
}

// TestInferenceSetLeavesStrangersAlone: a foreign Workspace with a set's label is not its replica, and the condition
// reports a taken name.
func TestInferenceSetLeavesStrangersAlone(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	namespace := w.namespace(t)
	stranger := kaitoForm(namespace, "stranger")
	stranger.Labels, stranger.Suspend = map[string]string{v1beta1.LabelInferenceSet: "chat"}, true
	w.create(t, stranger)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "chat"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := w.client.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	set := setForm(namespace, "chat", 1)
	w.createSet(t, set)
	w.untilSet(t, set, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonNameTaken)
	eventually(t, "the replica serves all the same", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		return err == nil && set.Status.ReadyReplicas == 1, setSaying(set)
	})
	w.removeSet(t, set)
	w.read(t, stranger)
	if !stranger.DeletionTimestamp.IsZero() || len(stranger.OwnerReferences) > 0 {
		t.Errorf("the stranger was taken over: %+v", stranger.ObjectMeta)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil || len(service.OwnerReferences) > 0 {
		t.Errorf("the stranger's Service was taken over: %v", err)
	}
	w.remove(t, stranger)
}

// TestInferenceSetReportsLimits: nodeCountLimit, a ceiling, autoUpgrade, and a replica that a policy would refuse.
func TestInferenceSetReportsLimits(t *testing.T) {
	w := enter(t)
	o := w.options()
	o.Spending.PerNamespace = 8 // two machines of the cheapest type
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	set := setForm(w.namespace(t), "chat", 4)
	set.Spec.NodeCountLimit = 1
	set.Spec.AutoUpgrade = &v1beta1.AutoUpgradeSpec{Enabled: true}
	set.Spec.Template.Resource.InstanceType = "Standard_NC24ads_A100_v4"
	w.createSet(t, set)
	w.untilSet(t, set, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNodeCountLimit)
	w.untilSet(t, set, v1beta1.ConditionScalingLimited, metav1.ConditionTrue, v1beta1.ReasonNodeCountLimit)
	w.untilSet(t, set, v1beta1.ConditionAutoUpgrade, metav1.ConditionFalse, v1beta1.ReasonNotSupported)
	if n := w.claimsOf(t, set.Namespace); n > 1 {
		t.Errorf("%d machines, and spec.nodeCountLimit is 1", n)
	}
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { spec.NodeCountLimit = 0 })
	w.untilSet(t, set, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonReplicaBlocked)
	eventually(t, "two replicas within the ceiling", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		ready := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReady)
		return err == nil && set.Status.ReadyReplicas == 2 && strings.Contains(ready.Message, v1beta1.ReasonSpendingCeiling), setSaying(set)
	})
	w.removeSet(t, set)
}

// TestInferenceSetSurvivesCrashes has the controller crash at each write from creation to the end of a deletion.
func TestInferenceSetSurvivesCrashes(t *testing.T) {
	for number := 1; ; number += 3 {
		isOver := false
		for _, moment := range []faults.Moment{faults.Before, faults.After} {
			t.Run(fmt.Sprintf("%s write %d", moment, number), func(t *testing.T) {
				w := enterAlone(t)
				c := w.crashAt(t, number, moment, w.begin)
				set := setForm(w.namespace(t), "chat", 2)
				w.createSet(t, set)
				until := func(what string, done func() (bool, string)) {
					eventually(t, what, func() (bool, string) { c.takeOver(t); return done() })
				}
				isReady := func() (bool, string) {
					err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
					return err == nil && set.Status.ObservedGeneration == set.Generation &&
						meta.IsStatusConditionTrue(set.Status.Conditions, v1beta1.ConditionReady), setSaying(set)
				}
				until("two replicas", isReady)
				w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = ""; *spec.Replicas = 1 })
				until("one replica", isReady)
				if n := len(w.childNames(t, set)); n > 2 {
					t.Errorf("%d Workspaces, want at most 2", n)
				}
				if err := w.client.Delete(t.Context(), set); err != nil {
					t.Fatal(err)
				}
				until("gone", func() (bool, string) {
					err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
					return apierrors.IsNotFound(err), setSaying(set)
				})
				if n := w.claimsOf(t, set.Namespace); n > 0 {
					t.Errorf("%d machines are left", n)
				}
				isOver = isOver || !c.recorder.Crashed()
			})
		}
		if isOver || t.Failed() {
			return
		}
	}
}

// TestInferenceSetKeepsFullTemplates: a set reads back every field that it writes into a Workspace. Otherwise it would
// update the Workspace forever.
func TestInferenceSetKeepsFullTemplates(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	files, err := filepath.Glob(filepath.Join("..", "apitest", "testdata", "full", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		ws := &v1beta1.Workspace{}
		if err := yaml.Unmarshal(data, ws); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if ws.Inference == nil {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			set := setForm(w.namespace(t), "chat", 1)
			set.Spec.Template.Inference, set.Spec.Selector = ws.Inference, ws.Resource.LabelSelector
			set.Spec.Template.Resource.Placement, set.Spec.Template.Resource.Partition = ws.Resource.Placement, ws.Resource.Partition
			set.Spec.Template.Resource.InstanceType = ws.Resource.InstanceType
			set.Spec.Template.Metadata.Annotations = ws.Annotations
			w.createSet(t, set)
			eventually(t, "a current replica", func() (bool, string) {
				err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
				return err == nil && set.Status.Replicas == 1 && set.Status.UpdatedReplicas == 1, setSaying(set)
			})
			name := w.childNames(t, set)[0]
			during(t, "no update of the replica", time.Second, func() (bool, string) {
				updates := slices.DeleteFunc(life.requests.about("/"+set.Namespace+"/workspaces/"+name), func(sent string) bool {
					return !strings.Contains(sent, "force=true")
				})
				return len(updates) == 0, fmt.Sprint(updates)
			})
			w.removeSet(t, set)
		})
	}
}
