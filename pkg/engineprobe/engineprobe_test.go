// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engineprobe"
)

const (
	help = "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n"
	// The answers of llama.cpp 0.7.0, without fields that the probe does not read.
	props  = `{"default_generation_settings":{"params":{"seed":4294967295},"n_ctx":256},"total_slots":4,"model_path":"/tiny.gguf"}`
	models = `{"models":[{"name":"/tiny.gguf","size":""}],"data":[{"id":"/tiny.gguf","meta":{"n_ctx":256,"n_params":213312,"size":427264}}]}`
)

func TestRead(t *testing.T) {
	for _, tc := range []struct {
		reason, engine string
		answers        map[string]string
		wants, key     string
		want           engineprobe.Result
		wantErr        string
	}{
		{
			reason: "vLLM tells the tokens of hybrid models, which are not blocks times their size", engine: "vllm",
			answers: map[string]string{"/metrics": help +
				`vllm:cache_config_info{block_size="8",engine="0",kv_cache_size_tokens="463459",num_gpu_blocks="320"} 1.0` + "\n"},
			want: engineprobe.Result{KVCacheTokens: 463459},
		},
		{
			reason: "an older vLLM tells blocks only", engine: "vllm",
			answers: map[string]string{"/metrics": help + `vllm:cache_config_info{block_size="16",num_gpu_blocks="14401"} 1.0` + "\n"},
			want:    engineprobe.Result{KVCacheTokens: 230416},
		},
		{
			reason: "of several replicas the smallest counts", engine: "vllm",
			answers: map[string]string{"/metrics": help +
				`vllm:cache_config_info{engine="0",kv_cache_size_tokens="2000"} 1.0` + "\n" +
				`vllm:cache_config_info{engine="1",kv_cache_size_tokens="1000"} 1.0` + "\n"},
			want: engineprobe.Result{KVCacheTokens: 1000},
		},
		{
			reason: "vLLM does not know yet", engine: "vllm",
			answers: map[string]string{"/metrics": help + `vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0` + "\n"},
			wantErr: "/metrics has no vllm:cache_config_info with the size of the KV cache",
		},
		{
			reason: "no metrics at all", engine: "vllm", answers: map[string]string{"/metrics": "<html>"},
			wantErr: "reading /metrics: text format parsing error in line 1: invalid metric name",
		},
		{
			reason: "llama.cpp", engine: "llamacpp", answers: map[string]string{"/props": props, "/v1/models": models},
			want: engineprobe.Result{KVCacheTokens: 1024, WeightBytes: 427264},
		},
		{
			reason: "llama.cpp of a version that tells nothing", engine: "llamacpp",
			answers: map[string]string{"/props": "{}", "/v1/models": `{"data":[]}`},
		},
		{
			reason: "llama.cpp that asks for a key, which nobody has", engine: "llamacpp", wants: "k",
			answers: map[string]string{"/props": props, "/v1/models": models}, wantErr: "requesting /props: status 401",
		},
		{
			reason: "llama.cpp that asks for a key", engine: "llamacpp", wants: "k", key: "k",
			answers: map[string]string{"/props": props, "/v1/models": models},
			want:    engineprobe.Result{KVCacheTokens: 1024, WeightBytes: 427264},
		},
		{
			reason: "an answer that is no JSON", engine: "llamacpp", answers: map[string]string{"/props": "loading"},
			wantErr: "reading /props: invalid character 'l' looking for beginning of value",
		},
		{reason: "an engine that nobody knows", engine: "mystery", wantErr: `engine "mystery" cannot be probed`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.wants != "" && r.Header.Get("Authorization") != "Bearer "+tc.wants {
					http.Error(w, "Invalid API Key", http.StatusUnauthorized)
					return
				}
				answer, known := tc.answers[r.URL.Path]
				if !known {
					http.NotFound(w, r)
					return
				}
				_, _ = io.WriteString(w, answer)
			}))
			defer site.Close()
			got, err := engineprobe.New().Read(t.Context(), tc.engine, engineprobe.Endpoint{Address: strings.TrimPrefix(site.URL, "http://"), Key: tc.key})
			said := ""
			if err != nil {
				said = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, said); diff != "" {
				t.Errorf("error: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures: -want +got:\n%s", diff)
			}
		})
	}
}

// The probe follows no redirect, and a silent engine does not delay it for long.
func TestReadGivesUp(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	site := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer site.Close()
	if _, err := engineprobe.New().Read(t.Context(), "vllm", engineprobe.Endpoint{Address: strings.TrimPrefix(site.URL, "http://")}); err == nil || elsewhere > 0 {
		t.Errorf("a redirection: error %v, and %d requests followed it; want an error and none", err, elsewhere)
	}

	hangs := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	hangs.Start()
	defer hangs.Close()
	if _, err := engineprobe.New().Read(t.Context(), "vllm", engineprobe.Endpoint{Address: hangs.Listener.Addr().String()}); err == nil {
		t.Error("an engine that does not answer was waited for, and then it answered")
	}
}
