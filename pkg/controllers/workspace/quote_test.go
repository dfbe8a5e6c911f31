// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/sku"
)

// typesCatalog is a catalogue with the machine types of some plans.
type typesCatalog struct {
	noCatalog
	plans ranked
}

func (c typesCatalog) SKUs() []sku.SKU {
	var out []sku.SKU
	for _, plan := range c.plans {
		out = append(out, sku.SKU{Name: plan.InstanceType})
	}
	return out
}

// TestPinnedPlanIsBoughtWithinTheLimitsOfTheDay resumes a Workspace whose plan was pinned at a price of $3.00/h.
func TestPinnedPlanIsBoughtWithinTheLimitsOfTheDay(t *testing.T) {
	pinned := planner.Plan{InstanceType: "pinned", Nodes: 1, HourlyPrice: 3}
	other := planner.Plan{InstanceType: "other", Nodes: 1, HourlyPrice: 4}
	dearer := pinned
	dearer.HourlyPrice = 9
	tests := []struct {
		reason string
		today  ranked
		limits purchase.Limits
		// want is the bought machine type and price is its price. If nothing is bought, want is empty and why explains
		// it.
		want  string
		price float64
		why   string
	}{
		{reason: "nothing has changed", today: ranked{pinned, other}, want: "pinned", price: 3},
		{reason: "the machine is dearer, within all limits", today: ranked{dearer, other}, want: "pinned", price: 9},
		{
			reason: "the machine is over the ceiling of a Workspace today: the next plan is bought",
			today:  ranked{dearer, other}, limits: purchase.Limits{Ceilings: ledger.Ceilings{Workspace: 5}}, want: "other", price: 4,
		},
		{
			reason: "the machine is over the default limit today: the next plan is bought",
			today:  ranked{dearer, other}, limits: purchase.Limits{MaxHourlyPrice: 5}, want: "other", price: 4,
		},
		{
			reason: "the administrator forbids the type meanwhile: the next plan is bought",
			today:  ranked{pinned, other}, limits: purchase.Limits{InstanceTypes: []string{"oth*"}}, want: "other", price: 4,
		},
		{reason: "the type left the catalogue: the next plan is bought", today: ranked{other}, want: "other", price: 4},
		{
			reason: "nothing is left within the limits of the day", today: ranked{dearer}, limits: purchase.Limits{Ceilings: ledger.Ceilings{Workspace: 5}},
			why: "left alone or too dear",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned}
			books := account{}
			r := New(Config{
				Client: fake.NewFakeClient(), Provisioner: readied{books}, Ledger: ledger.New(books), Limits: test.limits.Always,
				Planner: test.today, Catalog: typesCatalog{plans: test.today}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			if err := r.Memory.Load(now.Time, noAttempts); err != nil {
				t.Fatal(err)
			}
			s := scope.New(ws)
			s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: pinned}}
			made, err := r.executor.Choice(s).Affordable(t.Context(), 1)
			if test.want == "" {
				if stalled, ok := errors.AsType[*progress.StalledError](err); !ok || !strings.Contains(stalled.Message, test.why) {
					t.Errorf("got %+v, %v; want to stall with %q", made, err, test.why)
				}
				return
			}
			if err != nil || made.Plan.InstanceType != test.want || made.Plan.HourlyPrice != test.price {
				t.Fatalf("got %+v, %v; want %s for %v", made, err, test.want, test.price)
			}
			if replaces := len(made.Plan.Warnings) > 0; replaces != (test.want == "other") {
				t.Errorf("warnings %q", made.Plan.Warnings)
			}
		})
	}
}

// TestOpenAttemptStopsBuyingWhatIsForbidden forbids a machine type between two purchases of the same attempt.
func TestOpenAttemptStopsBuyingWhatIsForbidden(t *testing.T) {
	plans := ranked{{InstanceType: "A", Nodes: 2, HourlyPrice: 2}, {InstanceType: "B", Nodes: 2, HourlyPrice: 2}}
	for _, isReady := range []bool{false, true} {
		books := account{}
		r := New(Config{
			Provisioner: books, Ledger: ledger.New(books), Limits: purchase.Limits{InstanceTypes: []string{"B"}}.Always,
			Planner: plans, Catalog: typesCatalog{plans: plans}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
		})
		s := scope.New(workspaceObject())
		s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: plans[0]}}
		begin(s, s.Revision, 1, []string{"chat-aaaa", "chat-bbbb"}, now.Time)
		noteCreated(s, []capacity.Created{{Name: "chat-aaaa", UID: "a"}}, now.Time)
		if isReady {
			s.OpenAttempt().ReadyTime = new(acquire.Seconds(now.Time))
		}
		err := r.executor.Reserve(t.Context(), s)
		if _, waits := errors.AsType[*progress.WaitingError](err); !waits {
			t.Errorf("ready %t: error %v, want to wait", isReady, err)
		}
		if isOpen := s.OpenAttempt() != nil; isOpen != isReady {
			t.Errorf("ready %t: the attempt is open: %t; machines that serve are kept, others let go", isReady, isOpen)
		}
	}
}

// TestLostMachineThatMayNotBeBoughtEndsNothing: the remaining machines serve until another plan has its own machines.
// The controller must not wait forever for a forbidden machine.
func TestLostMachineThatMayNotBeBoughtEndsNothing(t *testing.T) {
	plans := ranked{{InstanceType: "A", Nodes: 2, HourlyPrice: 2}, {InstanceType: "B", Nodes: 2, HourlyPrice: 2}}
	tests := []struct {
		reason  string
		allowed []string
		lost    *v1beta1.LostClaim
		want    string
	}{
		{"one is lost, and its type is forbidden", []string{"B"}, &v1beta1.LostClaim{UID: "b"}, "no machine of type A may be bought to replace the lost one"},
		{"one is lost, and its type is allowed", []string{"A", "B"}, &v1beta1.LostClaim{UID: "b"}, ""},
		{"none is lost: what runs stays", []string{"B"}, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			books := account{}
			r := New(Config{
				Provisioner: books, Ledger: ledger.New(books), Limits: purchase.Limits{InstanceTypes: test.allowed}.Always,
				Planner: plans, Catalog: typesCatalog{plans: plans}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			s := scope.New(workspaceObject())
			s.Surge.Replaces = capacity.ReplacesLater
			s.Revision = &revision.Revision{Name: "chat-1", Revision: render.Revision{Plan: plans[0]}}
			begin(s, s.Revision, 1, []string{"chat-aaaa", "chat-bbbb"}, now.Time)
			noteCreated(s, []capacity.Created{{Name: "chat-aaaa", UID: "a"}, {Name: "chat-bbbb", UID: "b"}}, now.Time)
			open := s.OpenAttempt()
			open.ReadyTime = new(acquire.Seconds(now.Time))
			if test.lost != nil {
				open.Claims[1] = v1beta1.AttemptClaim{Name: "chat-bbbb", Lost: test.lost}
			}
			if got := r.executor.Snapshot(s).Irreplaceable(open); !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
