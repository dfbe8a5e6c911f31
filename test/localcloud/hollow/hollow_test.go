// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var noon = metav1.NewTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC).Local())

func kubeletsOf(objects ...client.Object) *kubelets {
	return &kubelets{kube: server(objects...), now: func() time.Time { return noon.Time }}
}

func server(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&corev1.Node{}, &corev1.Pod{}).Build()
}

// stored returns the server's version of an object.
func stored[T client.Object](t *testing.T, k *kubelets, of T) T {
	t.Helper()
	out, ok := of.DeepCopyObject().(T)
	if !ok {
		t.Fatalf("a copy of %T is none", of)
	}
	if err := k.kube.Get(t.Context(), client.ObjectKeyFromObject(of), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func hollowNode(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{NodeAnnotation: ""}},
		Status: corev1.NodeStatus{
			Conditions: conditions, Capacity: corev1.ResourceList{},
		},
	}
}

func podOn(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{
			NodeName: node,
			InitContainers: []corev1.Container{
				{Name: "fetch", Image: "i0"},
				{Name: "agent", Image: "i1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "engine", Image: "i2"}},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
}

func TestNodesBecomeReady(t *testing.T) {
	pressure := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "a node without a machine",
		LastHeartbeatTime: noon, LastTransitionTime: noon,
	}
	unheard := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
	foreign := hollowNode()
	foreign.Annotations = nil
	tests := []struct {
		reason string
		node   *corev1.Node
		want   []corev1.NodeCondition
	}{
		{"a new one does", hollowNode(), []corev1.NodeCondition{ready}},
		{"other conditions stay", hollowNode(pressure), []corev1.NodeCondition{pressure, ready}},
		{"one that was given up is again", hollowNode(unheard), []corev1.NodeCondition{ready}},
		{"a real machine's has a kubelet", foreign, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			k := kubeletsOf(test.node)
			got := stored(t, k, test.node)
			if _, err := k.register(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			got = stored(t, k, test.node)
			if diff := cmp.Diff(test.want, got.Status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if isComing(got) && test.want != nil {
				t.Error("it would be written again")
			}
		})
	}
}

func TestPodsRun(t *testing.T) {
	pod := podOn("n")
	k := kubeletsOf(hollowNode(), pod)
	read := stored(t, k, pod)
	if _, err := k.serve(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	got := stored(t, k, pod)
	isTrue := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: noon}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: noon}}
	want := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &noon, PodIP: "10.128.0.2", PodIPs: []corev1.PodIP{{IP: "10.128.0.2"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			isTrue(corev1.PodInitialized), isTrue(corev1.ContainersReady), isTrue(corev1.PodReady),
		},
		InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "fetch", Image: "i0", Ready: true, Started: new(false), State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: noon, FinishedAt: noon},
			}},
			{Name: "agent", Image: "i1", Ready: true, Started: new(true), State: running},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "engine", Image: "i2", Ready: true, Started: new(true), State: running}},
	}
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if isWaiting(got) {
		t.Error("it would be written again")
	}
	// The cache may show it as it was for a while.
	if _, err := k.serve(t.Context(), read); !apierrors.IsConflict(err) {
		t.Errorf("written over with error %v, want a conflict", err)
	}
}

func TestPodsEnd(t *testing.T) {
	pod := podOn("n")
	pod.Status.PodIP, pod.DeletionTimestamp = "10.128.0.2", &noon
	k := kubeletsOf()
	var got client.DeleteOptions
	k.kube = interceptor.NewClient(server(hollowNode()), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if object != pod {
				t.Errorf("%s is deleted", object.GetName())
			}
			got.ApplyOptions(options)
			return nil
		},
	})
	if _, err := k.serve(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := client.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestPodsOfOthers(t *testing.T) {
	foreign := hollowNode()
	foreign.Annotations = nil
	unbound := podOn("")
	for name, pod := range map[string]*corev1.Pod{"on a real machine": podOn("n"), "on no node": unbound} {
		t.Run(name, func(t *testing.T) {
			k := kubeletsOf(foreign, pod)
			if _, err := k.serve(t.Context(), stored(t, k, pod)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(pod.Status, stored(t, k, pod).Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("on a node that is not heard of", func(t *testing.T) {
		pod := podOn("n")
		if result, err := kubeletsOf(pod).serve(t.Context(), pod); err != nil || result.RequeueAfter == 0 {
			t.Errorf("got %v, error %v, so it would not be looked at again", result, err)
		}
	})
}

func TestAddress(t *testing.T) {
	for n, want := range map[uint32]string{1: "10.128.0.2", 255: "10.128.1.0", 65533: "10.128.255.254", 65534: "10.128.0.2"} {
		if got := address(n); got != want {
			t.Errorf("pod %d: got %s, want %s", n, got, want)
		}
	}
}

// TestNodesReport checks that a Ready node reports its status as often as a kubelet does: a controller of nodes has to
// bear that at rest.
func TestNodesReport(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: noon}
	foreign := hollowNode(ready)
	foreign.Annotations = nil
	beating := ready
	beating.LastHeartbeatTime = noon
	for _, test := range []struct {
		reason string
		node   *corev1.Node
		want   corev1.NodeCondition
		again  time.Duration
	}{
		{"it renews its heartbeat, and nothing else", hollowNode(ready), beating, heartbeat},
		{"a real machine's has a kubelet", foreign, ready, 0},
	} {
		t.Run(test.reason, func(t *testing.T) {
			k := kubeletsOf(test.node)
			result, err := k.register(t.Context(), stored(t, k, test.node))
			if err != nil {
				t.Fatal(err)
			}
			got := stored(t, k, test.node).Status.Conditions
			if diff := cmp.Diff([]corev1.NodeCondition{test.want}, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if result.RequeueAfter != test.again {
				t.Errorf("it reports again after %s, want %s", result.RequeueAfter, test.again)
			}
		})
	}
	k := kubeletsOf(hollowNode())
	result, err := k.register(t.Context(), stored(t, k, hollowNode()))
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > heartbeat+time.Second {
		t.Errorf("a new node reports after %s, %v; want within %s", result.RequeueAfter, err, heartbeat)
	}
	if firstHeartbeat("node-1") == firstHeartbeat("node-2") {
		t.Error("two nodes report at the same moment")
	}
}
