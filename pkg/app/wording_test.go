// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/options"
)

// TestAnswers checks the deadlines and the provider of the messages.
func TestAnswers(t *testing.T) {
	o := options.Controller{
		LaunchDeadline: time.Minute, RegistrationDeadline: 2 * time.Minute, InitializationDeadline: 3 * time.Minute, NodeGrace: 4 * time.Minute,
	}
	deadlines := refusal.Deadlines{Launched: time.Minute, Registered: 2 * time.Minute, Initialized: 3 * time.Minute}
	tests := []struct {
		reason  string
		wording string
		chosen  backEnd
		want    *refusal.Provider
	}{
		{"those of the node class", "", options.BackendNodeClaim, nil},
		{"those that the administrator names", string(refusal.KarpenterAWS), options.BackendNodeClaim, new(refusal.KarpenterAWS)},
		{"nobody's", options.WordingNone, options.BackendNodeClaim, new(refusal.UnknownProvider)},
		{"cluster autoscaler's", "", options.BackendPods, new(refusal.ClusterAutoscaler)},
		{"and not those of the cloud behind it", string(refusal.KarpenterAWS), options.BackendPods, new(refusal.ClusterAutoscaler)},
		{"nobody's, whoever brings nodes", options.WordingNone, options.BackendPods, new(refusal.UnknownProvider)},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			o.CapacityWording = test.wording
			got, err := acquisitionOf(o, test.chosen)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(deadlines, got.Deadlines); diff != "" || got.NodeGrace != 4*time.Minute {
				t.Errorf("node grace %s, deadlines (-want +got):\n%s", got.NodeGrace, diff)
			}
			if diff := cmp.Diff(test.want, got.Wording); diff != "" {
				t.Errorf("whose words (-want +got):\n%s", diff)
			}
		})
	}
}
