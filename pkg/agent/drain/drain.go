// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Permanent errors that a probe wraps.
var (
	// ErrGone means that there is no process to wait for.
	ErrGone = errors.New("no process answers")
	// ErrUnreported means that the process answers, but does not report its number of requests.
	ErrUnreported = errors.New("the number of requests is unknown")
)

const (
	lookEvery   = 500 * time.Millisecond
	lookTimeout = 5 * time.Second
	// idleFor is the time without requests after which the engine counts as idle. A request between two states may be
	// in no gauge.
	idleFor = time.Second
	// answerMargin is the caller's extra time beyond the timeout to receive the answer.
	answerMargin = 10 * time.Second
)

// Config has the inputs of a Drain.
type Config struct {
	// IsBusy reports whether a request is in flight. If it is nil, the drain does not wait.
	IsBusy func(ctx context.Context) (bool, error)
	// Settle is the time after the drain's start in which requests may still arrive, because some proxies still route
	// to the pod.
	Settle time.Duration
	// Timeout bounds the drain, Settle included.
	Timeout time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
}

// maxMisses is the number of unanswered queries in a row after which the followed member counts as gone.
const maxMisses = 3

// Following returns a probe that is busy while the leader's drain continues. An engine on several pods must run until
// the leader has finished.
func Following(isDraining func(context.Context) (bool, error)) func(context.Context) (bool, error) {
	var misses atomic.Int32
	return func(ctx context.Context) (bool, error) {
		isBusy, err := isDraining(ctx)
		if err == nil {
			misses.Store(0)
			return isBusy, nil
		}
		if misses.Add(1) < maxMisses {
			return true, err
		}
		return false, fmt.Errorf("%w: %w", ErrGone, err)
	}
}

// Drain waits until an engine has finished its requests. Any number of callers may wait at once.
type Drain struct {
	config  Config
	running atomic.Int32
}

// New returns a Drain. Run starts it.
func New(c Config) *Drain { return &Drain{config: c} }

// IsRunning reports whether a drain is in progress.
func (d *Drain) IsRunning() bool { return d.running.Load() > 0 }

// ServeHTTP responds once the drain is over.
func (d *Drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline := d.config.Clock.Now().Add(d.config.Timeout + answerMargin)
	// A test's recorder supports no deadlines, and needs none.
	_ = http.NewResponseController(w).SetWriteDeadline(deadline)
	_, _ = w.Write([]byte(d.Run(r.Context()) + "\n"))
}

// Run waits until the drain is over, and returns the reason.
func (d *Drain) Run(ctx context.Context) string {
	if d.config.IsBusy == nil {
		return whyUnknown
	}
	d.running.Add(1)
	defer d.running.Add(-1)
	began := d.config.Clock.Now()
	d.config.Log.Info("draining", "settle", d.config.Settle, "timeout", d.config.Timeout)
	why := d.wait(ctx, began)
	d.config.Log.Info("drained", "why", why, "took", d.config.Clock.Since(began))
	return why
}

func (d *Drain) wait(ctx context.Context, began time.Time) string {
	timeout := d.config.Clock.NewTimer(d.config.Timeout)
	defer timeout.Stop()
	ticker := d.config.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	state := state{settled: began.Add(d.config.Settle)}
	for {
		var why string
		if state, why = state.after(d.look(ctx), d.config.Clock.Now()); why != "" {
			return why
		}
		select {
		case <-ctx.Done():
			return whyCancelled
		case <-timeout.C():
			return whyTimeout
		case <-ticker.C():
		}
	}
}

func (d *Drain) look(ctx context.Context) reading {
	ctx, cancel := context.WithTimeout(ctx, min(lookTimeout, d.config.Timeout))
	defer cancel()
	isBusy, err := d.config.IsBusy(ctx)
	if err != nil {
		d.config.Log.Warn("the engine does not report whether it is busy", "err", err)
	}
	return reading{isBusy: isBusy, err: err}
}

// Reasons for the end of a drain.
const (
	whyIdle       = "no request is in flight"
	whyGone       = "the engine does not answer"
	whyUnreported = "the engine does not report whether it is busy"
	whyUnknown    = "no source reports requests in flight"
	whyTimeout    = "the time limit has passed"
	whyCancelled  = "the caller has disconnected"
)

// reading is one answer of the engine.
type reading struct {
	isBusy bool
	err    error
}

// state is the state of a drain between two readings.
type state struct {
	settled   time.Time
	idleSince time.Time
}

// after returns the state after one more reading and, if the drain is over, the reason.
func (s state) after(seen reading, now time.Time) (state, string) {
	switch {
	case errors.Is(seen.err, ErrGone):
		return s, whyGone
	case errors.Is(seen.err, ErrUnreported):
		// The engine will not report more later, but requests may still arrive.
		if now.Before(s.settled) {
			return s, ""
		}
		return s, whyUnreported
	case seen.err != nil || seen.isBusy: // an engine that is too busy to report counts as busy
		s.idleSince = time.Time{}
		return s, ""
	case s.idleSince.IsZero():
		s.idleSince = now
	}
	if now.Before(s.settled) || now.Sub(s.idleSince) < idleFor {
		return s, ""
	}
	return s, whyIdle
}
