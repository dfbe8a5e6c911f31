// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// TestWasteOfUsableMachines ends an attempt with two usable machines at $3.00 per hour, an hour after their creation.
// They are wasted if no pod was ever ready on them.
func TestWasteOfUsableMachines(t *testing.T) {
	then := metav1.NewTime(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	tests := []struct {
		reason string
		change func(*v1beta1.Attempt, acquire.Machines)
		want   float64
	}{
		{"no pod was ready", func(*v1beta1.Attempt, acquire.Machines) {}, 6},
		{"a pod was ready, and failed later", func(a *v1beta1.Attempt, _ acquire.Machines) { a.AnsweredTime = &then }, 0},
		{"they were released for another plan", func(a *v1beta1.Attempt, _ acquire.Machines) { a.Reason = v1beta1.ReasonReleased }, 0},
		{"they were never usable, so the decision has their cost", func(a *v1beta1.Attempt, _ acquire.Machines) { a.ReadyTime = nil }, 0},
		{"the price of one is unknown", func(_ *v1beta1.Attempt, m acquire.Machines) { m[0].HourlyPrice = -1 }, 3},
		{"one belongs to another attempt", func(_ *v1beta1.Attempt, m acquire.Machines) { m[1].Name = "serves" }, 3},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ended := v1beta1.Attempt{Number: 1, Reason: v1beta1.ReasonCannotServe, ReadyTime: &then, NodeClaims: []string{"a", "b"}}
			s := scope.New(&v1beta1.Workspace{})
			for _, name := range ended.NodeClaims {
				s.Machines = append(s.Machines, capacity.Machine{Name: name, Launched: true, HourlyPrice: 3, CreatedAt: then.Time})
			}
			test.change(&ended, s.Machines)
			e := &Executor{Clock: testclock.NewFakePassiveClock(then.Add(time.Hour))}
			e.note(t.Context(), s, &acquire.Decision{Ended: []acquire.Ended{{Attempt: ended}}})
			if s.Wasted != test.want {
				t.Errorf("wasted %v, want %v", s.Wasted, test.want)
			}
		})
	}
}
