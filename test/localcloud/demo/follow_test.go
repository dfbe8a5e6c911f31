// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestLook(t *testing.T) {
	planned := condition("Planned", metav1.ConditionTrue, "PlanAccepted", "planned")
	machine := condition("ResourceReady", metav1.ConditionTrue, "Ready", "1 of 1 nodes ready")
	withPlan := func(conditions ...metav1.Condition) status {
		s := status{Conditions: conditions}
		s.Plan.Summary, s.Plan.HourlyPrice = "1 × M (1 × G)", "3.672"
		return s
	}
	cases := []struct {
		reason string
		status status
		want   view
	}{
		{
			reason: "a Workspace that nobody has looked at",
			want:   view{waiting: "plan: waiting for the controller"},
		},
		{
			reason: "the plan is told with its price, and the machine's condition knows most",
			status: withPlan(planned, condition("NodeClaimReady", metav1.ConditionFalse, "Launching", "being launched"),
				condition("ResourceReady", metav1.ConditionFalse, "x", "not ready")),
			want: view{done: []string{"planned: 1 × M (1 × G), $3.67/h"}, waiting: "machine: being launched"},
		},
		{
			reason: "without a NodeClaim the sum has to do",
			status: withPlan(planned, condition("ResourceReady", metav1.ConditionFalse, "x", "no machine yet")),
			want:   view{done: []string{"planned: 1 × M (1 × G), $3.67/h"}, waiting: "machine: no machine yet"},
		},
		{
			reason: "the machine is there",
			status: withPlan(planned, machine, condition("InferenceReady", metav1.ConditionFalse, "x", "fetching the weights")),
			want: view{
				done:    []string{"planned: 1 × M (1 × G), $3.67/h", "machine: 1 of 1 nodes ready"},
				waiting: "inference server: fetching the weights",
			},
		},
		{
			reason: "everything is there",
			status: withPlan(planned, machine, condition("InferenceReady", metav1.ConditionTrue, "x", "it answers"),
				condition("Ready", metav1.ConditionTrue, "Serving", "answers at http://demo")),
			want: view{ready: true, done: []string{
				"planned: 1 × M (1 × G), $3.67/h", "machine: 1 of 1 nodes ready", "inference server: it answers", "endpoint: answers at http://demo",
			}},
		},
		{
			reason: "a Workspace that needs its user",
			status: status{Conditions: []metav1.Condition{
				condition("Planned", metav1.ConditionFalse, "UnknownPreset", "no such model"),
				condition("Stalled", metav1.ConditionTrue, "UnknownPreset", "no such model"),
			}},
			want: view{waiting: "plan: no such model", stalled: "UnknownPreset: no such model"},
		},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if diff := cmp.Diff(c.want, look(c.status), cmp.AllowUnexported(view{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFollowerEnds(t *testing.T) {
	planned := condition("Planned", metav1.ConditionTrue, "PlanAccepted", "planned")
	cases := []struct {
		reason string
		states []status
		err    error
		want   string // part of the error; empty means none
	}{
		{
			reason: "ready", states: []status{{}, {Conditions: []metav1.Condition{planned}}, {Conditions: []metav1.Condition{
				condition("Ready", metav1.ConditionTrue, "Serving", "answers"),
			}}},
		},
		{
			reason: "stalled", states: []status{{Conditions: []metav1.Condition{condition("Stalled", metav1.ConditionTrue, "NameTaken", "a Service is in the way")}}},
			want: "NameTaken: a Service is in the way",
		},
		{reason: "the API server refuses", err: errors.New("forbidden"), want: "forbidden"},
		{reason: "nothing happens", states: []status{{}}, want: "the Workspace was not ready after 1.2s"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var out strings.Builder
			calls := 0
			f := &follower{name: "demo", console: newClock().console(&out, false), get: func(context.Context) (status, error) {
				calls++
				if c.err != nil {
					return status{}, c.err
				}
				return c.states[min(calls, len(c.states))-1], nil
			}}
			ctx, cancel := within(t.Context(), 1200*time.Millisecond, "the Workspace was not ready")
			defer cancel()
			err := f.untilReady(ctx)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}
