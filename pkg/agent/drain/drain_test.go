// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestWhenADrainIsOver(t *testing.T) {
	busy, idle := reading{isBusy: true}, reading{}
	late, gone := reading{err: errors.New("no answer in time")}, reading{err: fmt.Errorf("%w: refused", ErrGone)}
	unreported := reading{err: fmt.Errorf("%w: status 401", ErrUnreported)}
	repeat := func(s reading, n int) []reading {
		out := make([]reading, n)
		for i := range out {
			out[i] = s
		}
		return out
	}
	for _, tc := range []struct {
		reason string
		seen   [][]reading
		why    string
		at     time.Duration
	}{
		{"idle from the first: as long as proxies may not know", [][]reading{repeat(idle, 100)}, whyIdle, 5 * time.Second},
		{"busy, then idle for a second", [][]reading{repeat(busy, 20), repeat(idle, 100)}, whyIdle, 11 * time.Second},
		{"a moment without a request is not the end", [][]reading{repeat(busy, 20), repeat(idle, 2), repeat(busy, 10), repeat(idle, 10)}, whyIdle, 17 * time.Second},
		{"too busy to tell is busy", [][]reading{repeat(late, 20), repeat(idle, 10)}, whyIdle, 11 * time.Second},
		{"a late answer makes the idle time begin again", [][]reading{repeat(idle, 10), {late}, repeat(idle, 10)}, whyIdle, 6500 * time.Millisecond},
		{"a dead engine has nothing to finish", [][]reading{{gone}}, whyGone, 0},
		{"nor one that dies meanwhile", [][]reading{repeat(busy, 4), {gone}}, whyGone, 2 * time.Second},
		{"one that does not tell: as long as proxies may not know", [][]reading{repeat(unreported, 100)}, whyUnreported, 5 * time.Second},
		{"one that tells no longer", [][]reading{repeat(busy, 20), repeat(unreported, 10)}, whyUnreported, 10 * time.Second},
		{"never idle", [][]reading{repeat(busy, 1000)}, "", 500 * time.Second},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			start := time.Unix(0, 0)
			s, why, at := state{settled: start.Add(5 * time.Second)}, "", time.Duration(0)
			for _, part := range tc.seen {
				for _, one := range part {
					if why != "" {
						continue
					}
					if s, why = s.after(one, start.Add(at)); why == "" {
						at += lookEvery
					}
				}
			}
			if why != tc.why || at != tc.at {
				t.Errorf("over after %s because %q, want after %s because %q", at, why, tc.at, tc.why)
			}
		})
	}
}

func config(isBusy func(context.Context) (bool, error)) Config {
	return Config{IsBusy: isBusy, Timeout: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
}

func TestNothingToWaitFor(t *testing.T) {
	if got := New(config(nil)).Run(t.Context()); got != whyUnknown {
		t.Errorf("Run() = %q, want %q", got, whyUnknown)
	}
}

// The drain ends at the deadline, whatever the engine does. The caller may leave before.
func TestTimeout(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := config(func(context.Context) (bool, error) { return true, nil })
	c.Clock = fake
	d := New(c)
	result := make(chan string, 1)
	go func() { result <- d.Run(t.Context()) }()
	for fake.Since(time.Unix(0, 0)) < c.Timeout {
		if !d.IsRunning() {
			time.Sleep(time.Millisecond)
			continue
		}
		if fake.Waiters() == 2 {
			fake.Step(c.Timeout)
		}
	}
	if got := <-result; got != whyTimeout || d.IsRunning() {
		t.Errorf("Run() = %q and running %t, want %q", got, d.IsRunning(), whyTimeout)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := d.Run(ctx); got != whyCancelled {
		t.Errorf("Run() = %q, want %q", got, whyCancelled)
	}
}

// As in a pod: an engine has a running stream, two callers wait, and the stream ends.
func TestServeHTTP(t *testing.T) {
	var requests atomic.Int64
	requests.Store(1)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE e:running gauge\ne:running{model=\"a}b\"} %d.0\ne:waiting 0\n", requests.Load())
	}))
	defer engine.Close()
	d := New(config(Gauges(http.DefaultClient, Source{URL: engine.URL, Gauges: []string{"e:running", "e:waiting"}})))
	agent := httptest.NewUnstartedServer(d)
	agent.Config.WriteTimeout = time.Millisecond // the server's own deadline must not interrupt a drain
	agent.Start()
	defer agent.Close()
	answers := make(chan string, 2)
	for range 2 {
		go func() { answers <- get(t, agent.URL) }()
	}
	for !d.IsRunning() {
		time.Sleep(time.Millisecond)
	}
	select {
	case got := <-answers:
		t.Fatalf("answered %q while a request was under way", got)
	case <-time.After(1500 * time.Millisecond):
	}
	requests.Store(0)
	for range 2 {
		if got := <-answers; got != whyIdle {
			t.Errorf("answer %q, want %q", got, whyIdle)
		}
	}
	engine.Close()
	if got := get(t, agent.URL); got != whyGone {
		t.Errorf("answer %q of a dead engine, want %q", got, whyGone)
	}
}

func get(t *testing.T, url string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(body))
}

func TestGauges(t *testing.T) {
	for _, tc := range []struct {
		reason, metrics string
		status          int
		busy            bool
		want            error
	}{
		{"one of vLLM's ranks is busy", "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0\n", 200, true, nil},
		{"requests wait", "vllm:num_requests_running 0\nvllm:num_requests_waiting 1\n", 200, true, nil},
		{"idle", "vllm:num_requests_running{a=\"}\"} 0\nvllm:num_requests_waiting 0 1700000000\n", 200, false, nil},
		{"a longer name is another gauge", "vllm:num_requests_running 0\nvllm:num_requests_running_total 7\n", 200, false, nil},
		{"no such gauge", "other 1\n", 200, false, ErrUnreported},
		{"no metrics", "", 404, false, ErrUnreported},
		{"a key is asked for", "", 401, false, ErrUnreported},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.metrics))
			}))
			defer s.Close()
			busy, err := Gauges(http.DefaultClient, Source{URL: s.URL, Gauges: []string{"vllm:num_requests_running", "vllm:num_requests_waiting"}})(t.Context())
			if busy != tc.busy || !errors.Is(err, tc.want) {
				t.Errorf("busy %t, %v, want %t and %v", busy, err, tc.busy, tc.want)
			}
		})
	}
	t.Run("an engine that asks for a key", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer k" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = w.Write([]byte("llamacpp:requests_processing 1\n"))
		}))
		defer s.Close()
		from := Source{URL: s.URL, Key: "k", Gauges: []string{"llamacpp:requests_processing"}}
		if busy, err := Gauges(http.DefaultClient, from)(t.Context()); !busy || err != nil {
			t.Errorf("busy %t, %v: answers would be cut off", busy, err)
		}
	})
	t.Run("a value that is none", func(t *testing.T) {
		if _, _, err := sumOf(strings.NewReader("a{} x\n"), []string{"a"}); err == nil {
			t.Error("no error")
		}
	})
}
