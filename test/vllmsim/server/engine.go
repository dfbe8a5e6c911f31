// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"hash/fnv"
	"time"
)

// Timing is how long the made-up engine takes.
type Timing struct {
	// FirstToken and EachToken are waited for; Step ends the engine if one step takes longer.
	FirstToken, EachToken, Step time.Duration
}

// engine runs requests: as many at once as there are sequences, the others wait.
type engine struct {
	slots   chan struct{}
	metrics *metrics
	timing  Timing
	// step is the work of all ranks for one token.
	step func(context.Context) error
	// dead is called once a step took too long.
	dead func()
	// frozen is closed when the engine hangs.
	frozen chan struct{}
	words  []string
}

// request is one generation's request.
type request struct {
	// seed is the prompt and everything else with a part in the answer.
	seed         string
	promptTokens int
	maxTokens    int
	minTokens    int
	ignoreEnd    bool
}

var errAborted = errors.New("the request was aborted")

// run waits for a place and emits tokens until the answer ends. It returns the number of tokens and why
// they ended.
func (e *engine) run(ctx context.Context, r request, emit func(string) error) (tokens int, reason string, err error) {
	arrived := time.Now()
	e.metrics.update(func(m *metrics) { m.waiting++ })
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		e.metrics.update(func(m *metrics) { m.waiting--; m.finished["abort"]++ })
		return 0, "abort", errAborted
	}
	used := r.promptTokens
	e.metrics.update(func(m *metrics) {
		m.waiting--
		m.running++
		m.usedTokens += used
		m.queue.observe(time.Since(arrived))
		m.promptTokens += r.promptTokens
		m.prefixQueries += r.promptTokens
	})
	tokens, reason, err = e.generate(ctx, r, arrived, emit)
	<-e.slots
	e.metrics.update(func(m *metrics) {
		m.running--
		m.usedTokens -= used
		m.generationTokens += tokens
		m.finished[reason]++
		m.endToEnd.observe(time.Since(arrived))
	})
	return tokens, reason, err
}

func (e *engine) generate(ctx context.Context, r request, arrived time.Time, emit func(string) error) (int, string, error) {
	answer := e.answer(r)
	last := arrived
	for i, word := range answer {
		pause := e.timing.EachToken
		if i == 0 {
			pause = e.timing.FirstToken
		}
		if err := e.compute(ctx, pause); err != nil {
			return i, "abort", err
		}
		now := time.Now()
		e.metrics.update(func(m *metrics) {
			if i == 0 {
				m.firstToken.observe(now.Sub(last))
				return
			}
			m.betweenTokens.observe(now.Sub(last))
		})
		last = now
		if err := emit(word); err != nil {
			return i + 1, "abort", err
		}
	}
	if len(answer) == r.maxTokens {
		return len(answer), "length", nil
	}
	return len(answer), "stop", nil
}

// compute is one token on all ranks. The engine goes on with it when the client is gone.
func (e *engine) compute(ctx context.Context, pause time.Duration) error {
	done := make(chan error, 1)
	go func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timing.Step)
		defer cancel()
		err := e.step(limited)
		if err != nil {
			e.dead()
		}
		done <- err
	}()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for range 2 {
		select {
		case <-ctx.Done():
			return errAborted
		case err := <-done:
			if err != nil {
				return errAborted
			}
			done = nil
		case <-timer.C:
		}
	}
	select {
	case <-e.frozen:
		<-ctx.Done()
		return errAborted
	default:
		return nil
	}
}

// Answers without a limit have 8 to 23 tokens.
const (
	shortest = 8
	spread   = 16
)

// answer is the same for the same prompt, on any machine.
func (e *engine) answer(r request) []string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.seed))
	state := h.Sum64()
	length := max(shortest+int(state%spread), r.minTokens)
	if r.ignoreEnd || length > r.maxTokens {
		length = r.maxTokens
	}
	answer := make([]string, length)
	for i := range answer {
		// splitmix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		answer[i] = " " + e.words[(z^z>>31)%uint64(len(e.words))]
	}
	answer[0] = answer[0][1:]
	return answer
}
