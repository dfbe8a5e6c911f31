// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// TestAwaitReleaseNamesMachines: the wait for a release names the machines.
func TestAwaitReleaseNamesMachines(t *testing.T) {
	ended := func(reason, fix string) []v1beta1.Attempt {
		at := metav1.NewTime(now.Time)
		return []v1beta1.Attempt{{Number: 3, InstanceType: "big", EndTime: &at, Reason: reason, Message: "its words", Fix: fix}}
	}
	tests := []struct {
		reason   string
		attempts []v1beta1.Attempt
		want     string
		parts    []string
		not      string
	}{
		{"nothing is known", nil, "", nil, "its words"},
		{"an attempt goes on", []v1beta1.Attempt{{Number: 3, InstanceType: "big"}}, "", nil, "next best"},
		{"let go", ended(v1beta1.ReasonReleased, ""), "", nil, "next best"},
		{"refused", ended("NoCapacity", ""), "", []string{"its words", "the controller requests the next best machine type once the present machines are gone"}, ""},
		{"misconfigured", ended("Misconfigured", "mend it"), "Misconfigured", []string{"its words", "mend it"}, "next best"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := scope.New(&v1beta1.Workspace{})
			s.Attempts = test.attempts
			s.Machines = []capacity.Machine{{Name: "ws-b", Deleting: true}, {Name: "ws-c"}, {Name: "ws-a", Deleting: true}}
			waiting, ok := errors.AsType[*progress.WaitingError](s.AwaitRelease(s.Machines.Leaving()))
			if !ok || waiting.Reason != test.want || waiting.After != scope.RetryRelease {
				t.Fatalf("got %+v, want to wait with reason %q", waiting, test.want)
			}
			for _, part := range append(test.parts, "ws-a, ws-b;") {
				if !strings.Contains(waiting.Message, part) {
					t.Errorf("message %q lacks %q", waiting.Message, part)
				}
			}
			if test.not != "" && strings.Contains(waiting.Message, test.not) {
				t.Errorf("message %q holds %q", waiting.Message, test.not)
			}
		})
	}
}

// classes is a provisioner whose node classes are all in one state.
type classes struct {
	acquisition.Provisioner
	state refusal.ClassState
}

func (c classes) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return c.state, "", nil
}

// TestStopLooksAtTheClass: Stop looks again only if the node class was the obstacle. Any other obstacle waits for a
// person.
func TestStopLooksAtTheClass(t *testing.T) {
	tests := []struct {
		reason    string
		mender    refusal.Mender
		then, now refusal.ClassState
		looks     bool
	}{
		{"the class is still missing", refusal.MendedByClass, refusal.ClassMissing, refusal.ClassMissing, true},
		{"it is there, but not ready", refusal.MendedByClass, refusal.ClassMissing, refusal.ClassNotReady, true},
		{"nobody may look at it", refusal.MendedByClass, refusal.ClassNotSeen, refusal.ClassNotSeen, true},
		{"it was ready at the refusal", refusal.MendedByClass, refusal.ClassReady, refusal.ClassReady, false},
		{"the class was not to blame", "", "", refusal.ClassReady, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Provisioner: classes{state: test.now}})
			s := scope.New(&v1beta1.Workspace{})
			s.Revision = &revision.Revision{}
			s.Attempts = []v1beta1.Attempt{{
				Number: 1, Reason: v1beta1.ReasonMisconfigured, Message: "its words", Fix: "mend it",
				MendedBy: string(test.mender), NodeClass: string(test.then),
			}}
			isOver, err := r.executor.Stop(t.Context(), s)
			stalled, ok := errors.AsType[*progress.StalledError](err)
			if !ok || !isOver {
				t.Fatalf("over %v, %v; want a stall", isOver, err)
			}
			if (stalled.RetryAfter > 0) != test.looks || strings.Contains(stalled.Message, "change the spec") == test.looks {
				t.Errorf("looks again after %s, message %q; want to look again: %v", stalled.RetryAfter, stalled.Message, test.looks)
			}
			if !strings.Contains(stalled.Message, "mend it") {
				t.Errorf("message %q does not say what to do", stalled.Message)
			}
		})
	}
}
