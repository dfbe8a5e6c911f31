// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/progress"
)

func TestBehind(t *testing.T) {
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	b, key := newBehind(), types.NamespacedName{Namespace: "a", Name: "chat"}
	looks := func(count int) []time.Duration {
		var out []time.Duration
		now := start
		for range count {
			wait := b.again(key, now)
			out, now = append(out, wait), now.Add(wait)
		}
		return out
	}
	ms := time.Millisecond
	want := []time.Duration{200 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10 * time.Second, 10 * time.Second}
	if diff := cmp.Diff(want, looks(len(want))); diff != "" {
		t.Errorf("a watch that lags (-want +got):\n%s", diff)
	}
	b.over(key)
	if diff := cmp.Diff(want[:2], looks(2)); diff != "" {
		t.Errorf("once it had caught up (-want +got):\n%s", diff)
	}
	b.over(key)
	if len(b.since) != 0 {
		t.Errorf("kept for good: %v", b.since)
	}
}

// TestBriefWaits: what is about to pass is looked at in a moment, and seldom where it does not pass; what has a time
// of its own is looked at then, whatever that is.
func TestBriefWaits(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workspaces"}, "chat", errors.New("written since"))
	tests := []struct {
		reason string
		err    error
		want   time.Duration // a minute after it began
	}{
		{"a brief wait", fmt.Errorf("plan: %w", &progress.WaitingError{Message: "the newest plan does not show", IsBrief: true}), longestBehind},
		{"a conflict", conflict, longestBehind},
		{"one as short", &progress.WaitingError{Message: "terminating", After: conflictDelay}, conflictDelay},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(now)
			r, s := New(Config{Clock: clock}), newScope(workspaceObject())
			for _, want := range []time.Duration{conflictDelay, test.want} {
				result, err := r.result(t.Context(), s, test.err)
				if err != nil || result.RequeueAfter != want {
					t.Errorf("at %s: %v, %v; want another look after %s", clock.Now().Format(time.TimeOnly), result, err, want)
				}
				clock.SetTime(now.Add(time.Minute))
			}
		})
	}
}

// TestServesOnMeanwhile: pods that serve are looked after while more machines have to wait, which is not forgotten.
func TestServesOnMeanwhile(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		reason string
		err    error
		again  time.Duration
		want   error
	}{
		{"a brief wait", &progress.WaitingError{Message: "another asks first", IsBrief: true}, conflictDelay, nil},
		{"a longer one", &progress.WaitingError{Message: "the quota", After: time.Hour}, time.Hour, nil},
		{"somebody has to act", &progress.StalledError{RetryAfter: time.Minute}, time.Minute, nil},
		{"an error", broken, 0, broken},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newScope(workspaceObject())
			if err := s.serveOn(test.err); !errors.Is(err, test.want) || s.requeueAfter != test.again {
				t.Errorf("%v, another look after %s; want %v and %s", err, s.requeueAfter, test.want, test.again)
			}
		})
	}
}
