// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/pkg/isolation"
)

// TestExposedGroupKeepsOthersFromBeingBought for a day, or until a group is found isolated.
func TestExposedGroupKeepsOthersFromBeingBought(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	found := isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"}
	g := isolation.NewGuard(isolation.RequireEnforcement, func(context.Context, []isolation.Member) isolation.Finding { return found }, now)
	expect := func(reason string, isRefused bool) {
		t.Helper()
		if got := g.Refusal(); strings.Contains(got, "port 8090 was reached") != isRefused {
			t.Errorf("%s: Refusal = %q, want one is %v", reason, got, isRefused)
		}
	}
	expect("nothing is known", false)
	if seen, _ := g.Check(t.Context(), nil); seen != found {
		t.Errorf("Check = %+v", seen)
	}
	expect("one look at pods that may have just started", false)
	g.Expose(found)
	expect("a group was exposed", true)
	now.SetTime(now.Now().Add(24*time.Hour - time.Second))
	expect("within a day", true)
	found = isolation.Finding{Outcome: isolation.Isolated}
	g.Check(t.Context(), nil)
	expect("the network was mended", false)
	g.Expose(isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"})
	now.SetTime(now.Now().Add(24 * time.Hour))
	expect("after a day it is tried again", false)
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		policy           isolation.Policy
		holds, isRefused bool
	}{{isolation.Allow, false, false}, {isolation.RequireEnforcement, true, false}, {isolation.Disabled, true, true}} {
		g := isolation.NewGuard(tc.policy, nil, testclock.NewFakePassiveClock(time.Time{}))
		if g.HoldsGroups() != tc.holds || (g.Refusal() != "") != tc.isRefused {
			t.Errorf("%s: holds %v, refuses with %q", tc.policy, g.HoldsGroups(), g.Refusal())
		}
	}
	var none *isolation.Guard
	if none.HoldsGroups() || none.Refusal() != "" {
		t.Error("no guard is in the way")
	}
}
