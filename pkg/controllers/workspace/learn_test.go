// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

// attemptOf returns an attempt for a machine type that began some minutes after now.
func attemptOf(instanceType string, began int, changes ...func(*v1beta1.Attempt)) v1beta1.Attempt {
	out := v1beta1.Attempt{
		Number: 1, InstanceType: instanceType, CapacityType: v1beta1.CapacityOnDemand,
		StartTime: metav1.NewTime(now.Add(time.Duration(began) * time.Minute)),
	}
	for _, change := range changes {
		change(&out)
	}
	return out
}

func endedFor(cause refusal.Cause, cooldown time.Duration) func(*v1beta1.Attempt) {
	return func(a *v1beta1.Attempt) {
		a.EndTime, a.Reason = new(metav1.NewTime(a.StartTime.Add(time.Minute))), string(cause)
		a.Scope, a.Cooldown = "sku/"+a.InstanceType+"/*/on-demand", &metav1.Duration{Duration: cooldown}
	}
}

func launchedOnce(a *v1beta1.Attempt) {
	a.Claims = []v1beta1.AttemptClaim{{Name: "chat-aaaa", UID: "claim", Stage: "Launched"}}
}

func usable(a *v1beta1.Attempt) { a.ReadyTime = new(metav1.NewTime(a.StartTime.Add(time.Minute))) }

// TestOnlyTheConcernedAreWoken covers Workspaces that wait for machine type a, for machine type b and for money, and
// one that is still choosing.
func TestOnlyTheConcernedAreWoken(t *testing.T) {
	other := refusal.Asker{Workspace: "other", Namespace: "team-b"}
	refusedBefore := func(cause refusal.Cause) func(*Reconciler) {
		return func(r *Reconciler) {
			for _, name := range []string{"a", "b"} {
				r.Memory.Learn(now.Time, r.executor.Market.Remember(other, []v1beta1.Attempt{attemptOf(name, -120, endedFor(cause, 4*time.Hour))})...)
			}
		}
	}
	tests := []struct {
		reason string
		before func(*Reconciler)
		then   func(*Reconciler)
		want   []string
	}{
		{"a refusal opens nothing", nil, func(r *Reconciler) {
			r.lessons.Learn(other, nil, []v1beta1.Attempt{attemptOf("a", -2, endedFor(refusal.NoCapacity, time.Hour))})
		}, nil},
		{"a machine is usable", refusedBefore(refusal.NoCapacity), func(r *Reconciler) {
			r.lessons.Learn(other, nil, []v1beta1.Attempt{attemptOf("a", -2, usable)})
		}, []string{"a", "looks"}},
		{"what is known already wakes nobody", func(r *Reconciler) {
			refusedBefore(refusal.NoCapacity)(r)
			r.lessons.Learn(other, nil, []v1beta1.Attempt{attemptOf("a", -2, usable)})
		}, func(r *Reconciler) {
			r.lessons.Learn(other, nil, []v1beta1.Attempt{attemptOf("a", -2, usable)})
		}, nil},
		{"a launch disproves a quota", refusedBefore(refusal.Quota), func(r *Reconciler) {
			r.lessons.Launched(other, new(attemptOf("a", -2, launchedOnce)))
		}, []string{"a", "looks"}},
		{"and no want of capacity", refusedBefore(refusal.NoCapacity), func(r *Reconciler) {
			r.lessons.Launched(other, new(attemptOf("a", -2, launchedOnce)))
		}, nil},
		{"the first to ask again gives up", func(r *Reconciler) {
			r.Memory.Learn(now.Time, r.executor.Market.Remember(other, []v1beta1.Attempt{attemptOf("b", -90, endedFor(refusal.Quota, time.Hour))})...)
			r.Memory.Ask(now.Time, other, r.executor.Market.Offering("b", "", v1beta1.CapacityOnDemand, ""))
		}, func(r *Reconciler) {
			r.lessons.Wake(r.Memory.Forget(other.Workspace))
		}, []string{"b", "looks"}},
		{"the first to ask again is refused", func(r *Reconciler) {
			r.Memory.Learn(now.Time, r.executor.Market.Remember(other, []v1beta1.Attempt{attemptOf("b", -90, endedFor(refusal.Quota, time.Hour))})...)
			r.Memory.Ask(now.Time, other, r.executor.Market.Offering("b", "", v1beta1.CapacityOnDemand, ""))
		}, func(r *Reconciler) {
			r.lessons.Learn(other, nil, []v1beta1.Attempt{attemptOf("b", 0, endedFor(refusal.Quota, time.Hour))})
		}, []string{"looks"}},
		{"machines go", nil, func(r *Reconciler) { r.waiting.WakeForMoney() }, []string{"looks", "money"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r := New(Config{Catalog: noCatalog{}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			if test.before != nil {
				test.before(r)
			}
			woken := queueOf(t, r)
			for _, name := range []string{"a", "b", "money", "looks"} {
				r.waiting.Add(types.NamespacedName{Name: name})
			}
			for _, name := range []string{"a", "b"} {
				r.waiting.Narrow(types.NamespacedName{Name: name}, watch.Interest{
					Asker: refusal.Asker{Workspace: types.UID(name), Namespace: "team-a"}, Offers: []refusal.Offering{r.executor.Market.Offering(name, "", v1beta1.CapacityOnDemand, "")},
				})
			}
			r.waiting.Narrow(types.NamespacedName{Name: "money"}, watch.Interest{Money: true})
			test.then(r)
			if diff := cmp.Diff(test.want, drained(woken)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// drained returns the sorted names of the Workspaces in a queue.
func drained(woken watch.Queue) []string {
	var out []string
	for woken.Len() > 0 {
		request, _ := woken.Get()
		out = append(out, request.Name)
		woken.Done(request)
	}
	slices.Sort(out)
	return out
}

// BenchmarkRefusal measures a refusal of one more Workspace while many wait for the same machine type.
func BenchmarkRefusal(b *testing.B) {
	for _, waiting := range []int{1000, 10000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			r := New(Config{Catalog: noCatalog{}, Memory: &cooldown.Memory{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			q := &counting{}
			if err := r.waiting.Start(b.Context(), q); err != nil {
				b.Fatal(err)
			}
			for i := range waiting {
				who := refusal.Asker{Workspace: types.UID(fmt.Sprint("waits-", i)), Namespace: "team-a"}
				key := types.NamespacedName{Name: string(who.Workspace)}
				r.waiting.Add(key)
				r.waiting.Narrow(key, watch.Interest{Asker: who, Offers: []refusal.Offering{r.executor.Market.Offering("a", "", v1beta1.CapacityOnDemand, "")}})
			}
			for i := 0; b.Loop(); i++ {
				who := refusal.Asker{Workspace: types.UID(fmt.Sprint("asks-", i%waiting)), Namespace: "team-b"}
				r.lessons.Learn(who, nil, []v1beta1.Attempt{attemptOf("a", i%1000, endedFor(refusal.NoCapacity, time.Hour))})
			}
			b.ReportMetric(float64(q.added)/float64(b.N), "woken/op")
		})
	}
}

// counting is a queue that only counts its additions.
type counting struct {
	watch.Queue

	added int
}

func (c *counting) Add(reconcile.Request) { c.added++ }
