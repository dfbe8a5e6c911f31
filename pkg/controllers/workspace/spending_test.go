// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/sku"
)

// account is a provisioner that holds machines of other Workspaces.
type account struct {
	acquisition.Provisioner
	held []capacity.MachineCost
}

func (a account) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return a.held, nil }

func (a account) LiveMachineCosts(context.Context) ([]capacity.MachineCost, error) {
	return a.held, nil
}

func (a account) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	return (&nodeclaim.Provisioner{}).Names(owner, attempt, count)
}

// ranked is a planner that returns the first of its plans that is not excluded and not over the ceiling.
type ranked []planner.Plan

func (plans ranked) Plan(r planner.Request) (planner.Plan, error) {
	for _, plan := range plans {
		isLeftAlone := slices.ContainsFunc(r.Constraints.Excluded, func(e planner.Exclusion) bool {
			return e.InstanceType == plan.InstanceType
		})
		if most := r.Constraints.Ceiling.HourlyPrice; !isLeftAlone && (most <= 0 || plan.HourlyPrice <= most) {
			return plan, nil
		}
	}
	return planner.Plan{}, &planner.InfeasibleError{Reason: v1beta1.ReasonNoMachineAllowed, Message: "left alone or too dear"}
}

// Quote returns the accepted plan at the current price of these plans.
func (plans ranked) Quote(accepted planner.Plan, c planner.Constraints) (planner.Plan, string) {
	i := slices.IndexFunc(plans, func(plan planner.Plan) bool { return plan.InstanceType == accepted.InstanceType })
	if i < 0 {
		return accepted, "not in the catalogue"
	}
	if c.OneMachine != "" && accepted.Nodes > 1 {
		return accepted, c.OneMachine
	}
	if _, err := plans[i : i+1].Plan(planner.Request{Constraints: c}); err != nil {
		return accepted, err.Error()
	}
	accepted.HourlyPrice = plans[i].HourlyPrice
	return accepted, ""
}

// dearOrCheap prefers the dear machine type, and takes the cheap one if the ceiling is too low.
var dearOrCheap = ranked{{InstanceType: "dear", Nodes: 2, HourlyPrice: 8}, {InstanceType: "cheap", Nodes: 1, HourlyPrice: 1}}

// emptyCatalog is a noCatalog that lists no machine types.
type emptyCatalog struct{ noCatalog }

func (emptyCatalog) SKUs() []sku.SKU { return nil }

// TestAfford prefers two machines for $8.00/h under a ceiling of $10.00/h, in addition to machines of other Workspaces.
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
			books := account{held: []capacity.MachineCost{{Owner: capacity.Owner{Name: "other", UID: "other"}, Machine: "m", HourlyPrice: test.held}}}
			r := New(Config{
				Provisioner: books, Ledger: ledger.New(books), Limits: purchase.Limits{Ceilings: ledger.Ceilings{Cluster: 10}}.Always, Planner: dearOrCheap, Catalog: emptyCatalog{},
				Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time),
			})
			if err := r.Memory.Load(now.Time, noAttempts); err != nil {
				t.Fatal(err)
			}
			s := scope.New(ws)
			plan, err := dearOrCheap.Plan(planner.Request{})
			if err != nil {
				t.Fatal(err)
			}
			s.Revision = &revision.Revision{Revision: render.Revision{Plan: plan}}
			made, err := r.executor.Choice(s).Afford(t.Context(), s.Revision, 1)
			waiting, isShort := errors.AsType[*progress.WaitingError](err)
			switch {
			case test.want == "" && (!isShort || waiting.Reason != v1beta1.ReasonSpendingCeiling || waiting.After != 0):
				t.Errorf("got %v, want to wait for nothing but to be woken", err)
			case test.want != "" && (err != nil || made.Plan.InstanceType != test.want):
				t.Errorf("got %+v, %v; want %s", made, err, test.want)
			case test.want == "cheap" && !made.Provisional:
				t.Error("the plan is not made anew, should more money be left when something is bought")
			}
		})
	}
}

// thrifty is a planner that plans only with the cheap machine type, unless anything is excluded or the ceiling is too
// low.
type thrifty struct{}

func (thrifty) Plan(r planner.Request) (planner.Plan, error) {
	if len(r.Constraints.Excluded) > 0 || r.Constraints.Ceiling.HourlyPrice < 1 {
		return planner.Plan{}, &planner.InfeasibleError{Reason: v1beta1.ReasonNoMachineAllowed, Message: "left alone"}
	}
	return planner.Plan{InstanceType: "cheap", Nodes: 1, HourlyPrice: 1}, nil
}

func (thrifty) Quote(accepted planner.Plan, _ planner.Constraints) (planner.Plan, string) {
	return accepted, ""
}

// TestShortUntil checks when a Workspace without money looks again, because the end of a cooldown wakes nobody.
func TestShortUntil(t *testing.T) {
	cheap := cooldown.Exclusion{Offering: refusal.Offering{InstanceType: "cheap"}, Until: now.Add(10 * time.Minute)}
	tests := []struct {
		reason    string
		excluded  []cooldown.Exclusion
		lookAgain time.Time
		room      float64
		held      float64
		want      time.Duration
	}{
		{"only the end of a machine helps, which wakes it", nil, time.Time{}, 1, 0, 0},
		{"a cheaper machine may be asked for later", []cooldown.Exclusion{cheap}, time.Time{}, 1, 0, 10 * time.Minute},
		{"money that was granted may be free before", []cooldown.Exclusion{cheap}, now.Add(time.Minute), 1, 0, time.Minute},
		{"nothing is left for it", []cooldown.Exclusion{cheap}, time.Time{}, 0, 0, 0},
		{"too little is left for it", []cooldown.Exclusion{cheap}, time.Time{}, 0.5, 0, 0},
		{"there is room for it in place of what serves", []cooldown.Exclusion{cheap}, time.Time{}, 0.5, 0.5, 10 * time.Minute},
		{"nothing is left but for what serves", []cooldown.Exclusion{cheap}, time.Time{}, 0, 2, 10 * time.Minute},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Inference = &v1beta1.InferenceSpec{Template: &corev1.PodTemplateSpec{}}
			r := New(Config{Planner: thrifty{}, Catalog: emptyCatalog{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(ws)
			if test.held > 0 {
				begin(s, accepted(1), 1, []string{"chat-aaaa"}, now.Time)
				s.Surge.Serving, s.Machines = 1, []capacity.Machine{{Name: "chat-aaaa", HourlyPrice: test.held}}
			}
			over := &ledger.OverError{Room: test.room, LookAgain: test.lookAgain}
			err := r.executor.Choice(s).ShortUntil(t.Context(), over, test.excluded)
			waiting, isShort := errors.AsType[*progress.WaitingError](err)
			if !isShort || waiting.After != test.want {
				t.Errorf("got %v, want to look again after %s", err, test.want)
			}
		})
	}
}

// queueOf returns the queue of a Reconciler's woken Workspaces.
func queueOf(t *testing.T, r *Reconciler) watch.Queue {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	if err := r.waiting.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return q
}

// TestMoneyThatIsSpentIsNotShort covers a lagging watch that shows vanished machines but lacks their successors. The
// money for the successors is already spent.
func TestMoneyThatIsSpentIsNotShort(t *testing.T) {
	books := account{held: []capacity.MachineCost{{Owner: capacity.Owner{Name: "other", UID: "other"}, Machine: "gone", HourlyPrice: 9}}}
	r := New(Config{
		Provisioner: books, Planner: thrifty{}, Ledger: ledger.New(books), Limits: purchase.Limits{Ceilings: ledger.Ceilings{Cluster: 10}}.Always, Clock: testclock.NewFakePassiveClock(now.Time),
	})
	s := scope.New(workspaceObject())
	s.Revision = accepted(1)
	names, err := books.Names(s.Owner, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	begin(s, s.Revision, 1, names, now.Time)
	noteCreated(s, []capacity.Created{{Name: names[0], UID: "there"}}, now.Time)
	if err := r.executor.Reserve(t.Context(), s); err != nil || s.OpenAttempt() == nil {
		t.Errorf("got %v, want the attempt to go on", err)
	}
}

// TestMoneyForMoreMachinesWakes covers a serving Workspace that lacks money for a machine that its plan has added. The
// end of another Workspace's machine must wake it, because nothing else will.
func TestMoneyForMoreMachinesWakes(t *testing.T) {
	books := account{held: []capacity.MachineCost{{Owner: capacity.Owner{Name: "other", UID: "other"}, Machine: "m", HourlyPrice: 9}}}
	r := New(Config{
		Provisioner: books, Planner: thrifty{}, Ledger: ledger.New(books), Limits: purchase.Limits{Ceilings: ledger.Ceilings{Cluster: 10}}.Always, Clock: testclock.NewFakePassiveClock(now.Time),
	})
	woken := queueOf(t, r)
	s := scope.New(workspaceObject())
	s.Revision = accepted(2)
	begin(s, s.Revision, 1, nil, now.Time)
	s.OpenAttempt().ReadyTime = &now
	waiting, isShort := errors.AsType[*progress.WaitingError](r.executor.Reserve(t.Context(), s))
	if !isShort || waiting.Reason != v1beta1.ReasonSpendingCeiling || waiting.After != 0 || s.OpenAttempt() == nil {
		t.Fatalf("got %+v, want it to keep what serves and wait to be woken", waiting)
	}
	r.waiting.WakeForMoney()
	if woken.Len() != 1 {
		t.Errorf("%d Workspaces were woken, want this one", woken.Len())
	}
}
