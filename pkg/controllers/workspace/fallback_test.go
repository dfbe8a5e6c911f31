// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
)

// pair plans with A or else B, whichever is not left alone.
type pair struct{}

func (pair) Plan(r planner.Request) (planner.Plan, error) {
	for _, name := range []string{"A", "B"} {
		isLeft := slices.ContainsFunc(r.Constraints.Excluded, func(e planner.Exclusion) bool { return e.InstanceType == name })
		if !isLeft {
			return planner.Plan{InstanceType: name, Nodes: 2, GPUsPerNode: 1, MachineGPUs: 1, Accelerator: "T4"}, nil
		}
	}
	return planner.Plan{}, &planner.InfeasibleError{Reason: v1beta1.ReasonNoMachineAllowed, Message: "left alone"}
}

// TestHelp: where nothing is left to ask for, it says what a bigger quota would open, if anything.
func TestHelp(t *testing.T) {
	const (
		retry     = " (then set the annotation modelberth.dev/retry-capacity to a new value)"
		otherwise = "; allowing another machine type or region would help sooner, too"
		noQuota   = "allowing another machine type, capacity type, zone or region would help sooner"
	)
	left := func(name string, cause refusal.Cause) ladder.Exclusion {
		return ladder.Exclusion{Offering: refusal.Offering{InstanceType: name}, Cause: cause, Until: now.Add(time.Hour)}
	}
	tests := []struct {
		reason   string
		excluded []ladder.Exclusion
		not      []string // allowed, whatever the cloud says
		cause    refusal.Cause
		want     string
	}{
		{
			"that of the accepted plan",
			[]ladder.Exclusion{left("A", refusal.Quota), left("B", refusal.NoCapacity)},
			nil, refusal.Quota,
			"a bigger quota would open 2 × A (1 × T4)" + retry + otherwise,
		},
		{
			"that of another one",
			[]ladder.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.Quota)},
			nil, refusal.NoCapacity,
			"a bigger quota would open 2 × B (1 × T4)" + retry + otherwise,
		},
		{"no quota is in the way", []ladder.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.TimedOut)}, nil, refusal.NoCapacity, noQuota},
		{
			"a quota for what the Workspace does not allow opens nothing",
			[]ladder.Exclusion{left("A", refusal.NoCapacity), left("B", refusal.Quota)},
			[]string{"B"},
			refusal.NoCapacity, noQuota,
		},
		{
			"the accepted plan stands, though it could not be made any more",
			[]ladder.Exclusion{left("A", refusal.Quota)},
			[]string{"A", "B"},
			refusal.Quota,
			"a bigger quota" + retry + ", or allowing another machine type or region, would help sooner",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			asked := planner.Request{}
			for _, name := range test.not {
				asked.Constraints.Excluded = append(asked.Constraints.Excluded, planner.Exclusion{InstanceType: name})
			}
			r := New(Config{Planner: pair{}})
			if got := r.help(asked, test.excluded, test.cause); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// Of two passes that have chosen the same offer after its cooldown, one asks first, and the other one keeps no money.
func TestTakeTurn(t *testing.T) {
	r := New(Config{Memory: &ladder.Memory{}, Catalog: noCatalog{}, Clock: testclock.NewFakePassiveClock(now.Time)})
	made := accepted(1)
	offer := r.offering(made.Plan.InstanceType, "", made.Plan.CapacityType, "")
	r.Memory.Learn(refusal.Attempt{
		Workspace: "former", Offering: offer, Started: now.Add(-2 * time.Hour), Ended: now.Add(-2 * time.Hour), Cause: refusal.NoCapacity,
		Scope: refusal.Scope{
			Breadth: refusal.SKU, Name: offer.InstanceType, Zone: refusal.Any, CapacityType: offer.CapacityType,
		}, Cooldown: time.Hour,
	})
	first, second := newScope(workspaceObject()), newScope(workspaceObject())
	second.ws.UID = "other"
	if err := r.takeTurn(first, made); err != nil {
		t.Fatal(err)
	}
	err := r.takeTurn(second, made)
	if _, waits := errors.AsType[*waitingError](err); !waits {
		t.Errorf("error %v, want the second one to wait", err)
	}
	if err := r.takeTurn(first, made); err != nil {
		t.Errorf("the first one waits for itself: %v", err)
	}
}
