// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// TestOnePassHasOneVersionOfTheLimits: limits may change during a pass, and only the next pass uses the new ones.
func TestOnePassHasOneVersionOfTheLimits(t *testing.T) {
	reads := 0.0
	r := New(Config{
		Clock: testclock.NewFakePassiveClock(now.Time),
		Limits: func() purchase.Limits {
			reads++
			return purchase.Limits{Ceilings: ledger.Ceilings{Cluster: reads}}
		},
	})
	var got []float64
	for range 2 { // passes
		s := scope.New(workspaceObject())
		for range 2 { // choices
			got = append(got, r.executor.Choice(s).Limits.Ceilings.Cluster)
		}
	}
	if diff := cmp.Diff([]float64{1, 1, 2, 2}, got); diff != "" {
		t.Errorf("ceilings of two passes (-want +got):\n%s", diff)
	}
}
