// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// latencies of requests, and what failed.
type latencies struct {
	mu     sync.Mutex
	all    []time.Duration
	failed []error
}

func (l *latencies) add(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, err)
		return
	}
	l.all = append(l.all, took)
}

// percentile of the latencies that were measured; 0 without any.
func (l *latencies) percentile(p float64) time.Duration {
	if len(l.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.all))
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}

func (l *latencies) err() error {
	if len(l.failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d requests failed, the first one: %w", len(l.failed), len(l.failed)+len(l.all), l.failed[0])
}

// load sends requests at a rate, whether or not earlier ones have been answered.
func (s *side) load(ctx context.Context, rate int, length time.Duration, body string, into *latencies) {
	var asked sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for range int(length.Seconds() * float64(rate)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		asked.Go(func() {
			start := time.Now()
			_, err := s.ask(ctx, body)
			into.add(time.Since(start), err)
		})
	}
	asked.Wait()
}

// ask sends a request, and returns the answer's length.
func (s *side) ask(ctx context.Context, body string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+clientKey)
	answer, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	return n, err
}

const smallBody = `{"model": "model", "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 16}`

// small measures the time of small requests. The sides take turns, so that a busy moment of the machine meets all.
func small(ctx context.Context, p plan, sides []*side, out io.Writer) error {
	results := make([]latencies, len(sides))
	used := make([]time.Duration, len(sides))
	for i, s := range sides { // connections are made and code is warm
		var warm latencies
		s.load(ctx, p.rate, time.Second, smallBody, &warm)
		if err := warm.err(); err != nil {
			return fmt.Errorf("%s: %w", sides[i].name, err)
		}
	}
	for range p.rounds {
		for i, s := range sides {
			before, err := s.cpu()
			if err != nil {
				return err
			}
			s.load(ctx, p.rate, p.round, smallBody, &results[i])
			after, err := s.cpu()
			if err != nil {
				return err
			}
			used[i] += after - before
		}
	}
	rows := [][]string{{fmt.Sprintf("%d requests/s of %d bytes", p.rate, len(smallBody)), "requests", "p50", "p99", "p50 added", "p99 added", "processor time"}}
	for i, s := range sides {
		if err := results[i].err(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		row := []string{s.name, fmt.Sprint(len(results[i].all)), ms(results[i].percentile(50)), ms(results[i].percentile(99)), "", "", ""}
		if i > 0 {
			row[4], row[5] = ms(results[i].percentile(50)-results[0].percentile(50)), ms(results[i].percentile(99)-results[0].percentile(99))
			row[6] = ms(used[i] / time.Duration(len(results[i].all)))
		}
		rows = append(rows, row)
	}
	table(out, rows)
	return nil
}

// large measures the processor time of requests with long prompts.
func large(ctx context.Context, p plan, sides []*side, out io.Writer) error {
	sentence := `The quick brown fox jumps over the lazy dog, and \"why\" is a question for later.\n`
	body := strings.Replace(smallBody, "What is", strings.Repeat(sentence, p.largeBytes/len(sentence))+"What is", 1)
	rows := [][]string{{fmt.Sprintf("%d requests/s of %d kB", p.largeRate, len(body)/1000), "requests", "p50", "p99", "processor time"}}
	for _, s := range sides {
		var got latencies
		before, err := s.cpu()
		if err != nil {
			return err
		}
		s.load(ctx, p.largeRate, p.round, body, &got)
		after, err := s.cpu()
		if err = errors.Join(err, got.err()); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		row := []string{s.name, fmt.Sprint(len(got.all)), ms(got.percentile(50)), ms(got.percentile(99)), ""}
		if s.pid != 0 {
			row[4] = ms((after - before) / time.Duration(len(got.all)))
		}
		rows = append(rows, row)
	}
	table(out, rows)
	return nil
}

// streams measures the memory while many streams are open.
func streams(ctx context.Context, p plan, sides []*side, out io.Writer) error {
	rows := [][]string{{fmt.Sprintf("%d streams of %d events", p.streams, p.streamEvents), "memory before", "most memory", "processor time"}}
	body := strings.Replace(smallBody, `"max_tokens": 16`, fmt.Sprintf(`"stream": true, "max_tokens": %d`, p.streamEvents), 1)
	for _, s := range sides[1:] {
		before, err := s.memory()
		if err != nil {
			return err
		}
		cpu, err := s.cpu()
		if err != nil {
			return err
		}
		most, err := s.open(ctx, p, body)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		after, err := s.cpu()
		if err != nil {
			return err
		}
		rows = append(rows, []string{s.name, mb(before), mb(most), (after - cpu).Round(10 * time.Millisecond).String()})
	}
	table(out, rows)
	return nil
}

// open holds streams open until they end, and returns the most memory meanwhile. A stream that loses an event fails.
func (s *side) open(ctx context.Context, p plan, body string) (most int64, err error) {
	var asked sync.WaitGroup
	var got latencies
	want := streamLength(p.streamEvents)
	for range p.streams {
		asked.Go(func() {
			n, err := s.ask(ctx, body)
			if err == nil && n != want {
				err = fmt.Errorf("a stream has %d bytes, want %d", n, want)
			}
			got.add(0, err)
		})
	}
	ended := make(chan struct{})
	go func() {
		asked.Wait()
		close(ended)
	}()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			s.client.CloseIdleConnections()
			return most, got.err()
		case <-ticker.C:
		}
		now, err := s.memory()
		if err != nil {
			return 0, err
		}
		most = max(most, now)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func mb(bytes int64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }
