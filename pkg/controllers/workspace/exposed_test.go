// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"strings"
	"testing"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// pairs are plans with two machines.
var pairs = ranked{{InstanceType: "A", Nodes: 2, HourlyPrice: 2}}

// guarded returns a Reconciler with a policy for groups, after a probe has found a group exposed.
func guarded(policy isolation.Policy, exposed isolation.Group) *Reconciler {
	books, clock := account{}, testclock.NewFakePassiveClock(now.Time)
	guard := isolation.NewGuard(policy, nil, clock)
	guard.Expose(exposed, isolation.Finding{Outcome: isolation.Exposed, Message: "the controller's pod reached port 8090 of pod secret-0"})
	return New(Config{
		Client: fake.NewFakeClient(), Provisioner: readied{books}, Ledger: ledger.New(books), Planner: pairs,
		Catalog: typesCatalog{plans: pairs}, Memory: &cooldown.Memory{}, Isolation: guard, Clock: clock,
	})
}

// groupScope returns a pass over team-a/chat that has an accepted plan with two machines.
func groupScope() *scope.Scope {
	s := scope.New(workspaceObject())
	s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: pairs[0]}}
	return s
}

// TestExposureNamesNoPodOfOthers: the plans of a namespace reveal nothing about groups in other namespaces.
func TestExposureNamesNoPodOfOthers(t *testing.T) {
	for _, tc := range []struct {
		reason, namespace string
		isRefused         bool
	}{{"its own namespace", "team-a", true}, {"another namespace", "team-b", false}} {
		r := guarded(isolation.RequireEnforcement, isolation.Group{Namespace: tc.namespace, Name: "secret"})
		choice := r.executor.Choice(groupScope())
		ask, err := choice.Ask()
		if err != nil {
			t.Fatal(err)
		}
		_, forbidden := choice.Today(choice.Accepted)
		for _, text := range []string{ask.Limits.OneMachine, forbidden} {
			if strings.Contains(text, "secret-0") != tc.isRefused || (text != "") != tc.isRefused {
				t.Errorf("a group of %s is exposed: plans are refused with %q", tc.reason, text)
			}
		}
	}
}

// TestServingGroupIsRepairedWhileAnotherIsExposed: a serving group gets a lost machine again, even if another group is
// exposed or the administrator no longer allows new groups.
func TestServingGroupIsRepairedWhileAnotherIsExposed(t *testing.T) {
	other, own := isolation.Group{Namespace: "team-a", Name: "secret"}, isolation.Group{Namespace: "team-a", Name: "chat"}
	for _, tc := range []struct {
		reason  string
		policy  isolation.Policy
		exposed isolation.Group
		change  func(*scope.Scope)
		isSpent bool
	}{
		{"another group is exposed", isolation.RequireEnforcement, other, nil, true},
		{"the administrator allows no new groups", isolation.Disabled, other, nil, true},
		{"the group itself is exposed", isolation.RequireEnforcement, own, nil, false},
		{"the group never answered", isolation.RequireEnforcement, other, func(s *scope.Scope) {
			s.Workspace.Status.LatestReadyRevision = ""
		}, false},
		{"another plan answered", isolation.RequireEnforcement, other, func(s *scope.Scope) {
			s.Workspace.Status.LatestReadyRevision = "chat-0"
		}, false},
		{"its machines were never complete", isolation.RequireEnforcement, other, func(s *scope.Scope) {
			s.OpenAttempt().ReadyTime = nil
		}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r, s := guarded(tc.policy, tc.exposed), groupScope()
			s.Surge.Replaces = capacity.ReplacesLater
			s.Workspace.Status.LatestReadyRevision = s.Revision.Name
			begin(s, s.Revision, 1, []string{"chat-aaaa", "chat-bbbb"}, now.Time)
			noteCreated(s, []capacity.Created{{Name: "chat-aaaa", UID: "a"}, {Name: "chat-bbbb", UID: "b"}}, now.Time)
			open := s.OpenAttempt()
			open.ReadyTime = new(acquire.Seconds(now.Time))
			open.Claims[1] = v1beta1.AttemptClaim{Name: "chat-bbbb", Lost: &v1beta1.LostClaim{UID: "b"}}
			if tc.change != nil {
				tc.change(s)
			}
			irreplaceable, err := r.executor.Snapshot(s).Irreplaceable(open), r.executor.Reserve(t.Context(), s)
			isOpen := s.OpenAttempt() != nil // an incomplete attempt ends instead
			if isOpen && (irreplaceable == "") != tc.isSpent || (err == nil) != tc.isSpent {
				t.Errorf("irreplaceable %q, reserving %v; want the machine bought is %v", irreplaceable, err, tc.isSpent)
			}
			ask, err := r.executor.Choice(s).Ask()
			if err != nil || ask.Limits.OneMachine == "" {
				t.Errorf("new plans are not limited to one machine (%v)", err)
			}
		})
	}
}
