// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// loadWorkers ask at the same time, each for one answer after the other.
	loadWorkers = 6
	// loadPause is between two requests of a worker: two busy cores serve the engines, too.
	loadPause = 50 * time.Millisecond
	// furtherAnswers are enough to see what a change does: one for each kind of request of each worker, several times.
	furtherAnswers = 40
	// loadAnswer and longAnswer are lengths of answers in tokens. The long one takes 5 s on idle cores, and outlasts a router.
	loadAnswer, longAnswer = 6, 3_000
)

// outcome is how a request ended.
type outcome struct {
	began, ended time.Time
	// err is empty if the answer is complete.
	err string
	// isClear: the error has OpenAI's shape, or the answer had begun.
	isClear bool
}

// load is a number of clients that ask the routers all the time.
type load struct {
	cancel   context.CancelFunc
	workers  sync.WaitGroup
	answered atomic.Int64
	mu       sync.Mutex
	outcomes []outcome
}

// startLoad starts clients with pauses. A third of the requests comes on a connection of its own.
func (d *door) startLoad(t *testing.T) *load {
	t.Helper()
	return d.startClients(t, loadWorkers, loadPause, 3)
}

// startClients starts clients, each with a pause between two requests. Half of the requests are streams. Every so many
// requests, a client closes the idle connections of all.
func (d *door) startClients(t *testing.T, workers int, between time.Duration, perConnection int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for worker := range workers {
		l.workers.Go(func() {
			for n := worker; ctx.Err() == nil; n++ {
				if n%perConnection == 0 {
					d.client.CloseIdleConnections()
				}
				// A request under way is finished when the load ends.
				o := d.once(context.WithoutCancel(ctx), loadAnswer, n%2 == 0)
				if o.err == "" {
					l.answered.Add(1)
				}
				l.mu.Lock()
				l.outcomes = append(l.outcomes, o)
				l.mu.Unlock()
				pause(ctx, between)
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// waitAnswers waits for further answers.
func (l *load) waitAnswers(t *testing.T) {
	t.Helper()
	from := l.answered.Load()
	waitFor(t, "answers under load", 2*time.Minute, func(context.Context) (bool, error) {
		return l.answered.Load() >= from+furtherAnswers, nil
	})
}

// stop ends the load and returns the outcomes of its requests.
func (l *load) stop() []outcome {
	l.cancel()
	l.workers.Wait()
	return l.outcomes
}

// startLong asks for long answers, each on a connection of its own, and returns once all have begun. The result waits for
// their end.
func (d *door) startLong(t *testing.T, n int) func() []outcome {
	t.Helper()
	all := make([]outcome, n)
	var asked sync.WaitGroup
	for i := range all {
		d.client.CloseIdleConnections()
		begun, begin := context.WithCancel(t.Context())
		asked.Go(func() {
			defer begin() // also if it fails before it begins
			all[i] = d.once(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotFirstResponseByte: begin}), longAnswer, true)
		})
		<-begun.Done()
	}
	return func() []outcome {
		asked.Wait()
		return all
	}
}

// once sends a request and judges the answer.
func (d *door) once(ctx context.Context, tokens int, isStream bool) outcome {
	o := outcome{began: time.Now()}
	o.err, o.isClear = d.judge(ctx, tokens, isStream)
	o.ended = time.Now()
	return o
}

func (d *door) judge(ctx context.Context, tokens int, isStream bool) (problem string, isClear bool) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	body := strings.Replace(chat("pair", tokens, isStream), "{", `{"ignore_eos": true, `, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+chatPath, strings.NewReader(body))
	if err != nil {
		return err.Error(), false
	}
	request.Header.Set("Authorization", "Bearer "+keyOfTeam)
	answer, err := d.client.Do(request)
	if err != nil {
		return err.Error(), false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	got := reply{answer.StatusCode, answer.Header, string(text)}
	switch {
	case got.status != http.StatusOK:
		return fmt.Sprintf("%d %s", got.status, got.body), got.code() == "model_unavailable"
	case err != nil:
		return "in mid-answer: " + err.Error(), true
	case isStream && !strings.Contains(got.body, "data: [DONE]"):
		return "the stream ends early: " + got.body, true
	case !isStream && !strings.Contains(got.body, `"completion_tokens"`):
		return "the answer is not complete: " + got.body, true
	}
	return "", true
}
