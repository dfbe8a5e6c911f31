// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
)

// TestNextKnowsTheMachines covers a status without attempts. It may have been lost just after the first request for
// machines. A new attempt would have the same number, and would release these machines if the cache lacks them. The
// pass that adds the finalizer is the first one, and needs no live read.
func TestNextKnowsTheMachines(t *testing.T) {
	tests := []struct {
		reason   string
		isNew    bool
		held     []string
		attempts []v1beta1.Attempt
		want     int32
	}{
		{"nothing is held", false, nil, nil, 1},
		{"a machine is held that does not show yet", false, names(t, 1), nil, 0},
		{"it is the first pass", true, names(t, 1), nil, 1},
		{"the status tells of an attempt", false, names(t, 1), []v1beta1.Attempt{{Number: 1, Reason: v1beta1.ReasonReleased}}, 2},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Status.Attempts = test.attempts
			r := New(Config{
				Planner: thrifty{},
				Client:  server(t), Live: server(t), Provisioner: live{names: test.held}, Catalog: emptyCatalog{},
				Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := scope.New(ws)
			s.IsNew, s.Revision = test.isNew, accepted(1)
			err := r.executor.Next(t.Context(), s)
			if waits := test.want == 0; progress.IsWaiting(err) != waits || err != nil != waits {
				t.Fatalf("error %v, want to wait: %v", err, waits)
			}
			got := int32(0)
			if open := s.OpenAttempt(); open != nil {
				got = open.Number
			}
			if got != test.want {
				t.Errorf("attempt %d was begun, want %d", got, test.want)
			}
		})
	}
}
