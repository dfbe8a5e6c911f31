// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engineprobe reads figures from a running engine: the capacity of its KV cache in tokens, the size of the
// model's weights, its counters of tokens, and its load.
//
// It decides which endpoint of each engine has these figures. It must not know what was planned, nor whether an engine
// is ready. A failure has no consequence here.
package engineprobe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

// Result has the figures of one engine. A figure is zero if the engine does not report it.
type Result struct {
	// KVCacheTokens is the capacity of one replica's KV cache.
	KVCacheTokens int64
	// WeightBytes is the size of one replica of the model.
	WeightBytes int64
}

// Limits of one probe.
const (
	deadline  = 2 * time.Second
	mostBytes = 4 << 20
)

// Prober reads figures from engines over HTTP.
type Prober struct{ client *http.Client }

// New returns a Prober. Engines are pods of this cluster, so it connects to them without a proxy and follows no
// redirect.
func New() *Prober {
	return &Prober{client: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: deadline},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Endpoint is the address of an engine.
type Endpoint struct {
	// Address as HOST:PORT.
	Address string
	// Key is the API key of the engine; empty if it needs none.
	Key string
}

// Read returns the figures of an engine at an endpoint, within two seconds. engine is its name in the catalogue.
func (r *Prober) Read(ctx context.Context, engine string, at Endpoint) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch engine {
	case vllm.Name:
		return r.vllm(ctx, at)
	case llamacpp.Name:
		return r.llamacpp(ctx, at)
	default:
		return Result{}, fmt.Errorf("engine %q cannot be probed", engine)
	}
}

// Adapters returns which adapters the agent beside an engine has loaded into it.
func (r *Prober) Adapters(ctx context.Context, at Endpoint) (adapters.State, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	out := adapters.State{}
	err := r.decode(ctx, at, adapters.StatePath, &out)
	return out, err
}

// vllm reads the labels of the metric vllm:cache_config_info. Each replica has one, and the smallest counts, as in the
// plan. Older versions report only blocks. Blocks times their size is right if all layers have the same kind of cache.
// vLLM reports the size of the weights only in its log.
func (r *Prober) vllm(ctx context.Context, at Endpoint) (Result, error) {
	body, err := r.get(ctx, at, "/metrics")
	if err != nil {
		return Result{}, err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(body, mostBytes))
	if err != nil {
		return Result{}, fmt.Errorf("reading /metrics: %w", err)
	}
	var out Result
	for _, metric := range families["vllm:cache_config_info"].GetMetric() {
		labels := map[string]int64{}
		for _, label := range metric.GetLabel() {
			if number, err := strconv.ParseInt(label.GetValue(), 10, 64); err == nil {
				labels[label.GetName()] = number
			}
		}
		tokens := labels["kv_cache_size_tokens"]
		if tokens <= 0 {
			tokens = labels["num_gpu_blocks"] * labels["block_size"]
		}
		if tokens > 0 && (out.KVCacheTokens == 0 || tokens < out.KVCacheTokens) {
			out.KVCacheTokens = tokens
		}
	}
	if out.KVCacheTokens == 0 {
		return Result{}, errors.New("/metrics has no vllm:cache_config_info with the size of the KV cache")
	}
	return out, nil
}

// llamacpp multiplies the number of slots in /props by the context of each, and reads the size of the tensors from
// /v1/models.
func (r *Prober) llamacpp(ctx context.Context, at Endpoint) (Result, error) {
	var props struct {
		Slots    int64 `json:"total_slots"`
		Defaults struct {
			Context int64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := r.decode(ctx, at, "/props", &props); err != nil {
		return Result{}, err
	}
	var models struct {
		Data []struct {
			Meta struct {
				Size int64 `json:"size"`
			} `json:"meta"`
		} `json:"data"`
	}
	if err := r.decode(ctx, at, "/v1/models", &models); err != nil {
		return Result{}, err
	}
	out := Result{KVCacheTokens: max(0, props.Slots) * max(0, props.Defaults.Context)}
	if len(models.Data) > 0 {
		out.WeightBytes = max(0, models.Data[0].Meta.Size)
	}
	return out, nil
}

func (r *Prober) decode(ctx context.Context, at Endpoint, path string, into any) error {
	body, err := r.get(ctx, at, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, mostBytes)).Decode(into); err != nil {
		if ctx.Err() == nil {
			return fmt.Errorf("reading %s: %w", path, &malformedError{err})
		}
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

func (r *Prober) get(ctx context.Context, at Endpoint, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Address+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	if at.Key != "" {
		request.Header.Set("Authorization", "Bearer "+at.Key)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, &StatusError{Path: path, Code: response.StatusCode}
	}
	return response.Body, nil
}
