// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/progress"
)

// TestBriefWaits: the delay after a brief wait grows while it lasts, and a wait with its own delay keeps it.
func TestBriefWaits(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workspaces"}, "chat", errors.New("written since"))
	tests := []struct {
		reason string
		err    error
		want   time.Duration // a minute after the wait began
	}{
		{"a brief wait", fmt.Errorf("plan: %w", &progress.WaitingError{Message: "the newest plan does not show", IsBrief: true}), stale.LongestDelay},
		{"a conflict", conflict, stale.LongestDelay},
		{"one as short", &progress.WaitingError{Message: "terminating", After: stale.ShortestDelay}, stale.ShortestDelay},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			clock := testclock.NewFakePassiveClock(now)
			r, s := New(Config{Clock: clock}), scope.New(workspaceObject())
			for _, want := range []time.Duration{stale.ShortestDelay, test.want} {
				result, err := r.result(t.Context(), s, test.err)
				if err != nil || result.RequeueAfter != want {
					t.Errorf("at %s: %v, %v; want another look after %s", clock.Now().Format(time.TimeOnly), result, err, want)
				}
				clock.SetTime(now.Add(time.Minute))
			}
		})
	}
}

// TestBriefWaitsWriteNoStatus checks that a brief wait writes no status: many simultaneous starts wait for each other,
// and each write would delay all. A longer wait is reported, and an attempt is always written before a purchase.
func TestBriefWaitsWriteNoStatus(t *testing.T) {
	brief := fmt.Errorf("workload: %w", &progress.WaitingError{Message: "waiting for the API server", IsBrief: true})
	tests := []struct {
		reason  string
		err     error
		lasted  time.Duration
		attempt bool
		want    bool
	}{
		{"a brief wait", brief, 0, false, false},
		{"the same, a second later", brief, time.Second, false, false},
		{"a brief wait that lasts", brief, 3 * time.Second, false, true},
		{"a brief wait with a new attempt", brief, 0, true, true},
		{"a wait for a machine", &progress.WaitingError{Message: "waiting for a machine"}, 0, false, true},
		{"no wait", nil, 0, false, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws, written := workspaceObject(), 0
			r, _ := teller(t, ws, func() error { written++; return nil })
			clock := testclock.NewFakePassiveClock(now.Time)
			r.Clock = clock
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				t.Fatal(err)
			}
			r.backoff.Next(client.ObjectKeyFromObject(ws), now.Time)
			clock.SetTime(now.Add(test.lasted))
			s := scope.New(ws)
			if s.Revision = accepted(1); test.attempt {
				begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			}
			if err := r.report(t.Context(), s, test.err); err != nil || written > 0 != test.want {
				t.Errorf("%d writes, error %v; want one: %v", written, err, test.want)
			}
		})
	}
}

// TestServesOnMeanwhile: a pass goes on with the serving pods while more machines must wait, and keeps the delay.
func TestServesOnMeanwhile(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		reason string
		err    error
		again  time.Duration
		want   error
	}{
		{"a brief wait", &progress.WaitingError{Message: "another asks first", IsBrief: true}, stale.ShortestDelay, nil},
		{"a longer one", &progress.WaitingError{Message: "the quota", After: time.Hour}, time.Hour, nil},
		{"somebody has to act", &progress.StalledError{RetryAfter: time.Minute}, time.Minute, nil},
		{"an error", broken, 0, broken},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r, s := New(Config{Clock: testclock.NewFakePassiveClock(now.Time)}), scope.New(workspaceObject())
			if err := r.serveOn(s, test.err); !errors.Is(err, test.want) || s.RequeueAfter != test.again {
				t.Errorf("%v, another look after %s; want %v and %s", err, s.RequeueAfter, test.want, test.again)
			}
		})
	}
}

// TestServesOnWithBackoff: passes back off while the cache lags, because each may cost a request.
func TestServesOnWithBackoff(t *testing.T) {
	clock := testclock.NewFakePassiveClock(now.Time)
	r := New(Config{Clock: clock})
	for _, want := range []time.Duration{stale.ShortestDelay, stale.LongestDelay} {
		s := scope.New(workspaceObject())
		s.CapacityErr = progress.Behind("machines")
		if err := r.serveOn(s, s.CapacityErr); err != nil {
			t.Fatal(err)
		}
		if result, err := r.result(t.Context(), s, nil); err != nil || result.RequeueAfter != want {
			t.Errorf("another look after %s, error %v; want %s", result.RequeueAfter, err, want)
		}
		clock.SetTime(now.Add(time.Minute))
	}
}

// TestStatusChanged checks which changes of a status lead to a pass.
func TestStatusChanged(t *testing.T) {
	was, is := workspaceObject(), workspaceObject()
	was.ResourceVersion, is.ResourceVersion, is.Status.State = "1", "2", v1beta1.StateReady
	r := New(Config{})
	watches := r.watches()
	news := func(before, after *v1beta1.Workspace) bool {
		return watches.StatusChanged().Update(ctrlevent.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	if !news(was, is) {
		t.Error("what somebody else has written is no news")
	}
	if news(was, was.DeepCopy()) {
		t.Error("a change of something else is news of the status")
	}
	_ = r.records.expectations.Write(was.DeepCopy(), func() error { return nil }) // nothing was written
	if !news(was, is) {
		t.Error("what somebody else has written is no news after a write that was none")
	}
	written := was.DeepCopy()
	if err := r.records.expectations.Write(written, func() error { written.ResourceVersion = "2"; return nil }); err != nil {
		t.Fatal(err)
	}
	if news(was, is) {
		t.Error("what was written here is news")
	}
}
