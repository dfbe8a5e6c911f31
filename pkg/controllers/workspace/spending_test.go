// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/sku"
)

// account is a provisioner for which others hold some machines.
type account struct {
	Provisioner
	held []capacity.Bill
}

func (a account) Bills(context.Context) ([]capacity.Bill, error)     { return a.held, nil }
func (a account) LiveBills(context.Context) ([]capacity.Bill, error) { return a.held, nil }
func (a account) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	return (&nodeclaim.Provisioner{}).Names(owner, attempt, count)
}

// choosy prefers the dear machine type, and takes the cheap one below a price.
type choosy struct{}

func (choosy) Plan(r planner.Request) (planner.Plan, error) {
	for _, plan := range []planner.Plan{
		{InstanceType: "dear", Nodes: 2, HourlyPrice: 8}, {InstanceType: "cheap", Nodes: 1, HourlyPrice: 1},
	} {
		if most := r.Constraints.Ceiling.HourlyPrice; most <= 0 || plan.HourlyPrice <= most {
			return plan, nil
		}
	}
	return planner.Plan{}, &planner.InfeasibleError{Reason: v1beta1.ReasonNoMachineAllowed, Message: "too dear"}
}

// emptyCatalog knows nothing, and says so.
type emptyCatalog struct{ noCatalog }

func (emptyCatalog) SKUs() []sku.SKU { return nil }

// TestAfford has a Workspace that prefers two machines for 8 USD/h find others there under a ceiling of 10.
func TestAfford(t *testing.T) {
	tests := []struct {
		reason string
		held   float64
		want   string
	}{
		{"nothing is held", 0, "dear"},
		{"its first choice just fits", 2, "dear"},
		{"it takes what can be had for what is left", 2.5, "cheap"},
		{"to the last cent", 9, "cheap"},
		{"too little is left", 9.5, ""},
		{"nothing is left, since the ceiling was lowered", 20, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned}
			books := account{held: []capacity.Bill{{Owner: capacity.Owner{Name: "other", UID: "other"}, Machine: "m", HourlyPrice: test.held}}}
			r := New(Config{
				Provisioner: books, Ledger: ledger.New(ledger.Ceilings{Cluster: 10}, books), Planner: choosy{}, Catalog: emptyCatalog{},
				Memory: &ladder.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			if err := r.Memory.Load(now.Time, noAttempts); err != nil {
				t.Fatal(err)
			}
			s := newScope(ws)
			plan, err := choosy{}.Plan(planner.Request{})
			if err != nil {
				t.Fatal(err)
			}
			s.revision = &revision{Revision: render.Revision{Plan: plan}}
			made, err := r.afford(t.Context(), s, s.revision, 1)
			waiting, isShort := errors.AsType[*waitingError](err)
			switch {
			case test.want == "" && (!isShort || waiting.reason != v1beta1.ReasonSpendingCeiling || waiting.after != 0):
				t.Errorf("got %v, want to wait for nothing but to be woken", err)
			case test.want != "" && (err != nil || made.Plan.InstanceType != test.want):
				t.Errorf("got %+v, %v; want %s", made, err, test.want)
			case test.want == "cheap" && !made.Passing:
				t.Error("the plan is not made anew, should more money be left when something is bought")
			}
		})
	}
}
