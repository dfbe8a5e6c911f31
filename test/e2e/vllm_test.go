// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// vllmModel is the model of the local cloud that vLLM serves, as its Workspaces answer to.
const vllmModel = "tiny-chat-vllm"

const vllmWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: chat
inference:
  preset:
    name: ` + vllmModel + `
`

// TestVLLM serves a whole repository of safetensors by the strict stand-in for vLLM: every flag of the
// rendered command passes its parser, or the pod never becomes ready.
func TestVLLM(t *testing.T) {
	ns := namespace(t)
	start := time.Now()
	apply(t, ns, vllmWorkspace)
	ws := waitReady(t, ns, "chat")
	elapsed(t, "a Workspace of vLLM from manifest to ready", start)
	stages(t, ws)
	expectAnswers(t, ws, vllmModel)
	if diff := cmp.Diff(ws.Status.Endpoint.Models, listedModels(t, keyOf(ws))); diff != "" {
		t.Errorf("names in status.endpoint.models and in /v1/models (-status +endpoint):\n%s", diff)
	}
	if metrics := curl(t, ns, ws.Status.Endpoint.URL+"/metrics"); !strings.Contains(metrics, "\nvllm:num_requests_running{") {
		t.Errorf("the endpoint has no metric vllm:num_requests_running:\n%s", metrics)
	}
}

// kaitoExample applies an example of KAITO's as it is. The machine has the processors and memory that a real model's
// pod requests, and the hub has a stand-in for its weights.
func kaitoExample(t *testing.T) {
	const name, model, machine = "workspace-phi-4-mini", "phi-4-mini-instruct", "Standard_NC24ads_A100_v4"
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename=testdata/kaito-phi-4-mini.yaml")
	ws := waitReady(t, ns, name)
	expectAnswers(t, ws, model)
	nodes := &corev1.NodeList{}
	if err := local.client.List(t.Context(), nodes, client.MatchingLabels{"apps": "phi-4", corev1.LabelInstanceTypeStable: machine}); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 1 {
		t.Fatalf("%d nodes have the manifest's label and machine type, want 1", len(nodes.Items))
	}
	capacity := nodes.Items[0].Status.Capacity
	got := []string{capacity.Cpu().String(), capacity.Memory().String(), capacity.Name("nvidia.com/gpu", resource.DecimalSI).String()}
	if diff := cmp.Diff([]string{"24", "220Gi", "1"}, got); diff != "" {
		t.Errorf("processors, memory and GPUs of a %s (-want +got):\n%s", machine, diff)
	}
}
