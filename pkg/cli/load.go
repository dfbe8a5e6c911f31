// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// load is the load of a benchmark. Zero means unset.
type load struct {
	Requests     int `json:"requests"`
	Concurrency  int `json:"concurrency"`
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
}

// The default load, if neither flags nor a plan set it: the default objectives of the API.
const (
	standardConcurrency  = 4
	standardInputTokens  = 1024
	standardOutputTokens = 256
	rounds               = 4
	// requestLimit is the time limit of one answer.
	requestLimit = 10 * time.Minute
)

// filled returns the load with unset values from the plan.
func (l load) filled(plan *v1beta1.PlanStatus) load {
	standard := load{Concurrency: standardConcurrency, InputTokens: standardInputTokens, OutputTokens: standardOutputTokens}
	if p := predicted(plan); p != nil {
		standard = load{Concurrency: int(p.Concurrency), InputTokens: int(p.InputTokens), OutputTokens: int(p.OutputTokens)}
	}
	out := load{
		Requests: l.Requests, Concurrency: either(l.Concurrency, standard.Concurrency),
		InputTokens: either(l.InputTokens, standard.InputTokens), OutputTokens: either(l.OutputTokens, standard.OutputTokens),
	}
	out.Requests = either(out.Requests, rounds*out.Concurrency)
	out.Concurrency = min(out.Concurrency, out.Requests)
	return out
}

func either(value, standard int) int {
	if value == 0 {
		return standard
	}
	return value
}

func (l load) String() string {
	return fmt.Sprintf("%s, %d at once, each about %d tokens in and %d out",
		count(l.Requests, "request"), l.Concurrency, l.InputTokens, l.OutputTokens)
}

// sample is the measurement of one answer.
type sample struct {
	ttft, whole   time.Duration
	input, output int
	err           error
}

// percentiles of a figure over all requests.
type percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
}

// benchResult is the result of a benchmark.
type benchResult struct {
	load
	DurationSeconds        float64                  `json:"durationSeconds"`
	Failed                 int                      `json:"failed"`
	FirstFailure           string                   `json:"firstFailure,omitempty"`
	MeanInputTokens        int                      `json:"meanInputTokens"`
	MeanOutputTokens       int                      `json:"meanOutputTokens"`
	TTFTMillis             percentiles              `json:"ttftMs"`
	TPOTMillis             percentiles              `json:"tpotMs"`
	RequestTokensPerSecond percentiles              `json:"requestTokensPerSecond"`
	OutputTokensPerSecond  float64                  `json:"outputTokensPerSecond"`
	TokensPerMinute        float64                  `json:"tokensPerMinute"`
	Predicted              *v1beta1.PlanPerformance `json:"predicted,omitempty"`
	// meanTTFT and meanTPOT in milliseconds.
	meanTTFT, meanTPOT float64
}

// sameLoad reports whether a prediction assumes the load of the benchmark.
func (r *benchResult) sameLoad(p *v1beta1.PlanPerformance) bool {
	return r.Concurrency == int(p.Concurrency) && r.InputTokens == int(p.InputTokens) && r.OutputTokens == int(p.OutputTokens)
}

// run warms the server up with one request, then sends and measures all requests.
func (l load) run(ctx context.Context, c clock.PassiveClock, server *endpoint, model string) (*benchResult, error) {
	warm := l.one(ctx, c, server, model, -1)
	if warm.err != nil {
		return nil, warm.err
	}
	sized := l.sized(warm.input)
	samples := make([]sample, l.Requests)
	next := make(chan int)
	var workers sync.WaitGroup
	began := c.Now()
	for range l.Concurrency {
		workers.Go(func() {
			for i := range next {
				samples[i] = sized.one(ctx, c, server, model, i)
			}
		})
	}
	for i := range samples {
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.summed(samples, c.Since(began))
}

// one sends one request. The number makes each prompt unique, so that no server answers from a cache.
func (l load) one(ctx context.Context, c clock.PassiveClock, server *endpoint, model string, number int) sample {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	asked := &question{
		Model: model, Messages: []message{{"user", prompt(l.InputTokens, number)}}, MaxTokens: l.OutputTokens,
		Stream: true, StreamOptions: &streamOptions{IncludeUsage: true}, IgnoreEOS: true,
	}
	var out sample
	pieces := 0
	began := c.Now()
	out.err = server.ask(ctx, asked, func(got *piece) {
		if got.Usage != nil {
			out.input, out.output = got.Usage.PromptTokens, got.Usage.CompletionTokens
		}
		if len(got.Choices) == 0 || got.Choices[0].Delta == (delta{}) {
			return
		}
		if pieces == 0 {
			out.ttft = c.Since(began)
		}
		pieces++
		out.whole = c.Since(began)
	})
	if out.output == 0 { // the server does not report usage
		out.output = pieces
	}
	return out
}

// sized corrects the number of words, so that prompts have the requested number of tokens. had is the number of tokens
// in a prompt of InputTokens words. Most tokenizers use one token for a short word, and chat templates add more.
func (l load) sized(had int) load {
	out := l
	if had > 0 {
		out.InputTokens = max(l.InputTokens*l.InputTokens/had, 1)
	}
	return out
}

// prompt returns a unique prompt with the given number of words.
func prompt(words, number int) string {
	return strconv.Itoa(number) + strings.Repeat(" the", max(words-1, 0))
}

// summed returns the figures of all answers; an error if there are no answers.
func (l load) summed(samples []sample, took time.Duration) (*benchResult, error) {
	out := &benchResult{load: l, DurationSeconds: took.Seconds()}
	var ttft, tpot, pace []float64
	input, output := 0, 0
	for i := range samples {
		s := &samples[i]
		if s.err != nil {
			out.Failed++
			if out.FirstFailure == "" {
				out.FirstFailure = wording.OneLine(s.err.Error())
			}
			continue
		}
		input, output = input+s.input, output+s.output
		ttft = append(ttft, milliseconds(s.ttft))
		if s.output > 1 && s.whole > s.ttft {
			tpot = append(tpot, milliseconds(s.whole-s.ttft)/float64(s.output-1))
			pace = append(pace, float64(s.output)/s.whole.Seconds())
		}
	}
	answers := len(ttft)
	if answers == 0 {
		return nil, clusterError("no request succeeded: %s", out.FirstFailure)
	}
	out.meanTTFT, out.meanTPOT = mean(ttft), mean(tpot)
	slices.Sort(ttft)
	slices.Sort(tpot)
	slices.SortFunc(pace, func(a, b float64) int { return cmp.Compare(b, a) })
	out.TTFTMillis, out.TPOTMillis, out.RequestTokensPerSecond = spread(ttft), spread(tpot), spread(pace)
	out.MeanInputTokens, out.MeanOutputTokens = input/answers, output/answers
	if took > 0 {
		out.OutputTokensPerSecond = float64(output) / took.Seconds()
		out.TokensPerMinute = float64(input+output) / took.Minutes()
	}
	return out, nil
}

// mean returns the mean of values; 0 without values.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// spread returns the percentiles of values by nearest rank. The values are sorted, best first: nine in ten are as good
// as P90 or better.
func spread(values []float64) percentiles {
	if len(values) == 0 {
		return percentiles{}
	}
	at := func(share float64) float64 { return values[int(math.Ceil(share*float64(len(values))))-1] }
	return percentiles{P50: at(0.5), P90: at(0.9)}
}
