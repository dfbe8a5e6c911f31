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

// Tokens has an engine's counters since it started.
type Tokens struct {
	Prompt, Output int64
	// Started identifies the process by its start, as the engine writes it; empty if the engine does not report it.
	Started string
	// Speed of the answers. Only vLLM reports it.
	Speed Speed
}

// processStart is the metric that Prometheus's Python client has for the start of the process.
const processStart = "process_start_time_seconds"

// counters returns the names of the metrics that count the tokens of prompts and answers.
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

// Tokens returns the counters of an engine at an endpoint, within two seconds. It reads only the lines that it needs,
// because it is called for every engine, again and again.
func (r *Prober) Tokens(ctx context.Context, engine string, at Endpoint) (Tokens, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	prompt, output, ok := counters(engine)
	if !ok {
		return Tokens{}, fmt.Errorf("engine %q has no known token counters", engine)
	}
	body, err := r.get(ctx, at, "/metrics")
	if err != nil {
		return Tokens{}, err
	}
	defer body.Close()
	return readTokens(body, prompt, output)
}

// readTokens sums the samples of each counter. There is one sample for each replica of the model.
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
		return Tokens{}, errors.New("/metrics has no token counters")
	}
	out.Speed = signals.vllm().Speed
	return out, nil
}

// sample splits a line of Prometheus's text format into the name of the metric and its value. The value of a label may
// contain anything except a line feed.
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

// count returns a counter as a whole number; 0 if it is not a valid one.
func count(value string) int64 {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil || !(number >= 0) || number > math.MaxInt64/2 {
		return 0
	}
	return int64(number)
}
