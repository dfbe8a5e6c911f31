// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// templateForm is a Workspace with pods of its user's own.
func templateForm(namespace string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, "mine")
	ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "server", Image: "registry.example/server:1", Command: []string{"serve"},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		}},
	}}}
	return ws
}

// condition returns a condition of a Workspace; an empty one if there is none.
func condition(ws *v1beta1.Workspace, kind string) metav1.Condition {
	if found := meta.FindStatusCondition(ws.Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func vanishedMachine(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	w.loseMachine(t, ws)
	eventually(t, "a second machine", func() (bool, string) { return w.karpenter.ClaimsEver(ws.UID) == 2, "one" })
	w.untilServing(t, ws)
	if len(ws.Status.Attempts) != 2 || ws.Status.Attempts[0].Reason == "" {
		t.Errorf("attempts %+v, want the first one ended and a second one", ws.Status.Attempts)
	}
	w.remove(t, ws)
}

func specWithoutPlan(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	pod := w.podUID(t, ws)
	w.patch(t, ws, func() { ws.Resource.InstanceType = "" })
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	w.passes(t, life, ws, 3)
	if got := w.podUID(t, ws); got != pod || len(w.claims(t, ws)) != 1 {
		t.Errorf("pod %s, want %s, on the machine that it had", got, pod)
	}
	w.loseMachine(t, ws)
	w.passes(t, life, ws, 3)
	during(t, "no second NodeClaim", longEnough, func() (bool, string) {
		count := w.karpenter.ClaimsEver(ws.UID)
		return count == 1, fmt.Sprintf("%d NodeClaims", count)
	})
	w.passes(t, life, ws, 2)
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	w.remove(t, ws)
}

func otherCapacityType(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacityOnDemand}}
	w.create(t, ws)
	w.untilServing(t, ws)
	most, first := w.watchClaims(t, ws), w.watchReady(t, ws)
	w.patch(t, ws, func() { ws.Resource.Placement.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacitySpot} })
	eventually(t, "a spot machine", func() (bool, string) {
		claims := w.claims(t, ws)
		return len(claims) == 1 && capacityTypeOf(&claims[0]) == string(v1beta1.CapacitySpot), fmt.Sprintf("%d NodeClaims", len(claims))
	})
	w.untilServing(t, ws)
	if got := w.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	if got := ws.Status.Attempts; len(got) != 2 || got[0].Reason != "Released" || got[1].CapacityType != v1beta1.CapacitySpot {
		t.Errorf("attempts %+v, want the first one released and a second one of spot", got)
	}
	w.remove(t, ws)
	checkMost(t, most, 2)
	if got := first(); got.Status == metav1.ConditionTrue {
		t.Errorf("Ready was True for the new spec on the machine of the former one: %s", got.Message)
	}
}

// watchReady watches a Workspace. The returned function waits for the first report on the next generation, and returns
// its condition Ready.
func (w *world) watchReady(t *testing.T, ws *v1beta1.Workspace) (first func() metav1.Condition) {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &v1beta1.WorkspaceList{}, client.InNamespace(ws.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	former := ws.Generation
	found := make(chan metav1.Condition, 1)
	go func() {
		defer close(found)
		for event := range watcher.ResultChan() {
			if seen, ok := event.Object.(*v1beta1.Workspace); ok && seen.Status.ObservedGeneration > former {
				found <- condition(seen, v1beta1.ConditionReady)
				return
			}
		}
	}()
	return func() metav1.Condition { return <-found }
}

func capacityTypeOf(claim *karpv1.NodeClaim) string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == karpv1.CapacityTypeLabelKey {
			return strings.Join(requirement.Values, ",")
		}
	}
	return ""
}

// watchClaims watches the NodeClaims of a Workspace. The returned function stops the watch and returns the largest
// number that existed at once.
func (w *world) watchClaims(t *testing.T, ws *v1beta1.Workspace) (stop func() int) {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &karpv1.NodeClaimList{},
		client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)})
	if err != nil {
		t.Fatal(err)
	}
	most := make(chan int, 1)
	go func() {
		alive, count := map[string]bool{}, 0
		for event := range watcher.ResultChan() {
			if claim, ok := event.Object.(*karpv1.NodeClaim); ok {
				alive[claim.Name] = event.Type != watch.Deleted
			}
			maps.DeleteFunc(alive, func(_ string, is bool) bool { return !is })
			count = max(count, len(alive))
		}
		most <- count
	}()
	t.Cleanup(watcher.Stop)
	return func() int {
		watcher.Stop()
		return <-most
	}
}

func orphan(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	w.forceAway(t, ws)
	w.untilReleased(t, ws)
}

func madeAgain(t *testing.T, life *life) {
	w := life.world
	first := kaitoForm(w.namespace(t), "chat")
	w.create(t, first)
	w.untilServing(t, first)
	w.forceAway(t, first)
	second := kaitoForm(first.Namespace, first.Name)
	w.create(t, second)
	w.untilReleased(t, first)
	w.untilServing(t, second)
	if got := w.karpenter.ClaimsEver(second.UID); got != 1 {
		t.Errorf("NodeClaims ever made for the second: %d, want 1", got)
	}
	if got := w.karpenter.ClaimsEver(first.UID); got != 1 {
		t.Errorf("NodeClaims ever made for the first: %d, want 1", got)
	}
	w.remove(t, second)
}

// forceAway makes a Workspace go without its finalizer, as a user in a hurry does.
func (w *world) forceAway(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	gone := ws.DeepCopy()
	w.patch(t, gone, func() { gone.Finalizers = nil })
	if err := w.client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(gone), gone)
		return client.IgnoreNotFound(err) == nil && err != nil, "still there"
	})
}

func labelsOfOthers(t *testing.T, life *life) {
	w := life.world
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Resource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{
		"karpenter.sh/nodepool":       "default",
		"topology.kubernetes.io/zone": "eastus-9",
		"node-role.kubernetes.io/x":   "yes",
		"example.com/ok":              "yes",
	}}
	w.create(t, ws)
	w.untilServing(t, ws)
	labels := w.claims(t, ws)[0].Labels
	if labels[corev1.LabelTopologyZone] == "eastus-9" {
		t.Error("the user's label decides the zone")
	}
	delete(labels, corev1.LabelTopologyZone) // the cloud's own, since it is launched
	if got := labels["karpenter.sh/nodepool"]; got != "modelberth-default" {
		t.Errorf("the claim names NodePool %q: the user's label decides it", got)
	}
	got := slices.Sorted(maps.Keys(labels))
	want := []string{
		v1beta1.LabelManagedBy, "example.com/ok", "karpenter.sh/nodepool", "karpenter.azure.com/aksnodeclass", v1beta1.LabelMachineWorkspaceName,
		v1beta1.LabelMachineWorkspaceNamespace, v1beta1.LabelMachineOrdinal, v1beta1.LabelMachineAttempt, v1beta1.LabelWorkspaceUID,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the NodeClaim's labels (-want +got):\n%s", diff)
	}
	w.remove(t, ws)
}
