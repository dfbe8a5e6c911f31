// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// TestEarlierRevision checks that a revision pinned by an earlier version still gives the same Service and StatefulSet.
// With one field more or less, an upgrade would restart every running model. Commit 349b578 wrote testdata/earlier; do
// not write it again.
func TestEarlierRevision(t *testing.T) {
	raw, err := os.ReadFile("testdata/earlier/revision.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/earlier/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	revision, err := render.Decode(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: raw}})
	if err != nil {
		t.Fatal(err)
	}
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "qwen2.5-0.5b-instruct"}}}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "uid-1"
	ws.Labels = map[string]string{v1beta1.LabelInferenceSet: "chat-set"}
	service, sets := revision.Network(ws, workload.Settings{}, nil)[0], revision.Pods(ws, "chat-0123456789", workload.GroupOf(nil))
	var got string
	for _, object := range append([]render.Object{service}, sets...) {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got += "---\n" + string(text)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("what runs would be restarted (-earlier +now):\n%s", diff)
	}
}

// Pods of an earlier version publish prompts to any client that reaches them, and an upgrade does not restart them. So
// a NetworkPolicy must block other clients.
func TestEarlierPublisherIsClosedWithoutRestart(t *testing.T) {
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "some-model"}}}
	ws.Namespace, ws.Name = "team-a", "chat"
	revision := render.Revision{Rendered: render.Rendered{KVEventsPort: 5557}}
	revision.Plan.Nodes = 1
	router := workload.Consumer{Namespace: "router-system", PodLabels: map[string]string{"app": "router"}}
	for _, tc := range []struct {
		reason   string
		consumer workload.Consumer
		want     []string
	}{
		{"nobody is named", workload.Consumer{}, []string{"5000 from everybody"}},
		{"a router is named", router, []string{"5000 from everybody", "5557 from kubernetes.io/metadata.name=router-system app=router"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			var policy *networkingv1.NetworkPolicy
			for _, object := range revision.Network(ws, workload.Settings{KVEvents: tc.consumer}, nil) {
				if found, ok := object.(*networkingv1.NetworkPolicy); ok {
					policy = found
				}
			}
			var got []string
			for _, rule := range policy.Spec.Ingress {
				from := "everybody"
				for _, peer := range rule.From {
					from = metav1.FormatLabelSelector(peer.NamespaceSelector) + " " + metav1.FormatLabelSelector(peer.PodSelector)
				}
				for _, port := range rule.Ports {
					got = append(got, port.Port.String()+" from "+from)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("who reaches what (-want +got):\n%s", diff)
			}
		})
	}
	before := revision.Pods(ws, "chat-1", workload.GroupOf(nil))
	revision.Network(ws, workload.Settings{KVEvents: router}, nil)
	if diff := cmp.Diff(before, revision.Pods(ws, "chat-1", workload.GroupOf(nil))); diff != "" {
		t.Errorf("the pods depend on who is named (-before +after):\n%s", diff)
	}
}
