// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

// cheapOrDear prefers the cheap machine type, and takes the dear one if the cheap one is excluded.
var cheapOrDear = ranked{
	{InstanceType: "cheap", CapacityType: v1beta1.CapacitySpot, Nodes: 1, HourlyPrice: 1},
	{InstanceType: "dear", Nodes: 1, HourlyPrice: 8},
}

// readied is a provisioner whose node classes are all ready.
type readied struct{ account }

func (readied) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return refusal.ClassReady, "", nil
}

// TestAffordInPlaceOfWhatIsLost checks the request when a serving machine is broken and money is short. Other
// Workspaces hold some of a ceiling of $12.00/h. The broken machine costs $1.00/h, another of its type $1.00/h, and the
// other type $8.00/h.
func TestAffordInPlaceOfWhatIsLost(t *testing.T) {
	tests := []struct {
		reason string
		others float64
		// beside is the machine type requested in addition to the broken machine, and instead the type requested in its
		// place.
		beside, instead string
	}{
		{reason: "another kind is safer", others: 3, beside: "dear"},
		{reason: "there is room for another kind in its place", others: 3.5, instead: "dear"},
		{reason: "another of its kind is all that there is room for beside it", others: 10, beside: "cheap"},
		{reason: "another of its kind is all that there is room for in its place", others: 10.5, instead: "cheap"},
		{reason: "the ceiling was lowered: nothing has room", others: 11.5},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned}
			s := scope.New(ws)
			books := account{held: []capacity.MachineCost{
				{Owner: capacity.Owner{Name: "other", UID: "other"}, Machine: "m", HourlyPrice: test.others},
				{Owner: s.Owner, Machine: "chat-aaaa", HourlyPrice: 1},
			}}
			r := New(Config{
				Client: fake.NewFakeClient(), Provisioner: readied{books}, Ledger: ledger.New(books), Limits: purchase.Limits{Ceilings: ledger.Ceilings{Cluster: 12}}.Always, Planner: cheapOrDear, Catalog: emptyCatalog{},
				Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			if err := r.Memory.Load(now.Time, noAttempts); err != nil {
				t.Fatal(err)
			}
			plan, err := cheapOrDear.Plan(planner.Request{})
			if err != nil {
				t.Fatal(err)
			}
			s.Revision = &revision.Revision{Revision: render.Revision{Plan: plan}}
			s.Pods = []corev1.Pod{podReady()}
			begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			s.Surge.IsPossible = true
			s.Surge.Serving, s.Surge.Fault = 1, "the GPU has fallen off the bus"
			s.Machines = []capacity.Machine{{Name: "chat-aaaa", InstanceType: "cheap", HourlyPrice: 1}}

			choice := r.executor.Choice(s)
			made, err := choice.Affordable(t.Context(), 2)
			_, isRecreate := errors.AsType[*acquire.RecreateError](err)
			waiting, isShort := errors.AsType[*progress.WaitingError](err)
			switch {
			case test.beside != "":
				if err != nil || made.Plan.InstanceType != test.beside {
					t.Errorf("got %+v, %v; want %s beside it", made, err, test.beside)
				}
			case test.instead != "":
				if !isRecreate || made.Plan.InstanceType != test.instead || choice.IsLikeServing(made) != (test.instead == "cheap") {
					t.Errorf("got %+v, %v; want %s in its place", made, err, test.instead)
				}
			case !isShort || waiting.Reason != v1beta1.ReasonSpendingCeiling:
				t.Errorf("got %v, want to wait for money", err)
			}
		})
	}
}

// spent is a cost ledger in which a namespace has spent an amount this month.
type spent float64

func (s spent) Month(_ string, at time.Time) (cost.Month, time.Time, error) {
	return cost.Month{Spent: float64(s)}, at, nil
}

// TestBudgetBeforeARelease edits a Workspace for a machine of $8.00/h in place of the serving one. The back end cannot hold
// both. The monthly budget is $100.
func TestBudgetBeforeARelease(t *testing.T) {
	for _, test := range []struct {
		reason string
		spent  float64
		// instead is the machine type for which the serving machine is released; empty if it stays.
		instead string
	}{
		{"there is room for it", 90, "dear"},
		{"there is room only for a cheaper one", 95, "cheap"},
		{"too little is left for any", 99.5, ""},
		{"the budget is spent", 101, ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned}
			s := scope.New(ws)
			books := account{held: []capacity.MachineCost{{Owner: s.Owner, Machine: "chat-aaaa", HourlyPrice: 3}}}
			r := New(Config{
				Client: fake.NewFakeClient(), Provisioner: readied{books}, Ledger: ledger.New(books), Planner: dearOrCheap,
				Catalog: emptyCatalog{}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time), Costs: spent(test.spent),
			})
			if err := r.Memory.Load(now.Time, noAttempts); err != nil {
				t.Fatal(err)
			}
			s.Namespace.Annotations = map[string]string{v1beta1.AnnotationMonthlyBudget: "100"}
			s.Revision = &revision.Revision{Revision: render.Revision{Plan: dearOrCheap[0]}}
			s.Pods = []corev1.Pod{podReady()}
			begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
			s.Surge.Serving = 1
			s.Machines = []capacity.Machine{{Name: "chat-aaaa", InstanceType: "old", HourlyPrice: 3}}

			made, err := r.executor.Choice(s).Affordable(t.Context(), 2)
			_, isRecreate := errors.AsType[*acquire.RecreateError](err)
			waiting, isShort := errors.AsType[*progress.WaitingError](err)
			switch {
			case test.instead != "" && (!isRecreate || made.Plan.InstanceType != test.instead):
				t.Errorf("got %+v, %v; want %s in its place", made, err, test.instead)
			case test.instead == "" && (!isShort || waiting.Reason != v1beta1.ReasonMonthlyBudget):
				t.Errorf("got %v, want that the machine stays until the budget pays for another", err)
			}
		})
	}
}
