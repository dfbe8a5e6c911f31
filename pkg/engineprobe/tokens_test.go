// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/pkg/engineprobe"
)

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		reason, engine, metrics, key string
		want                         engineprobe.Tokens
		wantErr                      string
	}{
		{
			reason: "vLLM, with the start of its process", engine: "vllm",
			metrics: "# HELP vllm:prompt_tokens_total Number of prefill tokens processed.\n# TYPE vllm:prompt_tokens_total counter\n" +
				`vllm:prompt_tokens_total{engine="0",model_name="a} 7"} 1.234e+03` + "\n" +
				`vllm:prompt_tokens_created{engine="0",model_name="tiny"} 1.79e+09` + "\n" +
				`vllm:generation_tokens_total{engine="0",model_name="tiny"} 56.0 1790000000000` + "\n" +
				"process_start_time_seconds 1.79034567e+09\n",
			want: engineprobe.Tokens{Prompt: 1234, Output: 56, Started: "1.79034567e+09"},
		},
		{
			reason: "the replicas of a model are added", engine: "vllm",
			metrics: `vllm:prompt_tokens_total{engine="0"} 1` + "\n" + `vllm:prompt_tokens_total{engine="1"} 2` + "\n" +
				`vllm:generation_tokens_total{engine="0"} 3` + "\n" + `vllm:generation_tokens_total{engine="1"} 4`,
			want: engineprobe.Tokens{Prompt: 3, Output: 7},
		},
		{
			reason: "llama.cpp, behind a key", engine: "llamacpp", key: "secret",
			metrics: "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 12\nllamacpp:tokens_predicted_total 34\n",
			want:    engineprobe.Tokens{Prompt: 12, Output: 34},
		},
		{
			reason: "nonsense counts as nothing", engine: "llamacpp",
			metrics: "llamacpp:prompt_tokens_total NaN\nllamacpp:tokens_predicted_total -5\nllamacpp:prompt_tokens_total +Inf\n",
			want:    engineprobe.Tokens{},
		},
		{
			reason: "the counters of another engine", engine: "vllm", metrics: "llamacpp:prompt_tokens_total 12\n",
			wantErr: "/metrics has no token counters",
		},
		{
			reason: "a line without an end", engine: "vllm", metrics: strings.Repeat("a", 1<<20),
			wantErr: "reading /metrics: bufio.Scanner: token too long",
		},
		{
			reason: "an engine of a user's own", engine: "other", wantErr: `engine "other" has no known token counters`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" || tc.key != "" && r.Header.Get("Authorization") != "Bearer "+tc.key {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write([]byte(tc.metrics))
			}))
			defer server.Close()
			got, err := engineprobe.New().Tokens(t.Context(), tc.engine, engineprobe.Endpoint{
				Address: strings.TrimPrefix(server.URL, "http://"), Key: tc.key,
			})
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(got, "Speed")); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

// TestSpeed: Tokens returns the same speed as Signals, and needs no further request.
func TestSpeed(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = w.Write([]byte(vllmMetrics + "vllm:prompt_tokens_total 1\nvllm:generation_tokens_total 2\n"))
	}))
	defer server.Close()
	at := engineprobe.Endpoint{Address: strings.TrimPrefix(server.URL, "http://")}
	tokens, err := engineprobe.New().Tokens(t.Context(), "vllm", at)
	if err != nil || requests != 1 {
		t.Errorf("%d requests, error %v", requests, err)
	}
	signals, err := engineprobe.New().Signals(t.Context(), "vllm", at)
	if err != nil || requests != 2 {
		t.Errorf("%d requests, error %v", requests, err)
	}
	want := engineprobe.Speed{
		Running: 5, Waiting: 1, TokenTime: engineprobe.Sum{Seconds: 40, Count: 1000},
		Prompt: engineprobe.Amount{Tokens: 9500, Requests: 14}, Output: engineprobe.Amount{Tokens: 1014, Requests: 14}, Started: 1.79034567e+09,
	}
	for name, got := range map[string]engineprobe.Speed{"counters": tokens.Speed, "signals": signals.Speed} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
