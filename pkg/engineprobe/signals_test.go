// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// The metrics of two replicas of a model in one vLLM 0.12.
const vllmMetrics = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m } 7"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 9.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 7.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 14.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 40.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 1000.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 60.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 14.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 2.0
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 14.0
vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="m"} 0.0
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 10.0
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 9000.0
vllm:request_prompt_tokens_count{engine="1",model_name="m"} 4.0
vllm:request_prompt_tokens_sum{engine="1",model_name="m"} 500.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 14.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 1014.0
process_start_time_seconds 1.79034567e+09
`

// The metrics of llama.cpp, without the comments.
const llamacppMetrics = `llamacpp:prompt_tokens_total 30
llamacpp:tokens_predicted_total 200
llamacpp:tokens_predicted_seconds_total 4.5
llamacpp:requests_processing 3
llamacpp:requests_deferred 2
`

func TestSignals(t *testing.T) {
	nan := math.NaN()
	none := engineprobe.Sum{Seconds: nan, Count: nan}
	bare := engineprobe.Signals{
		Speed: engineprobe.Speed{
			Running: 1, TokenTime: none, Started: nan,
			Prompt: engineprobe.Amount{Tokens: nan, Requests: nan}, Output: engineprobe.Amount{Tokens: nan, Requests: nan},
		},
		KVCacheUse: nan, Finished: nan, FirstToken: none, EndToEnd: none, Queued: none,
	}
	with := func(s engineprobe.Signals, change func(*engineprobe.Signals)) engineprobe.Signals {
		change(&s)
		return s
	}
	tests := []struct {
		reason, engine string
		answers        map[string]string
		want           engineprobe.Signals
		wantErr        string
		isMalformed    bool
	}{
		{
			reason: "vLLM with two replicas of the model", engine: "vllm", answers: map[string]string{"/metrics": vllmMetrics},
			want: engineprobe.Signals{
				Speed: engineprobe.Speed{
					Running: 5, Waiting: 1, TokenTime: engineprobe.Sum{Seconds: 40, Count: 1000}, Started: 1.79034567e+09,
					Prompt: engineprobe.Amount{Tokens: 9500, Requests: 14}, Output: engineprobe.Amount{Tokens: 1014, Requests: 14},
				},
				KVCacheUse: 0.375, Finished: 14, FirstToken: engineprobe.Sum{Seconds: 7.5, Count: 14},
				EndToEnd: engineprobe.Sum{Seconds: 60, Count: 14}, Queued: engineprobe.Sum{Seconds: 2, Count: 14},
			},
		},
		{
			reason: "an older vLLM", engine: "vllm", answers: map[string]string{"/metrics": "vllm:num_requests_running 1\n" +
				"vllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.5\n" +
				"vllm:time_per_output_token_seconds_sum 3\nvllm:time_per_output_token_seconds_count 100\n"},
			want: with(bare, func(s *engineprobe.Signals) {
				s.KVCacheUse, s.TokenTime = 0.5, engineprobe.Sum{Seconds: 3, Count: 100}
			}),
		},
		{
			reason: "a share that is no number is unknown, and the rest counts", engine: "vllm",
			answers: map[string]string{"/metrics": "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc NaN\n"},
			want:    bare,
		},
		{
			reason: "a number of requests below zero", engine: "vllm", isMalformed: true,
			answers: map[string]string{"/metrics": "vllm:num_requests_running -1\nvllm:num_requests_waiting 0\n"},
			wantErr: "malformed: /metrics lacks the number of running or of waiting requests",
		},
		{
			reason: "a page of something else", engine: "vllm", answers: map[string]string{"/metrics": "<html>"}, isMalformed: true,
			wantErr: "malformed: /metrics lacks the number of running or of waiting requests",
		},
		{
			reason: "a line without an end", engine: "vllm", isMalformed: true,
			answers: map[string]string{"/metrics": strings.Repeat("x", 1<<17)},
			wantErr: "reading /metrics: bufio.Scanner: token too long",
		},
		{
			reason: "llama.cpp, with three of four slots in use", engine: "llamacpp",
			answers: map[string]string{"/metrics": llamacppMetrics, "/props": props},
			want: with(bare, func(s *engineprobe.Signals) {
				s.Running, s.Waiting, s.KVCacheUse = 3, 2, 0.75
				s.TokenTime = engineprobe.Sum{Seconds: 4.5, Count: 200}
			}),
		},
		{
			reason: "llama.cpp without a number of slots", engine: "llamacpp",
			answers: map[string]string{"/metrics": llamacppMetrics, "/props": "{}"},
			want: with(bare, func(s *engineprobe.Signals) {
				s.Running, s.Waiting, s.TokenTime = 3, 2, engineprobe.Sum{Seconds: 4.5, Count: 200}
			}),
		},
		{
			reason: "llama.cpp with other properties", engine: "llamacpp", isMalformed: true,
			answers: map[string]string{"/metrics": llamacppMetrics, "/props": "loading"},
			wantErr: "reading /props: invalid character 'l' looking for beginning of value",
		},
		{reason: "no metrics", engine: "vllm", wantErr: "requesting /metrics: status 404"},
		{reason: "an unknown engine", engine: "mystery", wantErr: `malformed: engine "mystery" has no known signals`, isMalformed: true},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer, ok := tc.answers[r.URL.Path]
				if !ok {
					http.NotFound(w, r)
					return
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer site.Close()
			at := engineprobe.Endpoint{Address: strings.TrimPrefix(site.URL, "http://")}
			got, err := engineprobe.New().Signals(t.Context(), tc.engine, at)
			if err == nil && tc.wantErr == "" {
				if diff := cmp.Diff(tc.want, got, cmpopts.EquateNaNs()); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				return
			}
			if err == nil || err.Error() != tc.wantErr || errors.Is(err, engineprobe.ErrMalformed) != tc.isMalformed {
				t.Errorf("error %v, malformed %t; want %q, %t", err, errors.Is(err, engineprobe.ErrMalformed), tc.wantErr, tc.isMalformed)
			}
		})
	}
}

// TestStatusError: callers can read the status code from the error.
func TestStatusError(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer site.Close()
	_, err := engineprobe.New().Signals(t.Context(), "vllm", engineprobe.Endpoint{Address: strings.TrimPrefix(site.URL, "http://")})
	if found, ok := errors.AsType[*engineprobe.StatusError](err); !ok || found.Code != http.StatusUnauthorized {
		t.Errorf("error %v, want status 401", err)
	}
}
