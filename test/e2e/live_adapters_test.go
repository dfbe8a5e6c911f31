// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// liveWorkspace has one adapter, and slots for two more.
const liveWorkspace = vllmWorkspace + `  adapterUpdates: Live
  engine: {args: {max-loras: "3"}}
  adapters:
  - source: {name: first, repository: modelberth/tiny-chat-vllm-lora}
`

// TestLiveAdapters changes the adapters of a running engine. The pod stays, and no client can load an adapter.
func TestLiveAdapters(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, liveWorkspace)
	ws := waitReady(t, ns, "chat")
	waitAdapters(t, ws, "first")
	pod := servingPod(t, ws)
	for _, path := range []string{"/v1/load_lora_adapter", "/v1/load%5Flora_adapter", "/adapters"} {
		answer := curl(t, ns, "--no-fail-with-body", "--write-out", "%{http_code}", "--header", "Content-Type: application/json",
			"--data", `{"lora_name": "evil", "lora_path": "/models"}`, ws.Status.Endpoint.URL+path)
		if !strings.HasSuffix(answer, "403") {
			t.Errorf("%s is answered %s", path, answer)
		}
	}

	start := time.Now()
	apply(t, ns, liveWorkspace+"  - source: {name: second, repository: modelberth/tiny-chat-vllm-lora}\n")
	waitAdapters(t, ws, "first", "second")
	elapsed(t, "an adapter from the edit to the status, without a restart", start)
	for _, name := range []string{"first", "second", vllmModel} {
		completion(t, ws, name)
	}

	apply(t, ns, strings.Replace(liveWorkspace, "name: first", "name: third", 1))
	waitAdapters(t, ws, "third")
	completion(t, ws, "third")
	waitFor(t, "the engine to unload the others", time.Minute, func(context.Context) (bool, error) {
		listed := listedModels(t, keyOf(ws))
		return !slices.Contains(listed, "first") && !slices.Contains(listed, "second"), fmt.Errorf("listed: %v", listed)
	})
	if after := servingPod(t, ws); after.UID != pod.UID || restarts(after) != restarts(pod) {
		t.Error("a change of adapters replaced or restarted the pod")
	}

	// A new pod has the adapters of the spec before it is ready.
	kubectl(t, "delete", "pod", "--namespace="+ns, pod.Name)
	waitFor(t, "another pod to be ready", readyTimeout, func(ctx context.Context) (bool, error) {
		next := &corev1.Pod{}
		err := local.client.Get(ctx, client.ObjectKeyFromObject(pod), next)
		isReady := slices.ContainsFunc(next.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		return err == nil && next.UID != pod.UID && isReady, err
	})
	completion(t, ws, "third")
}

func waitAdapters(t *testing.T, ws *v1beta1.Workspace, want ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("adapters %v", want), time.Minute, func(ctx context.Context) (bool, error) {
		if err := local.client.Get(ctx, client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err
		}
		var got []string
		for _, a := range ws.Status.Adapters {
			if a.State == v1beta1.AdapterLoaded {
				got = append(got, a.Name)
			}
		}
		return slices.Equal(got, want), fmt.Errorf("adapters %+v", ws.Status.Adapters)
	})
}

func servingPod(t *testing.T, ws *v1beta1.Workspace) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}
