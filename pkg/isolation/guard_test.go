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

// TestExposedGroupKeepsOthersFromBeingBought: an exposed group does so for a day, or until a group is found isolated.
func TestExposedGroupKeepsOthersFromBeingBought(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	chat := isolation.Group{Namespace: "team-a", Name: "chat"}
	found := isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"}
	g := isolation.NewGuard(isolation.RequireEnforcement, func(context.Context, []isolation.Member) isolation.Finding { return found }, now)
	expect := func(reason string, isRefused bool) {
		t.Helper()
		if got := g.Refusal("team-a"); strings.Contains(got, "port 8090 was reached") != isRefused {
			t.Errorf("%s: Refusal = %q, want one is %v", reason, got, isRefused)
		}
	}
	expect("nothing is known", false)
	if seen, _ := g.Check(t.Context(), chat, nil); seen != found {
		t.Errorf("Check = %+v", seen)
	}
	expect("one look at pods that may have just started", false)
	g.Expose(chat, found)
	expect("a group was exposed", true)
	now.SetTime(now.Now().Add(24*time.Hour - time.Second))
	expect("within a day", true)
	found = isolation.Finding{Outcome: isolation.Isolated}
	g.Check(t.Context(), chat, nil)
	expect("the network was mended", false)
	g.Expose(chat, isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"})
	now.SetTime(now.Now().Add(24 * time.Hour))
	expect("after a day it is tried again", false)
	g.Expose(chat, isolation.Finding{Outcome: isolation.Exposed, Message: "port 8090 was reached"})
	g.Forget("team-a")
	expect("the user asks for another try", false)
}

// TestExposureOfOneNamespaceStopsNobodyElse: a tenant's NetworkPolicy opens only the groups of the tenant's namespace.
func TestExposureOfOneNamespaceStopsNobodyElse(t *testing.T) {
	now := testclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	isolated := isolation.Finding{Outcome: isolation.Isolated}
	g := isolation.NewGuard(isolation.RequireEnforcement, func(context.Context, []isolation.Member) isolation.Finding { return isolated }, now)
	const evidence = "the controller's pod reached port 8090 of pod chat-0"
	chat, other := isolation.Group{Namespace: "team-a", Name: "chat"}, isolation.Group{Namespace: "team-a", Name: "other"}
	strangers := isolation.Group{Namespace: "team-b", Name: "chat"}
	g.Expose(chat, isolation.Finding{Outcome: isolation.Exposed, Message: evidence})
	if got := g.Refusal("team-a"); !strings.Contains(got, evidence) {
		t.Errorf("in the namespace: Refusal = %q, want the evidence", got)
	}
	if got := g.Refusal("team-b"); got != "" {
		t.Errorf("in another namespace: Refusal = %q, want none", got)
	}
	for _, tc := range []struct {
		reason string
		of     isolation.Group
		want   bool
	}{{"the group", chat, true}, {"another group of the namespace", other, false}, {"a group of another namespace", strangers, false}} {
		if got := g.Exposure(tc.of); (got != "") != tc.want {
			t.Errorf("%s: Exposure = %q, want one is %v", tc.reason, got, tc.want)
		}
	}
	g.Check(t.Context(), strangers, nil)
	if g.Refusal("team-a") == "" || g.Exposure(chat) == "" {
		t.Error("an isolated group of another namespace proves nothing here")
	}
	g.Check(t.Context(), other, nil)
	if g.Refusal("team-a") != "" || g.Exposure(chat) != "" {
		t.Error("an isolated group of the namespace proves that its network is repaired")
	}
}

func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		policy           isolation.Policy
		holds, isRefused bool
	}{{isolation.Allow, false, false}, {isolation.RequireEnforcement, true, false}, {isolation.Disabled, true, true}} {
		g := isolation.NewGuard(tc.policy, nil, testclock.NewFakePassiveClock(time.Time{}))
		if g.HoldsGroups() != tc.holds || (g.Refusal("team-a") != "") != tc.isRefused {
			t.Errorf("%s: holds %v, refuses with %q", tc.policy, g.HoldsGroups(), g.Refusal("team-a"))
		}
	}
	var none *isolation.Guard
	if none.HoldsGroups() || none.Refusal("team-a") != "" || none.Exposure(isolation.Group{}) != "" {
		t.Error("no guard is in the way")
	}
}
