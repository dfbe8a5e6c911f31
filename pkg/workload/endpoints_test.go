// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestKeepEndpoints: a cache keeps the pods that get requests, and nothing else that grows with a slice.
func TestKeepEndpoints(t *testing.T) {
	endpoint := func(uid types.UID, isReady *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{
			Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: isReady}, NodeName: new("node-a"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: uid},
		}
	}
	labels := map[string]string{discoveryv1.LabelServiceName: "chat"}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "chat-x", Labels: labels, Annotations: map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "now"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager"}},
		},
		Endpoints: []discoveryv1.Endpoint{
			endpoint("ready", new(true)), endpoint("starting", new(false)), endpoint("unset", nil), {Addresses: []string{"10.0.0.2"}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("http")}},
	}
	got, err := KeepEndpoints(slice)
	if err != nil {
		t.Fatal(err)
	}
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "chat-x", Labels: labels},
		Endpoints: []discoveryv1.Endpoint{
			{TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "ready"}}, {TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: "unset"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]types.UID{"ready", "unset"}, ReadyEndpoints(*want, *want)); diff != "" {
		t.Errorf("pods of two slices (-want +got):\n%s", diff)
	}
}

func TestEndpointOf(t *testing.T) {
	for _, test := range []struct{ reason, service, want string }{
		{"the Service of the Workspace", "chat", "chat"},
		{"the headless Service of a group, which also has pods that are not ready", "chat-headless", ""},
		{"no Service", "", ""},
	} {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{v1beta1.LabelWorkspace: "chat", discoveryv1.LabelServiceName: test.service},
		}}
		if got := EndpointOf(slice); got != test.want {
			t.Errorf("%s: %q, want %q", test.reason, got, test.want)
		}
	}
}
