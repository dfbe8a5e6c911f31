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
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/progress"
)

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

// TestServesOnMeanwhile: pods that serve are looked after while more machines have to wait, which is not forgotten.
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
			s := scope.New(workspaceObject())
			if err := s.ServeOn(test.err); !errors.Is(err, test.want) || s.RequeueAfter != test.again {
				t.Errorf("%v, another look after %s; want %v and %s", err, s.RequeueAfter, test.want, test.again)
			}
		})
	}
}

// TestStatusChanged says which changes of a status have a Workspace looked at.
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
