// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func ownedBy(apiVersion, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "chat", UID: "uid-1", Controller: new(true)}}
}

func ours() map[string]string {
	return map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspace: "chat"}
}

func replicaOf(owner []metav1.OwnerReference) *v1beta1.Workspace {
	return &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "made", OwnerReferences: owner},
		Inference:  &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "m"}},
	}
}

// TestControllerDeletesOnlyReplicas has it delete Workspaces.
func TestControllerDeletesOnlyReplicas(t *testing.T) {
	for _, test := range []struct {
		reason string
		owner  []metav1.OwnerReference
		want   bool
	}{
		{"a replica", ownedBy("kaito.sh/v1beta1", "InferenceSet"), true},
		{"a user's own", nil, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := replicaOf(test.owner)
			ws.SetName("deleted")
			if err := api.Create(t.Context(), ws); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), ws) })
			err := user(t, controller).Delete(t.Context(), ws.DeepCopy(), client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestControllerMakesOnlyForWorkspaces creates various objects with a stolen token of the controller.
func TestControllerMakesOnlyForWorkspaces(t *testing.T) {
	set := func(change func(*appsv1.StatefulSet)) client.Object {
		return setOf("made", func(set *appsv1.StatefulSet) {
			set.Labels, set.OwnerReferences = ours(), ownedBy("kaito.sh/v1beta1", "Workspace")
			change(set)
		})
	}
	configMap := func(owner []metav1.OwnerReference) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "made", Labels: ours(), OwnerReferences: owner}}
	}
	ledger := func(namespace, name, of string) client.Object {
		labels := map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelCost: of}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	tests := []struct {
		reason string
		object client.Object
		want   bool
	}{
		{"a part of the cost ledger", ledger("modelberth-system", "modelberth-cost-3", "modelberth-cost"), true},
		{"a part of the cost ledger elsewhere", ledger("team-a", "modelberth-cost-3", "modelberth-cost"), false},
		{"a copy of the cost ledger", ledger("team-a", v1beta1.CostConfigMap, "modelberth-cost"), true},
		{"a copy of another installation's", ledger("team-a", v1beta1.CostConfigMap, "other-cost"), false},
		{"another ConfigMap that claims to be a copy", ledger("team-a", "settings", "modelberth-cost"), false},
		{"a StatefulSet of a Workspace", set(func(*appsv1.StatefulSet) {}), true},
		{"of nobody", set(func(set *appsv1.StatefulSet) { set.OwnerReferences = nil }), false},
		{"of another kind", set(func(set *appsv1.StatefulSet) { set.OwnerReferences = ownedBy("v1", "ConfigMap") }), false},
		{"of a plan", set(func(set *appsv1.StatefulSet) { set.OwnerReferences = ownedBy("apps/v1", "ControllerRevision") }), false},
		{"of a kind of the same name", set(func(set *appsv1.StatefulSet) { set.OwnerReferences = ownedBy("other.example/v1", "Workspace") }), false},
		{"of an owner that does not control it", set(func(set *appsv1.StatefulSet) { set.OwnerReferences[0].Controller = nil }), false},
		{"in kube-system", set(func(set *appsv1.StatefulSet) { set.Namespace = "kube-system" }), false},
		{"in a protected namespace", set(func(set *appsv1.StatefulSet) { set.Namespace = "flux-system" }), false},
		{"without our labels", set(func(set *appsv1.StatefulSet) { set.Labels = nil }), false},
		{"a ConfigMap of a plan", configMap(ownedBy("apps/v1", "ControllerRevision")), true},
		{"a ConfigMap of nobody", configMap(nil), false},
		{"a Service of nobody", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "made", Labels: ours()},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, false},
		{"a Service of a set", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: "made", Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
				OwnerReferences: ownedBy("kaito.sh/v1beta1", "InferenceSet"),
			},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, true},
		{"a StatefulSet of a set", set(func(set *appsv1.StatefulSet) { set.OwnerReferences = ownedBy("kaito.sh/v1beta1", "InferenceSet") }), false},
		{"the former template of a set", revisionOf(ownedBy("kaito.sh/v1beta1", "InferenceSet")), true},
		{"a revision of nobody", revisionOf(nil), false},
		{"a Workspace of a set", replicaOf(ownedBy("kaito.sh/v1beta1", "InferenceSet")), true},
		{"a Workspace of nobody", replicaOf(nil), false},
		{"a Workspace of another Workspace", replicaOf(ownedBy("kaito.sh/v1beta1", "Workspace")), false},
		{"a NodePool of ours", poolOf("made", map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}), true},
		{"a NodePool without our labels", poolOf("made", nil), false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			err := user(t, controller).Create(t.Context(), test.object, client.DryRunAll)
			if (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

func revisionOf(owners []metav1.OwnerReference) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "made", Labels: ours(), OwnerReferences: owners},
		Data:       runtime.RawExtension{Raw: []byte("{}")},
	}
}

// TestControllerDeletesOnlyItsOwn deletes other users' objects with the token.
func TestControllerDeletesOnlyItsOwn(t *testing.T) {
	for name, labels := range map[string]map[string]string{"strange": {"app": "a"}, "own": ours()} {
		objects := []client.Object{
			podOf(name, labels),
			setOf(name, func(set *appsv1.StatefulSet) { set.Labels = labels }),
			&appsv1.ControllerRevision{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: labels}, Data: runtime.RawExtension{Raw: []byte("{}")},
			},
		}
		for _, object := range objects {
			if err := user(t, setController).Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.IgnoreNotFound(api.Delete(context.WithoutCancel(t.Context()), object)) })
			err := user(t, controller).Delete(t.Context(), object)
			if (err == nil) != (name == "own") {
				t.Errorf("%T %s: %v", object, name, err)
			}
		}
	}
}

// TestControllerChangesOnlyAnnotationsOfPods: a stolen token must not run another image in a pod.
func TestControllerChangesOnlyAnnotationsOfPods(t *testing.T) {
	tests := []struct {
		reason string
		labels map[string]string
		change func(*corev1.Pod)
		want   bool
	}{
		{"the annotation of a group", ours(), func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{v1beta1.AnnotationIsolation: v1beta1.IsolationFound}
		}, true},
		{"an image", ours(), func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "another" }, false},
		{"a label", ours(), func(pod *corev1.Pod) { pod.Labels["app"] = "another" }, false},
		{"a stranger's pod", map[string]string{"app": "a"}, func(pod *corev1.Pod) { pod.Annotations = map[string]string{"a": "b"} }, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			pod := podOf("changed", test.labels)
			if err := user(t, setController).Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.IgnoreNotFound(api.Delete(context.WithoutCancel(t.Context()), pod)) })
			before := pod.DeepCopy()
			test.change(pod)
			if err := user(t, controller).Patch(t.Context(), pod, client.MergeFrom(before)); (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

func poolOf(name string, labels map[string]string) client.Object {
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "a.example", Kind: "A", Name: "a"},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
				ExpireAfter:  karpv1.MustParseNillableDuration(karpv1.Never),
			}},
			Disruption: karpv1.Disruption{ConsolidateAfter: karpv1.MustParseNillableDuration(karpv1.Never)},
		},
	}
}

// TestControllerDeletesOnlyPoolsOfWorkspaces: the deletion of a pool deletes its machines.
func TestControllerDeletesOnlyPoolsOfWorkspaces(t *testing.T) {
	tests := []struct {
		reason string
		labels map[string]string
		want   bool
	}{
		{"a stranger's", nil, false},
		{"the one that buys nothing", map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}, false},
		{"ours", map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelMachineWorkspaceName: "chat"}, true},
		{"KAITO's", map[string]string{"karpenter.kaito.sh/managed-by": "kaito", v1beta1.LabelMachineWorkspaceName: "chat"}, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			pool := poolOf("deleted", test.labels)
			if err := api.Create(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.IgnoreNotFound(api.Delete(context.WithoutCancel(t.Context()), pool)) })
			if err := user(t, controller).Delete(t.Context(), pool); (err == nil) != test.want {
				t.Errorf("%v, want it to pass: %v", err, test.want)
			}
		})
	}
}

// TestControllerReleasesInProtectedNamespaces: a namespace may be protected while a Workspace serves there.
func TestControllerReleasesInProtectedNamespaces(t *testing.T) {
	set := setOf("protected", func(set *appsv1.StatefulSet) { set.Namespace, set.Labels = "flux-system", ours() })
	if err := user(t, setController).Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.IgnoreNotFound(api.Delete(context.WithoutCancel(t.Context()), set)) })
	if err := user(t, controller).Delete(t.Context(), set, client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestControllerChangesOnlySpecsOfReplicas edits users' objects with a stolen token of the controller.
func TestControllerChangesOnlySpecsOfReplicas(t *testing.T) {
	own, replica := replicaOf(nil), replicaOf(ownedBy("kaito.sh/v1beta1", "InferenceSet"))
	own.SetName("own")
	replica.SetName("replica")
	ofKAITO := replicaOf(ownedBy("kaito.sh/v1alpha1", "InferenceSet"))
	ofKAITO.SetName("of-kaito")
	set := setOfWorkspaces(t, "", preset)
	set.SetName("edited")
	for _, object := range []client.Object{own, replica, ofKAITO, set} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.WithoutCancel(t.Context()), object) })
	}
	const (
		image     = `{"inference":{"engine":{"image":"evil.example/miner"}}}`
		owner     = `{"metadata":{"ownerReferences":[{"apiVersion":"kaito.sh/v1beta1","kind":"InferenceSet","name":"a","uid":"u","controller":true}]}}`
		finalizer = `{"metadata":{"finalizers":["workspace.finalizer.kaito.sh"]}}`
	)
	for _, test := range []struct {
		reason string
		object client.Object
		patch  string
		passes bool
	}{
		{"the image of a user's Workspace", own, image, false},
		{"its machines", own, `{"resource":{"instanceType":"Standard_ND96isr_H100_v5"}}`, false},
		{"its suspension", own, `{"suspend":true}`, false},
		{"its owner, to edit it afterwards", own, owner, false},
		{"its finalizer", own, finalizer, true},
		{"the end of its takeover", own, `{"metadata":{"annotations":{"modelberth.dev/adopted":null}}}`, true},
		{"a replica", replica, image, true},
		{"a replica that KAITO's controller made", ofKAITO, `{"metadata":{"ownerReferences":[{"apiVersion":"kaito.sh/v1beta1","kind":"InferenceSet","name":"chat","uid":"uid-1","controller":true,"blockOwnerDeletion":true}]}}`, true},
		{"another set as its owner", ofKAITO, `{"metadata":{"ownerReferences":[{"apiVersion":"kaito.sh/v1beta1","kind":"InferenceSet","name":"chat","uid":"uid-2","controller":true}]}}`, false},
		{"a replica of nobody", replica, `{"metadata":{"ownerReferences":null}}`, false},
		{"the template of a set", set, `{"spec":{"template":` + image + `}}`, false},
		{"the replicas of a set past its scale", set, `{"spec":{"replicas":9}}`, false},
		{"the finalizer of a set", set, `{"metadata":{"finalizers":["inferenceset.finalizer.kaito.sh"]}}`, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			object, ok := test.object.DeepCopyObject().(client.Object)
			if !ok {
				t.Fatal("it is no object")
			}
			err := user(t, controller).Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(test.patch)), client.DryRunAll)
			if (err == nil) != test.passes {
				t.Errorf("%v, want it to pass: %t", err, test.passes)
			}
		})
	}
}
