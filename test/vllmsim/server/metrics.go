// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// histogram counts observations by upper bound.
type histogram struct {
	bounds []float64
	counts []int
	sum    float64
	total  int
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]int, len(bounds))}
}

func (h *histogram) observe(d time.Duration) {
	seconds := d.Seconds()
	h.sum += seconds
	h.total++
	for i, bound := range h.bounds {
		if seconds <= bound {
			h.counts[i]++
		}
	}
}

// metrics are one server's metrics, with vLLM's names.
type metrics struct {
	mu                                   sync.Mutex
	running, waiting, usedTokens         int
	promptTokens, generationTokens       int
	finished                             map[string]int
	firstToken, betweenTokens, endToEnd  *histogram
	queue                                *histogram
	modelName, cacheInfo                 string
	cacheTokens                          int
	adapters                             string
	maxAdapters                          int
	prefixQueries, prefixHits, preempted int
}

func newMetrics() *metrics {
	long := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	return &metrics{
		finished: map[string]int{"stop": 0, "length": 0, "abort": 0, "error": 0},
		firstToken: newHistogram(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
			160, 640, 2560),
		betweenTokens: newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
		endToEnd:      newHistogram(long...),
		queue:         newHistogram(long...),
	}
}

func (m *metrics) update(f func(*metrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// write prints the text format of Prometheus. Everything is counted on engine 0.
func (m *metrics) write(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	labels := fmt.Sprintf("engine=\"0\",model_name=%q", m.modelName)
	line := func(name, kind, help string, value float64) {
		header(w, name, kind, help)
		fmt.Fprintf(w, "%s{%s} %s\n", name, labels, number(value))
	}
	line("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(m.running))
	line("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(m.waiting))
	usage := 0.0
	if m.cacheTokens > 0 {
		usage = min(1, float64(m.usedTokens)/float64(m.cacheTokens))
	}
	line("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", usage)
	line("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in number of tokens.", float64(m.prefixQueries))
	line("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in number of tokens.", float64(m.prefixHits))
	line("vllm:num_preemptions_total", "counter", "Cumulative number of preemptions from the engine.", float64(m.preempted))
	line("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(m.promptTokens))
	line("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(m.generationTokens))
	header(w, "vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for _, reason := range slices.Sorted(maps.Keys(m.finished)) {
		fmt.Fprintf(w, "vllm:request_success_total{%s,finished_reason=%q} %s\n", labels, reason, number(float64(m.finished[reason])))
	}
	for _, each := range []struct {
		name, help string
		histogram  *histogram
	}{
		{"vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", m.firstToken},
		{"vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", m.betweenTokens},
		{"vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", m.endToEnd},
		{"vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", m.queue},
	} {
		header(w, each.name, "histogram", each.help)
		each.histogram.write(w, each.name, labels)
	}
	header(w, "vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	fmt.Fprintf(w, "vllm:cache_config_info{%s} 1.0\n", m.cacheInfo)
	if m.maxAdapters > 0 {
		header(w, "vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
		fmt.Fprintf(w, "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} 1.0\n",
			m.maxAdapters, m.adapters)
	}
}

func (h *histogram) write(w io.Writer, name, labels string) {
	for i, bound := range h.bounds {
		fmt.Fprintf(w, "%s_bucket{%s,le=\"%s\"} %s\n", name, labels, number(bound), number(float64(h.counts[i])))
	}
	fmt.Fprintf(w, "%s_bucket{%s,le=\"+Inf\"} %s\n", name, labels, number(float64(h.total)))
	fmt.Fprintf(w, "%s_count{%s} %s\n", name, labels, number(float64(h.total)))
	fmt.Fprintf(w, "%s_sum{%s} %s\n", name, labels, number(h.sum))
}

func header(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// number writes 1 as 1.0, as Python does.
func number(value float64) string {
	if value == float64(int64(value)) {
		return strconv.FormatInt(int64(value), 10) + ".0"
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
