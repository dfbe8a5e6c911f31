// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vllmModel is the model of the local cloud that vLLM serves, as its Workspaces answer to.
const vllmModel = "tiny-chat-vllm"

// vllmWorkspace asks for less of a processor than vLLM needs: a node of the local cloud has this machine's.
const vllmWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: chat
inference:
  preset:
    name: ` + vllmModel + `
  pod:
    cpu: 100m
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
	if diff := cmp.Diff(ws.Status.Endpoint.Models, listedModels(t, ws)); diff != "" {
		t.Errorf("names in status.endpoint.models and in /v1/models (-status +endpoint):\n%s", diff)
	}
	if metrics := curl(t, ns, ws.Status.Endpoint.URL+"/metrics"); !strings.Contains(metrics, "\nvllm:num_requests_running{") {
		t.Errorf("the endpoint has no metric vllm:num_requests_running:\n%s", metrics)
	}
}
