// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookup reads data that many reconciles need and no cache has. A source that does not answer blocks one of
// them instead of all.
//
// It decides which caller reads a source, how long the others wait, and how long a failure counts. It must not know
// the data, and keeps no answers.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// deadline is how long a source may take to answer.
	deadline = 10 * time.Second
	// waitLimit is how long others wait for it, from when it was asked.
	waitLimit = 500 * time.Millisecond
	// failureHolds is how long a failure counts without the source being asked again.
	failureHolds = 5 * time.Second
)

// BusyError means that another caller has been waiting for a source for some time.
type BusyError struct{ Source string }

func (e *BusyError) Error() string { return "waiting for the API server to answer about " + e.Source }

// Reads shares reads among callers. The zero value is ready, and may be used from several goroutines.
type Reads struct {
	mu       sync.Mutex
	underway map[string]flight
	failed   map[string]failure
}

// flight is a running read: it ends with an answer, or when the others have waited long enough.
type flight struct {
	answered, overdue <-chan struct{}
}

type failure struct {
	err   error
	until time.Time
}

// holds reports whether the failure still counts. Setting the clock back does not prolong it.
func (f failure) holds(now time.Time) bool {
	left := f.until.Sub(now)
	return left > 0 && left <= deadline+failureHolds
}

// Do reads a source, unless another caller is reading it. Then it waits for a moment, and returns false once that
// read has succeeded: the caller uses its result. A recent failure is not retried. No lock is held while read runs.
func (r *Reads) Do(ctx context.Context, source string, now time.Time, read func(context.Context) error) (isOurs bool, err error) {
	others, done, err := r.begin(source, now)
	if err != nil {
		return false, err
	}
	if done == nil {
		select {
		case <-others.answered:
			return false, r.failure(source, now)
		case <-others.overdue:
			return false, &BusyError{source}
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for %s: %w", source, ctx.Err())
		}
	}
	err = context.Canceled // should read panic
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err = read(ctx)
	return true, err
}

// begin returns the running read, or registers a new one until done is called.
func (r *Reads) begin(source string, now time.Time) (others flight, done func(error), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failed, func(_ string, known failure) bool { return !known.holds(now) })
	if known, isFailed := r.failed[source]; isFailed {
		return flight{}, nil, known.err
	}
	if others, isUnderway := r.underway[source]; isUnderway {
		return others, nil, nil
	}
	answered, stop := context.WithCancel(context.Background())
	overdue, forget := context.WithTimeout(context.Background(), waitLimit)
	if r.underway == nil {
		r.underway, r.failed = map[string]flight{}, map[string]failure{}
	}
	r.underway[source] = flight{answered.Done(), overdue.Done()}
	return flight{}, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.underway, source)
		if err != nil {
			r.failed[source] = failure{err, now.Add(took(err) + failureHolds)}
		}
		stop()
		forget()
	}, nil
}

// took is the least duration of a read with this error.
func took(err error) time.Duration {
	if errors.Is(err, context.DeadlineExceeded) {
		return deadline
	}
	return 0
}

// failure is how the last read of a source failed; nil if it did not.
func (r *Reads) failure(source string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, isFailed := r.failed[source]; isFailed && known.holds(now) {
		return known.err
	}
	return nil
}
