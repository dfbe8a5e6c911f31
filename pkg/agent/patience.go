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

// StalledError is returned if nothing moved for the longest acceptable time.
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

// patience decides when to try again and when to stop trying: as long as
// anything moves anywhere (a byte arrived, a byte was hashed), every failure is
// worth another try; once nothing has moved for limit, none is.
type patience struct {
	clock clock.WithTicker
	limit time.Duration
	pause func() backoff.BackOff

	mu       sync.Mutex
	progress time.Time
	last     error
}

func newPatience(c clock.WithTicker, limit time.Duration) *patience {
	return &patience{clock: c, limit: limit, progress: c.Now(), pause: func() backoff.BackOff {
		// MaxElapsedTime 0: the limit is not for one request but for all of them.
		return backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2),
			backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0),
		)
	}}
}

// moved notes progress.
func (p *patience) moved() {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress, p.last = now, nil
}

// note keeps the obstacle for the report if nothing moves.
func (p *patience) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = err
}

func (p *patience) lastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// watch cancels with a StalledError when the limit is reached, until ctx ends.
func (p *patience) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	timer := p.clock.NewTimer(p.limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		p.mu.Lock()
		left, last := p.limit-p.clock.Since(p.progress), p.last
		p.mu.Unlock()
		if left <= 0 {
			cancel(&StalledError{For: p.limit, Last: last})
			return
		}
		timer.Reset(left)
	}
}

// wait returns nil when it is time to try again after err, else the reason not to.
func (p *patience) wait(ctx context.Context, err error, pause time.Duration) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	after, mayPass := hub.Again(err)
	if !mayPass {
		return err
	}
	p.note(err)
	timer := p.clock.NewTimer(max(pause, after))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// persist repeats a call until it succeeds or there is no point in repeating it.
func persist[T any](ctx context.Context, p *patience, call func() (T, error)) (T, error) {
	pauses := p.pause()
	for {
		out, err := call()
		if err == nil {
			return out, nil
		}
		if err := p.wait(ctx, err, pauses.NextBackOff()); err != nil {
			return out, err
		}
	}
}
