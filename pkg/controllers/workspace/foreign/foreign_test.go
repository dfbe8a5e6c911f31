// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// pools are the names of KAITO's machines.
type pools []string

func (p pools) Of(context.Context, types.NamespacedName) ([]string, error)      { return p, nil }
func (p pools) Release(context.Context, types.NamespacedName) ([]string, error) { return nil, nil }

func cluster(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func workspace() *v1beta1.Workspace {
	return &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "chat", UID: "1", Generation: 2, Annotations: map[string]string{v1beta1.AnnotationHash: "f6d7"},
		},
		Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}},
	}
}

func ownedBy(ws *v1beta1.Workspace) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: ws.Namespace, Name: ws.Name, UID: types.UID("uid-of-" + ws.Name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
	}
}

func pod(set *appsv1.StatefulSet, name string, isReady corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: map[string]string{v1beta1.LabelWorkspace: set.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: isReady}}},
	}
}

// TestLook covers the states of a Workspace with objects of KAITO's controller.
func TestLook(t *testing.T) {
	ws := workspace()
	set := &appsv1.StatefulSet{ObjectMeta: ownedBy(ws)}
	other := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "chat", UID: "another"}}
	deployment := &appsv1.Deployment{ObjectMeta: ownedBy(ws)}
	consent := func(ws *v1beta1.Workspace) {
		ws.Annotations[v1beta1.AnnotationAdopted] = `{"uid":"1","generation":2,"spec":"s","pods":2}`
	}
	edited := func(ws *v1beta1.Workspace) { consent(ws); ws.Generation++ }
	for _, test := range []struct {
		reason  string
		change  func(*v1beta1.Workspace)
		set     *appsv1.StatefulSet
		pools   pools
		planned bool
		objects []client.Object
		// The result of the pass, the counted pods, and a part of the message.
		kept, frozen, replaced bool
		state                  takeover.State
		pods                   takeover.Pods
		says                   string
	}{
		{reason: "nothing of KAITO's", change: func(*v1beta1.Workspace) {}},
		{
			reason: "nobody agreed", change: func(*v1beta1.Workspace) {}, set: set, pools: pools{"NodePool ns-chat"}, kept: true,
			says: "made StatefulSet chat, NodePool ns-chat for this Workspace, so Modelberth changes nothing. To take the Workspace over without a restart, run: kubectl berth adopt chat -n ns",
		},
		{
			reason: "frozen, and all pods are ready", change: consent, set: set, kept: true, frozen: true, state: takeover.Frozen,
			objects: []client.Object{pod(set, "chat-0", "True"), pod(set, "chat-1", "True"), pod(other, "stranger", "True")},
			pods:    takeover.Pods{Ready: 2, Wanted: 2}, says: "runs as KAITO's controller left it",
		},
		{
			reason: "frozen, and a pod is not ready", change: consent, set: set, kept: true, frozen: true, state: takeover.Frozen,
			objects: []client.Object{pod(set, "chat-0", "True"), pod(set, "chat-1", "False")},
			pods:    takeover.Pods{Ready: 1, Wanted: 2}, says: "runs as KAITO's controller left it",
		},
		{reason: "edited", change: edited, set: set, replaced: true, state: takeover.Edited},
		{reason: "edited, and ours serves beside KAITO's machines", change: edited, pools: pools{"NodePool ns-chat"}, planned: true, state: takeover.Edited},
		{
			reason: "an edit, with a Deployment", change: edited, objects: []client.Object{deployment}, kept: true,
			says: "to continue, run kubectl delete deployment chat -n ns; or revert the edit",
		},
		{
			reason: "frozen, with a Deployment", change: consent, objects: []client.Object{deployment}, kept: true, frozen: true,
			state: takeover.Frozen, pods: takeover.Pods{Wanted: 2}, says: "runs as KAITO's controller left it",
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspace()
			test.change(ws)
			c := cluster(t, test.objects...)
			guard := &foreign.Guard{Cached: c, Live: c, Machines: test.pools}
			held, err := guard.Look(t.Context(), foreign.Seen{Workspace: ws, Set: test.set, IsPlanned: test.planned})
			got := []any{held.IsKept(), held.IsFrozen(), held.IsReplaced(), held.State, held.Pods}
			if diff := cmp.Diff([]any{test.kept, test.frozen, test.replaced, test.state, test.pods}, got); diff != "" {
				t.Errorf("kept, frozen, replaced, state, pods (-want +got):\n%s", diff)
			}
			_, isStalled := errors.AsType[*progress.StalledError](err)
			if (err != nil) != test.kept || isStalled != (test.kept && !test.frozen) {
				t.Fatalf("error %v, stalled %v", err, isStalled)
			}
			if err != nil && !strings.Contains(progress.Message(err), test.says) {
				t.Errorf("message %q, want %q in it", progress.Message(err), test.says)
			}
		})
	}
}

// TestCede turns KAITO's Service into ours but keeps its address, and leaves the Services of others alone.
func TestCede(t *testing.T) {
	ws := workspace()
	theirs := func(change ...func(*corev1.Service)) *corev1.Service {
		out := &corev1.Service{ObjectMeta: ownedBy(ws), Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.190.54", PublishNotReadyAddresses: true, Selector: map[string]string{"statefulset.kubernetes.io/pod-name": "chat-0"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "ray", Port: 6379}, {Name: "dashboard", Port: 8265}},
		}}
		for _, each := range change {
			each(out)
		}
		return out
	}
	ours := &corev1.Service{ObjectMeta: ownedBy(ws), Spec: corev1.ServiceSpec{
		Selector: map[string]string{appsv1.PodIndexLabel: "0"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	ours.Labels = map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	for _, test := range []struct {
		reason  string
		found   *corev1.Service
		changes bool
	}{
		{"KAITO's", theirs(), true},
		{"another owner's", theirs(func(s *corev1.Service) { s.OwnerReferences = nil }), false},
		{"that of a former Workspace", theirs(func(s *corev1.Service) { s.OwnerReferences[0].UID = "2" }), false},
		{"ours already", theirs(func(s *corev1.Service) { s.Labels = ours.Labels }), false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c := cluster(t, test.found)
			guard := &foreign.Guard{Cached: c, Live: c}
			before := &corev1.Service{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(ours), before); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := guard.Cede(t.Context(), c, ours); err != nil {
					t.Fatal(err)
				}
			}
			after := &corev1.Service{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(ours), after); err != nil {
				t.Fatal(err)
			}
			want := before.DeepCopy()
			if test.changes {
				want.Labels, want.Spec.Ports, want.Spec.Selector = ours.Labels, ours.Spec.Ports, ours.Spec.Selector
				want.Spec.PublishNotReadyAddresses = false
			}
			want.ResourceVersion, after.ResourceVersion = "", ""
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("Service (-want +got):\n%s", diff)
			}
		})
	}
	if err := (&foreign.Guard{Live: cluster(t)}).Cede(t.Context(), nil, ours); err != nil {
		t.Errorf("without a Service: %v", err)
	}
}

// TestDeleteSet deletes KAITO's StatefulSet by its UID, after adding the label that the controller needs for a
// deletion. Once the StatefulSet is gone, nothing happens.
func TestDeleteSet(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: ownedBy(workspace())}
	c := cluster(t, set.DeepCopy())
	deletions := 0
	writer := interceptor.NewClient(c, interceptor.Funcs{
		Delete: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			deletions++
			chosen := (&client.DeleteOptions{}).ApplyOptions(options)
			if chosen.Preconditions == nil || chosen.Preconditions.UID == nil || *chosen.Preconditions.UID != set.UID {
				t.Errorf("preconditions %v, want the UID", chosen.Preconditions)
			}
			marked := &appsv1.StatefulSet{}
			if err := inner.Get(ctx, client.ObjectKeyFromObject(set), marked); err != nil || marked.Labels[v1beta1.LabelWorkspace] != "chat" {
				t.Errorf("labels %v before the deletion (error %v)", marked.Labels, err)
			}
			return inner.Delete(ctx, object, options...)
		},
	})
	guard := &foreign.Guard{Cached: c, Live: c}
	for range 2 {
		if err := guard.DeleteSet(t.Context(), writer, set); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set), &appsv1.StatefulSet{}); !apierrors.IsNotFound(err) || deletions != 1 {
		t.Errorf("%d deletions, error %v; want 1, and that it is gone", deletions, err)
	}
}
