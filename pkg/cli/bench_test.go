// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// paced answers with two tokens, one second after the request.
func paced(clock *clocktesting.FakeClock) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		clock.Step(time.Second)
		stream(w, `{"content":"a"}`, `{"content":"b"}`)
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":2}}`+"\n\n"+done)
	}
}

// TestBench varies the load of the requests, and records the result for KAITO's clients.
func TestBench(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	c, s := serves(t, paced(clock))
	c.objects = append(c.objects, revision(t, 2, 1.5, nil))
	store := c.client(t)
	got := c.run(t, session{clock: clock, objects: store}, "bench", "chat", "--requests", "4", "--concurrency", "1",
		"--input-tokens", "6", "--output-tokens", "2", "--record", "-o", "json")
	if got.Code != 0 || got.Err != "Recorded as peakTokensPerMinute of Workspace team-a/chat.\n" {
		t.Fatalf("%+v", got)
	}
	var result map[string]any
	if err := json.Unmarshal([]byte(got.Out), &result); err != nil {
		t.Fatal(err)
	}
	if _, found := result["predicted"]; !found {
		t.Error("the plan's prediction is missing")
	}
	delete(result, "predicted")
	second := map[string]any{"p50": 1000.0, "p90": 1000.0}
	want := map[string]any{
		"requests": 4.0, "concurrency": 1.0, "inputTokens": 6.0, "outputTokens": 2.0, "durationSeconds": 4.0, "failed": 0.0,
		"meanInputTokens": 12.0, "meanOutputTokens": 2.0, "ttftMs": second, "tpotMs": map[string]any{"p50": 0.0, "p90": 0.0},
		"requestTokensPerSecond": map[string]any{"p50": 0.0, "p90": 0.0}, "outputTokensPerSecond": 2.0, "tokensPerMinute": 840.0,
	}
	if diff := cmp.Diff(want, result); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	prompts := map[string]bool{}
	for _, q := range s.asked {
		var asked struct{ Messages []struct{ Content string } }
		if err := reread(q, &asked); err != nil {
			t.Fatal(err)
		}
		prompts[asked.Messages[0].Content] = true
	}
	wantPrompts := map[string]bool{"-1 the the the the the": true, "0 the the": true, "1 the the": true, "2 the the": true, "3 the the": true}
	if diff := cmp.Diff(wantPrompts, prompts); diff != "" {
		t.Errorf("prompts (-want +got):\n%s", diff)
	}
	ws := &v1beta1.Workspace{}
	if err := store.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "chat"}, ws); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]v1beta1.Metric{"peakTokensPerMinute": {
		Description: "tokens in and out per minute under the load of kubectl berth bench", Value: "840", Unit: "tokens/min",
		Config: map[string]string{
			"durationSec": "4.00", "inputTokens": "6", "outputTokens": "2", "maxConcurrency": "1", "engine": "vllm", "engineVersion": "v0.31.0",
			"quantization": "bf16",
		},
	}}
	if diff := cmp.Diff(metrics, ws.Status.Performance.Metrics); diff != "" {
		t.Errorf("status.performance (-want +got):\n%s", diff)
	}
	wantCondition := metav1.Condition{
		Type: "BenchmarkCompleted", Status: metav1.ConditionTrue, Reason: "BenchmarkCompleted", ObservedGeneration: 2,
		Message: "kubectl berth bench has recorded its result",
	}
	last := ws.Status.Conditions[len(ws.Status.Conditions)-1]
	if diff := cmp.Diff(wantCondition, last, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
		t.Errorf("condition (-want +got):\n%s", diff)
	}
}

// reread converts an object to a type.
func reread(from, into any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func TestBenchErrors(t *testing.T) {
	refuses := func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"too many tokens"}}`)
	}
	later := func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 3 {
			refuses(w, r, n)
			return
		}
		sky(w, r, n)
	}
	notAllowed := interceptor.Funcs{SubResourcePatch: func(
		context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption,
	) error {
		return forbidden("workspaces/status")
	}}
	tests := []struct {
		reason string
		answer func(http.ResponseWriter, *http.Request, int)
		faults interceptor.Funcs
		args   string
		want   string
		code   int
	}{
		{"a negative number", sky, interceptor.Funcs{}, "--concurrency -1", "--concurrency is -1: it must be at least 1", 2},
		{"the server refuses at once", refuses, interceptor.Funcs{}, "", "the model's server rejects the request: too many tokens", 5},
		{
			"one of them failed: nothing is recorded", later,
			interceptor.Funcs{},
			"--requests 2 --record",
			"nothing is recorded: 1 request failed: the model's server rejects the request: too many tokens", 5,
		},
		{
			"no right to write the status", sky, notAllowed, "--requests 1 --record",
			`status of Workspace team-a/chat: permission denied: workspaces/status is forbidden: user "mia" cannot do that`, 5,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c, _ := serves(t, test.answer)
			c.faults = test.faults
			got := c.run(t, session{}, append([]string{"bench", "chat", "-o", "json"}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(ran{Err: "kubectl berth bench: " + test.want + "\n", Code: test.code}, ran{Err: got.Err, Code: got.Code}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
