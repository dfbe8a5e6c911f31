// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 10 * time.Second
)

// StalledError is returned if nothing has moved for the limit.
type StalledError struct {
	For  time.Duration
	Last error
}

func (e *StalledError) Error() string {
	if e.Last == nil {
		return fmt.Sprintf("no progress for %s", e.For)
	}
	return fmt.Sprintf("no progress for %s: %v", e.For, e.Last)
}

func (e *StalledError) Unwrap() error { return e.Last }

// stallDetector decides when to retry and when to stop. While anything moves (a byte arrives or is hashed), every
// failure is worth a retry. Once nothing has moved for the limit, no failure is.
type stallDetector struct {
	clock clock.WithTicker
	limit time.Duration
	pause func() backoff.BackOff

	mu       sync.Mutex
	progress time.Time
	last     error
}

func newStallDetector(c clock.WithTicker, limit time.Duration) *stallDetector {
	return &stallDetector{clock: c, limit: limit, progress: c.Now(), pause: func() backoff.BackOff {
		// MaxElapsedTime is 0, because the limit is for all requests together, not for each one.
		return backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2),
			backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0),
		)
	}}
}

// moved records progress.
func (d *stallDetector) moved() {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.progress, d.last = now, nil
}

// note records the obstacle for the error if nothing moves.
func (d *stallDetector) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
}

func (d *stallDetector) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// guard runs do, and cancels it with a StalledError once nothing has moved for the limit.
func (d *stallDetector) guard(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	d.moved() // the wait begins now
	watch.Go(func() { d.watch(ctx, cancel) })
	defer watch.Wait()
	defer cancel(nil)
	return do(ctx)
}

// watch cancels with a StalledError when the limit is reached, until ctx ends.
func (d *stallDetector) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	timer := d.clock.NewTimer(d.limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		d.mu.Lock()
		left, last := d.limit-d.clock.Since(d.progress), d.last
		d.mu.Unlock()
		if left <= 0 {
			cancel(&StalledError{For: d.limit, Last: last})
			return
		}
		timer.Reset(left)
	}
}

// wait waits for the next try after err. It returns the reason if there must be no next try.
func (d *stallDetector) wait(ctx context.Context, err error, pause time.Duration) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	after, mayPass := hub.Again(err)
	if !mayPass {
		return err
	}
	d.note(err)
	timer := d.clock.NewTimer(max(pause, after))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// persist repeats a call until it succeeds or there is no point in repeating it.
func persist[T any](ctx context.Context, d *stallDetector, call func() (T, error)) (T, error) {
	pauses := d.pause()
	for {
		out, err := call()
		if err == nil {
			return out, nil
		}
		if err := d.wait(ctx, err, pauses.NextBackOff()); err != nil {
			return out, err
		}
	}
}
