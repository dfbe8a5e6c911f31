// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// scheduler has the right to create Bindings in all namespaces, by a role of the API server's own.
const scheduler = "system:kube-scheduler"

// bind sends a Binding to one of its two resources. The API server then sets the pod's node.
var bind = map[string]func(context.Context, client.Client, *corev1.Pod, *corev1.Binding) error{
	"pods/binding": func(ctx context.Context, c client.Client, pod *corev1.Pod, binding *corev1.Binding) error {
		return c.SubResource("binding").Create(ctx, pod, binding)
	},
	"bindings": func(ctx context.Context, c client.Client, _ *corev1.Pod, binding *corev1.Binding) error {
		return c.Create(ctx, binding)
	},
}

// TestBindingsSetNoMarks: the API server copies the labels and annotations of a Binding to its pod. The binder and the
// owner may bind the pods of one namespace only.
func TestBindingsSetNoMarks(t *testing.T) {
	label := metav1.ObjectMeta{Labels: map[string]string{v1beta1.LabelWorkspace: "other"}}
	annotation := metav1.ObjectMeta{Annotations: map[string]string{v1beta1.AnnotationMachine: "{}"}}
	own := metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"team": "a"}}
	tests := []struct {
		reason, user string
		meta         metav1.ObjectMeta
		// mark is in the message; empty means: the Binding passes, and the pod has its metadata.
		mark string
	}{
		{reason: "a binder's label", user: "binder", meta: label, mark: "label kaito.sh/workspace=other"},
		{reason: "a binder's annotation", user: "binder", meta: annotation, mark: "annotation modelberth.dev/machine={}"},
		{reason: "the label of the namespace's owner", user: "owner", meta: label, mark: "label kaito.sh/workspace=other"},
		{reason: "a binder without marks", user: "binder"},
		{reason: "a binder with marks of his own", user: "binder", meta: own},
		{reason: "the scheduler without marks", user: scheduler},
		{reason: "the scheduler's label", user: scheduler, meta: label},
		{reason: "the scheduler's annotation", user: scheduler, meta: annotation},
	}
	for resource, create := range bind {
		for _, test := range tests {
			t.Run(resource+"/"+test.reason, func(t *testing.T) {
				pod := unbound(t)
				binding := &corev1.Binding{ObjectMeta: *test.meta.DeepCopy(), Target: corev1.ObjectReference{Kind: "Node", Name: "a"}}
				binding.Namespace, binding.Name = pod.Namespace, pod.Name
				err := create(t.Context(), user(t, test.user), pod.DeepCopy(), binding)
				if test.mark == "" {
					if err != nil {
						t.Fatal(err)
					}
					requireBound(t, pod, test.meta)
					return
				}
				if err == nil {
					t.Fatalf("it passes, want a refusal of the %s", test.mark)
				}
				for _, want := range []string{
					"remove " + test.mark + " from the metadata of Binding team-a/" + pod.Name + ", or",
					"the right to create pods/binding in all namespaces",
				} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the message lacks %q: %v", want, err)
					}
				}
			})
		}
	}
}

// unbound creates a pod without a node.
func unbound(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := podOf("", nil)
	pod.GenerateName = "unbound-"
	if err := api.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = api.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0))
	})
	return pod
}

// requireBound fails unless the pod has its node, and the labels and annotations of its Binding.
func requireBound(t *testing.T, pod *corev1.Pod, meta metav1.ObjectMeta) {
	t.Helper()
	bound := &corev1.Pod{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), bound); err != nil {
		t.Fatal(err)
	}
	if bound.Spec.NodeName != "a" {
		t.Errorf("the pod is on the node %q, want a", bound.Spec.NodeName)
	}
	for key, want := range meta.Labels {
		if bound.Labels[key] != want {
			t.Errorf("label %s = %q, want %q: the API server did not copy it", key, bound.Labels[key], want)
		}
	}
	for key, want := range meta.Annotations {
		if bound.Annotations[key] != want {
			t.Errorf("annotation %s = %q, want %q: the API server did not copy it", key, bound.Annotations[key], want)
		}
	}
}
