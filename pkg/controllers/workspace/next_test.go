// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
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
				Client: fake.NewFakeClient(), Provisioner: readied{books}, Ledger: ledger.New(ledger.Ceilings{Cluster: 12}, books), Planner: cheapOrDear, Catalog: emptyCatalog{},
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
