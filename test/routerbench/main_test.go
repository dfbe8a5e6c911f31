// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own program be the engine and the router.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == roleEngine || os.Args[1] == roleRouter) {
		if err := child(os.Args[1], os.Args[2:]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestBench runs a short benchmark: every request is answered, and each table has the direct way and the router.
func TestBench(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	p := plan{rounds: 1, round: 200 * time.Millisecond, rate: 50, largeRate: 10, largeBytes: 400_000, streams: 5, streamEvents: 1}
	if err := bench(ctx, p, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"50 requests/s of", "10 requests/s of 400 kB", "5 streams of 1 events", "direct", "router"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the figures have no %q:\n%s", want, out.String())
		}
	}
}

func TestPercentile(t *testing.T) {
	var l latencies
	for i := range 100 {
		l.add(time.Duration(100-i), nil)
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 51, 99: 100, 100: 100} {
		if got := l.percentile(p); got != want {
			t.Errorf("percentile %v is %d, want %d", p, got, want)
		}
	}
}

func TestProcess(t *testing.T) {
	used, err := processorTime([]byte("42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0"))
	if err != nil || used != 3*time.Second {
		t.Errorf("processor time %s (%v), want 3 s", used, err)
	}
	memory, err := shareOfPages("0-1 ---p\nRss: 8 kB\nPss:   4 kB\nPss_Dirty: 2 kB\n")
	if err != nil || memory != 4096 {
		t.Errorf("memory %d (%v), want 4096", memory, err)
	}
	for _, text := range []string{"", "1 (x) S"} {
		if _, err := processorTime([]byte(text)); err == nil {
			t.Errorf("%q has a processor time", text)
		}
		if _, err := shareOfPages(text); err == nil {
			t.Errorf("%q has a memory", text)
		}
	}
}
