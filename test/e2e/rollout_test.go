// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// rollout is a change of an answering model, so slow that an answer outlasts the beginning of its replacement.
type rollout struct {
	manifest, name, model string
	// tokens of the answer under way.
	tokens int
	// edit is the object to patch, and how.
	object, edit string
	// want is among the next pod's arguments.
	want string
}

// The server of slowWorkspace takes a tenth of a second for each token, so that an answer is under way for
// longer than its replacement takes to begin.
const (
	slowWorkspace = vllmWorkspace + `  config: settings
  engine:
    env:
    - name: VLLMSIM_ITL
      value: 100ms
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  inference_config.yaml: |
    vllm:
      seed: 1
`
)

// endlessWorkspace is served by llama.cpp; it forgets the beginning of a long answer. Nothing slows it down: its 3,000
// tokens take about 50 seconds on two busy cores (61 a second were seen, and 40 tokens alone took 23 ms), and would
// outlast the few seconds until the rollout begins at ten times that. Its pod may take as long as the test waits.
const endlessWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: chat
inference:
  preset:
    name: tiny-chat
  engine:
    args:
      context-shift: "true"
  pod:
    cpu: 100m
    terminationGracePeriodSeconds: 600
`

func TestRollout(t *testing.T) {
	for _, tc := range []rollout{
		{
			manifest: slowWorkspace, name: "vLLM", model: vllmModel, tokens: 120,
			object: "configmap/settings", edit: `{"data": {"inference_config.yaml": "vllm:\n  seed: 2\n"}}`, want: "--seed 2",
		},
		{
			manifest: endlessWorkspace, name: "llama.cpp", model: "tiny-chat", tokens: 3_000,
			object: "workspace/chat", edit: `{"inference": {"engine": {"args": {"seed": "2"}}}}`, want: "--seed 2",
		},
	} {
		t.Run(tc.name, tc.run)
	}
}

// run edits an answering model. The answer under way is finished, and a new request gets an answer or no connection,
// never an error of an unready server.
func (r rollout) run(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, ns, r.manifest)
	ws := waitReady(t, ns, "chat")
	before := leader(t, ws)

	stream := startStream(t, ws, r.model, r.tokens)
	asking := startAsking(t, ws, r.model)
	start := time.Now()
	kubectl(t, "patch", r.object, "--namespace="+ns, "--type=merge", "--patch="+r.edit)
	waitFor(t, "the pod that answers to be told to end", readyTimeout, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		err := local.client.Get(ctx, keyOf(before), pod)
		return err == nil && pod.UID == before.UID && pod.DeletionTimestamp != nil, err
	})
	if err := local.client.Get(t.Context(), keyOf(stream), stream); err != nil || stream.Status.Phase != corev1.PodRunning {
		t.Errorf("the answer was over (%s, %v) before the rollout began: it proves nothing", stream.Status.Phase, err)
	}
	waitFor(t, "another pod to serve", readyTimeout, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{}
		err := local.client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "chat-0"}, pod)
		return err == nil && pod.UID != before.UID && isReady(pod), client.IgnoreNotFound(err)
	})
	elapsed(t, "an edit from apply to another pod that serves", start)

	text, _ := awaitCurl(t, stream, time.Minute)
	if tokens := strings.Count(text, `"text"`); tokens < r.tokens || !strings.Contains(text, "data: [DONE]") {
		t.Errorf("the answer under way ended after %d of %d tokens:\n%s", tokens, r.tokens, text[max(0, len(text)-500):])
	}
	waitReady(t, ns, "chat")
	expectAnswers(t, ws, r.model)
	expectOnlyAnswers(t, asking)
	if args := strings.Join(leader(t, ws).Spec.Containers[0].Args, " "); !strings.Contains(args, r.want) {
		t.Errorf("the pod that serves is started with %s, want %s", args, r.want)
	}
}

// otherMachine edits an answering model so that it needs another machine: the old one answers until the new one is
// usable, and the gap is the start of a pod.
func otherMachine(t *testing.T) {
	const before, after = "Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3"
	ns := namespace(t)
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, before))
	ws := waitReady(t, ns, "chat")
	pod := leader(t, ws)
	asking := startAsking(t, ws, tinyModel)
	start := time.Now()
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, after))
	waitFor(t, "the pod that answers to be told to end", readyTimeout, func(ctx context.Context) (bool, error) {
		found := &corev1.Pod{}
		err := local.client.Get(ctx, keyOf(pod), found)
		return err == nil && found.UID == pod.UID && found.DeletionTimestamp != nil, err
	})
	ended := time.Now()
	ws = workspace(t, ns, "chat")
	if len(ws.Status.Attempts) != 2 || ws.Status.Attempts[0].EndTime != nil {
		t.Errorf("the attempts are %+v when the pod ends, want the first one to have its machine and a second one", ws.Status.Attempts)
	}
	waitFor(t, "a pod to serve on the other machine", readyTimeout, func(ctx context.Context) (bool, error) {
		found := &corev1.Pod{}
		err := local.client.Get(ctx, keyOf(pod), found)
		return err == nil && found.UID != pod.UID && isReady(found), client.IgnoreNotFound(err)
	})
	figure(t, "an edit that needs another machine: served by the old one meanwhile", ended.Sub(start))
	elapsed(t, "an edit that needs another machine: without an answer", ended)
	waitAttempts(t, ns, "chat", before+" Released", after)
	ws = waitReady(t, ns, "chat")
	expectAnswers(t, ws, tinyModel)
	expectOnlyAnswers(t, asking)
	waitFor(t, "the former machine to be gone", goneTimeout, func(ctx context.Context) (bool, error) {
		claims, err := claimsOf(ctx, ws.UID)
		return len(claims) == 1, err
	})
	local.ledger.expect(t, ws, 2)
}

// leader is the pod that serves a Workspace.
func leader(t *testing.T, ws *v1beta1.Workspace) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// startStream asks for a long answer in pieces, and returns once the first of them is there.
func startStream(t *testing.T, ws *v1beta1.Workspace, model string, tokens int) *corev1.Pod {
	t.Helper()
	pod := startCurl(t, ws.Namespace, "--no-buffer", "--fail-with-body", "--max-time", strconv.Itoa(int(readyTimeout.Seconds())),
		"--header", "Content-Type: application/json",
		"--data", fmt.Sprintf(`{"model": %q, "prompt": "Hello", "max_tokens": %d, "stream": true, "ignore_eos": true}`, model, tokens),
		baseURL(keyOf(ws))+"/completions")
	waitFor(t, "the first token", time.Minute, func(ctx context.Context) (bool, error) {
		out, err := execute(ctx, local.kubectl, "logs", pod.Name, "--namespace="+ws.Namespace)
		return err == nil && strings.Contains(out, "data: "), nil
	})
	return pod
}

// askedRequests at five in a second outlast a rollout.
const askedRequests = 200

// startAsking asks again and again for a short answer, over a new connection each time, and prints the
// code of each answer and curl's exit code.
func startAsking(t *testing.T, ws *v1beta1.Workspace, model string) *corev1.Pod {
	t.Helper()
	return startCurl(t, ws.Namespace, "--rate", "5/s", "--connect-timeout", "2", "--max-time", "60",
		"--header", "Connection: close", "--header", "Content-Type: application/json",
		"--data", fmt.Sprintf(`{"model": %q, "prompt": "Hello", "max_tokens": 1}`, model),
		"--output", "/dev/null", "--write-out", "%{http_code} %{exitcode}\\n",
		fmt.Sprintf("%s/completions?n=[1-%d]", baseURL(keyOf(ws)), askedRequests))
}

// Exit codes of curl where there was nobody to talk to.
const (
	answered    = "200 0"
	refused     = "000 7"
	unreachable = "000 28"
)

// expectOnlyAnswers counts what became of the requests: an answer, or no connection at all.
func expectOnlyAnswers(t *testing.T, asking *corev1.Pod) {
	t.Helper()
	out, _ := awaitCurl(t, asking, 3*time.Minute)
	counts := map[string]int{}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); len(strings.Fields(line)) == 2 {
			counts[line]++
		}
	}
	t.Logf("requests during the rollout, by HTTP code and curl's exit code: %v", counts)
	wrong := maps.Clone(counts)
	maps.DeleteFunc(wrong, func(outcome string, _ int) bool {
		return outcome == answered || outcome == refused || outcome == unreachable
	})
	if len(wrong) > 0 || counts[answered] < askedRequests/4 {
		t.Errorf("requests during the rollout ended as %v, want answers and refused connections only", counts)
	}
}
