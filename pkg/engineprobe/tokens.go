// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engineprobe

import (
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

// Tokens are an engine's counters since it started.
type Tokens struct {
	Prompt, Output int64
	// Started identifies the process by its start, in the engine's own words; empty where it does not report that.
	Started string
	// Speed of the answers; unreported by engines other than vLLM.
	Speed Speed
}

// processStart is the metric of the Prometheus client of Python.
const processStart = "process_start_time_seconds"

// counters are the names of the metrics with the tokens of prompts and answers.
func counters(engine string) (prompt, output string, ok bool) {
	switch engine {
	case vllm.Name:
		return "vllm:prompt_tokens_total", "vllm:generation_tokens_total", true
	case llamacpp.Name:
		return "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", true
	default:
		return "", "", false
	}
}

// Tokens returns the counters of the engine of that name at an endpoint, within two seconds. It reads the few lines that
// it needs: this is done for every engine, again and again.
func (r *Prober) Tokens(ctx context.Context, engine string, at Endpoint) (Tokens, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	prompt, output, ok := counters(engine)
	if !ok {
		return Tokens{}, fmt.Errorf("engine %q has no known counters of tokens", engine)
	}
	body, err := r.get(ctx, at, "/metrics")
	if err != nil {
		return Tokens{}, err
	}
	defer body.Close()
	return readTokens(body, prompt, output)
}

// readTokens sums the samples of each counter: there is one for each replica of the model.
func readTokens(from io.Reader, prompt, output string) (Tokens, error) {
	var out Tokens
	var hasPrompt, hasOutput bool
	signals := samples{}
	err := scan(from, func(name, value string) {
		signals.add(name, value)
		switch name {
		case prompt:
			hasPrompt = true
			out.Prompt += count(value)
		case output:
			hasOutput = true
			out.Output += count(value)
		case processStart:
			out.Started = strings.Clone(value)
		}
	})
	if err != nil {
		return Tokens{}, err
	}
	if !hasPrompt || !hasOutput {
		return Tokens{}, errors.New("/metrics has no counters of tokens")
	}
	out.Speed = signals.vllm().Speed
	return out, nil
}

// sample splits a line of Prometheus's text format into the name of the metric and its value. Values of labels may
// contain anything but a line feed.
func sample(line string) (name, value string) {
	end := strings.IndexAny(line, "{ ")
	if end <= 0 || line[0] == '#' {
		return "", ""
	}
	name, rest := line[:end], line[end:]
	if brace := strings.LastIndexByte(rest, '}'); brace >= 0 {
		rest = rest[brace+1:]
	}
	value, _, _ = strings.Cut(strings.TrimLeft(rest, " "), " ") // a timestamp may follow
	return name, value
}

// count is a counter as a whole number; 0 for nonsense.
func count(value string) int64 {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !(number >= 0) || number > math.MaxInt64/2 {
		return 0
	}
	return int64(number)
}
