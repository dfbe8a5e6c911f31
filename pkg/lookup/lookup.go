// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookup reads data that many reconciles need and no cache has. If a source does not answer, it blocks one
// reconcile instead of all.
//
// It decides which caller reads a source, how long the others wait, and how long a failure counts. It must not know the
// data, and keeps no answers.
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
	// deadline is the longest time for one read of a source.
	deadline = 10 * time.Second
	// waitLimit is how long other callers wait for a read, counted from its start.
	waitLimit = 500 * time.Millisecond
	// failureHolds is how long a failure counts. During that time, the source is not read again.
	failureHolds = 5 * time.Second
)

// BusyError means that another caller's read has taken longer than waitLimit.
type BusyError struct{ Source string }

func (e *BusyError) Error() string { return "waiting for the API server to answer about " + e.Source }

// Reads shares reads among callers. The zero value is ready for use, also from several goroutines.
type Reads struct {
	mu       sync.Mutex
	underway map[string]flight
	failed   map[string]failure
}

// flight is a running read. Other callers stop waiting at an answer, or when the read is overdue.
type flight struct {
	answered, overdue <-chan struct{}
}

type failure struct {
	err   error
	until time.Time
}

// holds reports whether the failure still counts. A clock that is set back does not prolong it.
func (f failure) holds(now time.Time) bool {
	left := f.until.Sub(now)
	return left > 0 && left <= deadline+failureHolds
}

// Do calls read for a source, unless another caller is reading it. It then returns true and the error of read.
// Otherwise it waits for the other read, up to waitLimit. If the other read succeeds, Do returns false, and the caller
// uses its result. After a recent failure, Do returns the same error without a read. No lock is held during read.
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
	err = context.Canceled // the error if read panics
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err = read(ctx)
	return true, err
}

// IsUnderway reports whether a caller is reading a source.
func (r *Reads) IsUnderway(source string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, isUnderway := r.underway[source]
	return isUnderway
}

// begin returns the running read of a source. If there is none, it registers one, which ends when the caller calls
// done.
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

// took returns the least duration of a read with this error.
func took(err error) time.Duration {
	if errors.Is(err, context.DeadlineExceeded) {
		return deadline
	}
	return 0
}

// failure returns the error of the last read of a source; nil if it succeeded.
func (r *Reads) failure(source string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, isFailed := r.failed[source]; isFailed && known.holds(now) {
		return known.err
	}
	return nil
}
