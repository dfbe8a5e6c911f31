// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/hub"
)

func TestGiveUpRule(t *testing.T) {
	start := time.Unix(0, 0)
	for _, tc := range []struct {
		reason string
		// moves are the seconds with progress.
		moves []int
		want  int
	}{
		{"nothing ever moves", nil, 60},
		{"every movement buys a full minute", []int{1, 50, 109}, 169},
		{"movement too late does not help", []int{61}, 60},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			fake := clocktesting.NewFakeClock(start)
			p := newStallDetector(fake, time.Minute)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan struct{})
			go func() { p.watch(ctx, cancel); close(ended) }()
			for second := 1; second <= 300; second++ {
				waitUntil(t, "the watch waits or has ended", func() bool { return fake.HasWaiters() || context.Cause(ctx) != nil })
				if context.Cause(ctx) != nil {
					break
				}
				fake.Step(time.Second)
				for _, m := range tc.moves {
					if m == second {
						p.moved()
					}
				}
				if second == tc.want {
					<-ended
				}
			}
			var stalled *StalledError
			if !errors.As(context.Cause(ctx), &stalled) || stalled.For != time.Minute {
				t.Fatalf("cause = %v, want a StalledError after a minute", context.Cause(ctx))
			}
			if got := int(fake.Since(start) / time.Second); got != tc.want {
				t.Errorf("given up after %ds, want %ds", got, tc.want)
			}
		})
	}
}

func TestWait(t *testing.T) {
	unreachable := &hub.UnreachableError{Status: 503}
	notFound := &hub.NotFoundError{Missing: "file"}
	enough := errors.New("enough")
	t.Run("what cannot heal is not waited for", func(t *testing.T) {
		p := newStallDetector(clocktesting.NewFakeClock(time.Unix(0, 0)), time.Minute)
		if err := p.wait(t.Context(), notFound, time.Hour); !errors.Is(err, notFound) {
			t.Errorf("wait() = %v, want the error itself", err)
		}
	})
	t.Run("the end of everything beats the error", func(t *testing.T) {
		p := newStallDetector(clocktesting.NewFakeClock(time.Unix(0, 0)), time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		for _, err := range []error{unreachable, notFound} {
			if got := p.wait(ctx, err, time.Hour); !errors.Is(got, enough) {
				t.Errorf("wait(%v) = %v, want the cause", err, got)
			}
		}
	})
	t.Run("the error is shown until something moves", func(t *testing.T) {
		fake := clocktesting.NewFakeClock(time.Unix(0, 0))
		p := newStallDetector(fake, time.Minute)
		done := make(chan error, 1)
		go func() { done <- p.wait(t.Context(), unreachable, time.Second) }()
		waitUntil(t, "the pause is on", fake.HasWaiters)
		fake.Step(time.Second)
		if err := <-done; err != nil {
			t.Errorf("wait() = %v, want another try", err)
		}
		if got := p.lastError(); !errors.Is(got, unreachable) {
			t.Errorf("lastError() = %v before movement", got)
		}
		p.moved()
		if got := p.lastError(); got != nil {
			t.Errorf("lastError() = %v after movement", got)
		}
	})
}

// The library chooses pauses at random around doubling values, so this tests only their bounds.
func TestPausesGrowToABound(t *testing.T) {
	pauses := newStallDetector(clocktesting.NewFakeClock(time.Unix(0, 0)), time.Minute).pause()
	if first := pauses.NextBackOff(); first < firstPause/2 || first > firstPause*3/2 {
		t.Errorf("first pause is %s, want about %s", first, firstPause)
	}
	for range 20 {
		pauses.NextBackOff()
	}
	if late := pauses.NextBackOff(); late < maxPause/2 || late > maxPause*3/2 {
		t.Errorf("late pause is %s, want about %s", late, maxPause)
	}
}
