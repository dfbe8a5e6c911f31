// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
)

// ErrMalformed is in the chain of errors about answers that lack the expected figures.
var ErrMalformed = errors.New("malformed")

// StatusError is an answer with a status other than 200.
type StatusError struct {
	Path string
	Code int
}

func (e *StatusError) Error() string { return fmt.Sprintf("requesting %s: status %d", e.Path, e.Code) }

// malformedError is an answer that cannot be decoded. Its text is its cause's.
type malformedError struct{ cause error }

func (e *malformedError) Error() string { return e.cause.Error() }

// Unwrap returns ErrMalformed and the cause.
func (e *malformedError) Unwrap() []error { return []error{ErrMalformed, e.cause} }

// Signals are the load of an engine at one moment, and sums since its process started. NaN means that the engine does
// not report a figure.
type Signals struct {
	Speed
	// KVCacheUse is from 0 to 1. It is the mean over the model's replicas in this engine.
	KVCacheUse float64
	// Finished is the number of finished requests.
	Finished float64
	// FirstToken, EndToEnd and Queued are times of requests, in seconds.
	FirstToken, EndToEnd, Queued Sum
}

// Speed has the signals about an engine's speed. NaN means that the engine does not report a figure.
type Speed struct {
	// Running and Waiting are numbers of requests.
	Running, Waiting float64
	// TokenTime is the time between two tokens of an answer, summed over all requests.
	TokenTime Sum
	// Prompt and Output are the tokens of requests that finished.
	Prompt, Output Amount
	// Started is the process's start, in seconds since 1970.
	Started float64
}

// Amount is a number of tokens in a number of requests.
type Amount struct{ Tokens, Requests float64 }

func amount(s Sum) Amount { return Amount{Tokens: s.Seconds, Requests: s.Count} }

// Sum is a number of times, and their total.
type Sum struct{ Seconds, Count float64 }

// Signals returns the load of an engine at an endpoint, within two seconds. engine is its name in the catalogue.
func (r *Prober) Signals(ctx context.Context, engine string, at Endpoint) (Signals, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch engine {
	case vllm.Name:
		return r.vllmSignals(ctx, at)
	case llamacpp.Name:
		return r.llamacppSignals(ctx, at)
	default:
		return Signals{}, fmt.Errorf("%w: engine %q has no known signals", ErrMalformed, engine)
	}
}

func (r *Prober) vllmSignals(ctx context.Context, at Endpoint) (Signals, error) {
	found, err := r.scrape(ctx, at)
	if err != nil {
		return Signals{}, err
	}
	return checked(found.vllm())
}

// samples has the sum and the number of the samples of each metric, by name.
type samples map[string]Sum

// vllm returns vLLM's signals.
func (s samples) vllm() Signals {
	out := Signals{
		Speed: Speed{
			Running:   s.sum("vllm:num_requests_running"),
			Waiting:   s.sum("vllm:num_requests_waiting"),
			TokenTime: s.histogram("vllm:inter_token_latency_seconds"),
			Prompt:    amount(s.histogram("vllm:request_prompt_tokens")),
			Output:    amount(s.histogram("vllm:request_generation_tokens")),
			Started:   s.sum(processStart),
		},
		KVCacheUse: known(s.mean("vllm:kv_cache_usage_perc"), s.mean("vllm:gpu_cache_usage_perc")),
		Finished:   s.sum("vllm:request_success_total"),
		FirstToken: s.histogram("vllm:time_to_first_token_seconds"),
		EndToEnd:   s.histogram("vllm:e2e_request_latency_seconds"),
		Queued:     s.histogram("vllm:request_queue_time_seconds"),
	}
	if math.IsNaN(out.TokenTime.Count) { // the name before 0.11
		out.TokenTime = s.histogram("vllm:time_per_output_token_seconds")
	}
	return out
}

// llamacppSignals also reads the number of slots. A request occupies a slot with its share of the cache, so the use of
// the cache is the share of busy slots.
func (r *Prober) llamacppSignals(ctx context.Context, at Endpoint) (Signals, error) {
	found, err := r.scrape(ctx, at)
	if err != nil {
		return Signals{}, err
	}
	var props struct {
		Slots int64 `json:"total_slots"`
	}
	if err := r.decode(ctx, at, "/props", &props); err != nil {
		return Signals{}, err
	}
	nan := math.NaN()
	none := Sum{nan, nan}
	out := Signals{
		Speed: Speed{
			Running: found.sum("llamacpp:requests_processing"), Waiting: found.sum("llamacpp:requests_deferred"),
			TokenTime: Sum{found.sum("llamacpp:tokens_predicted_seconds_total"), found.sum("llamacpp:tokens_predicted_total")},
			Prompt:    amount(none), Output: amount(none), Started: nan,
		},
		KVCacheUse: nan, Finished: nan, FirstToken: none, EndToEnd: none, Queued: none,
	}
	if props.Slots > 0 {
		out.KVCacheUse = math.Min(1, out.Running/float64(props.Slots))
	}
	return checked(out)
}

// checked returns an error if signals lack the figures that all callers need.
func checked(s Signals) (Signals, error) {
	if math.IsNaN(s.Running) || math.IsNaN(s.Waiting) {
		return Signals{}, fmt.Errorf("%w: /metrics lacks the number of running or of waiting requests", ErrMalformed)
	}
	return s, nil
}

// known returns the first value that is not NaN.
func known(values ...float64) float64 {
	for _, value := range values {
		if !math.IsNaN(value) {
			return value
		}
	}
	return math.NaN()
}

func (s samples) sum(name string) float64 {
	if found, ok := s[name]; ok {
		return found.Seconds
	}
	return math.NaN()
}

func (s samples) mean(name string) float64 { return s.sum(name) / s[name].Count }

func (s samples) histogram(name string) Sum { return Sum{s.sum(name + "_sum"), s.sum(name + "_count")} }

func (r *Prober) scrape(ctx context.Context, at Endpoint) (samples, error) {
	body, err := r.get(ctx, at, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readSamples(body)
}

// isSignal reports whether a metric is one of the above. A user controls the engine, which may report any number of
// other metrics.
func isSignal(name string) bool {
	switch name {
	case "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
		"vllm:request_success_total", processStart,
		"llamacpp:requests_processing", "llamacpp:requests_deferred",
		"llamacpp:tokens_predicted_seconds_total", "llamacpp:tokens_predicted_total":
		return true
	}
	base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
	switch base {
	case "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds",
		"vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
		"vllm:request_prompt_tokens", "vllm:request_generation_tokens":
		return base != name
	}
	return false
}

// readSamples adds up the samples of each signal. There is one sample for each replica of the model, or for each reason
// why a request ended.
func readSamples(from io.Reader) (samples, error) {
	out := samples{}
	if err := scan(from, out.add); err != nil {
		return nil, err
	}
	return out, nil
}

// add adds a sample of a signal. A value that cannot be a count makes the whole signal unknown.
func (s samples) add(name, text string) {
	if !isSignal(name) {
		return
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value < 0 || math.IsInf(value, 0) {
		value = math.NaN()
	}
	found := s[name]
	s[strings.Clone(name)] = Sum{found.Seconds + value, found.Count + 1}
}

// scan calls each for every sample in Prometheus's text format.
func scan(from io.Reader, each func(name, value string)) error {
	lines := bufio.NewScanner(io.LimitReader(from, mostBytes))
	for lines.Scan() {
		each(sample(lines.Text()))
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = &malformedError{err}
		}
		return fmt.Errorf("reading /metrics: %w", err)
	}
	return nil
}
