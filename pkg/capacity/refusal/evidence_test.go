// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// attemptAt returns the attempt that a verdict ended.
func attemptAt(who Asker, o Observation, v Verdict) Attempt {
	return Attempt{
		Asker: who, Offering: o.Offering, Started: o.CreatedAt, Ended: o.CreatedAt.Add(time.Minute),
		Cause: v.Cause, Scope: v.Scope, Cooldown: v.Cooldown, Guessed: v.Guessed,
	}
}

// TestRefusalIsSharedNoWiderThanItsEvidence: a Workspace of namespace "a" with node class "small" is refused. The
// cases list the other Workspaces in cooldown.
func TestRefusalIsSharedNoWiderThanItsEvidence(t *testing.T) {
	const soon = 30 * time.Second
	in := func(zone string) func(*Observation) {
		return func(o *Observation) { o.Offering.Zone, o.Offering.NodeClass = zone, "small" }
	}
	tooSmall := says(ReasonFailedScheduling, "no instance type has enough resources, requirements=x")
	unsold := iceAWS + "Unsupported: Your requested instance type (big) is not supported in your requested Availability Zone (us-east-1e)."
	const (
		alone     = "itself"
		neighbour = "same class"
		stranger  = "same class, other namespace"
		class     = "other class"
		zone      = "other zone"
	)
	others := map[string]struct {
		who        Asker
		zone, with string
	}{
		alone: {ws1, "", "small"}, neighbour: {ws2, "", "small"}, stranger: {ws9, "", "small"}, class: {ws2, "", "large"},
	}
	tests := []struct {
		reason string
		seen   Observation
		after  time.Duration
		zone   string
		want   []string
	}{
		{
			"a node class with one subnet does not close the type for others", claim(by(KarpenterAWS), in(""), event(soon, ice, unsold), gone(soon)),
			soon, "",
			[]string{alone, neighbour, stranger},
		},
		{"nor does a zone", claim(in("z-1"), says("SKUNotAvailable", "")), soon, "z-1", []string{alone, neighbour, stranger}},
		{
			"what the account may not have is closed for all", claim(in(""), says("CreateInstanceFailed", "VM size big is not supported for this subscription in this location")),
			soon, "",
			[]string{alone, neighbour, stranger, class},
		},
		{
			"so is a quota", claim(in(""), says("CreateInstanceFailed", "exceeding approved Total Regional Cores quota")),
			soon, "",
			[]string{alone, neighbour, stranger, class},
		},
		{"a pod that asks for too much", claim(in(""), tooSmall), soon, "", []string{alone}},
		{
			"a pod that selects no group of nodes", claim(by(ClusterAutoscaler), in(""), says("NotTriggerScaleUp",
				"pod didn't trigger scale-up: 3 node(s) didn't match Pod's node affinity/selector")), 2 * time.Minute, "", []string{alone},
		},
		{"words that nobody knows", claim(in(""), says("LaunchFailed", "boom"), gone(6*time.Minute)), 6 * time.Minute, "", []string{alone}},
		{"nobody answered", claim(by(ClusterAutoscaler), in("")), 24 * time.Hour, "", []string{alone}},
		{"a node that never joins, in the subnets of its class", claim(in(""), launched), 24 * time.Hour, "", []string{alone, neighbour, stranger}},
		{"or in the zone that it asked for", claim(in("z-1"), launched), 24 * time.Hour, "z-1", []string{alone, neighbour, stranger}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			v := mustRules(t).Classify(test.seen, limits, created.Add(test.after))
			if !v.Final {
				t.Fatalf("%+v is not final", v)
			}
			first := attemptAt(ws1, test.seen, v)
			second := first // the first node that never joins is forgiven
			second.Started = first.Ended.Add(time.Hour)
			second.Ended = second.Started.Add(time.Minute)
			cooldowns := NewCooldowns([]Attempt{first, second})
			var got []string
			for name, other := range others {
				offer := test.seen.Offering
				offer.Zone, offer.NodeClass = test.zone, other.with
				if _, _, is := cooldowns.Active(second.Ended, other.who, offer); is {
					got = append(got, name)
				}
			}
			if test.zone != "" {
				offer := test.seen.Offering
				offer.Zone = "z-2"
				if _, _, is := cooldowns.Active(second.Ended, ws1, offer); is {
					got = append(got, zone)
				}
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("who leaves it alone after %s %s, guessed %v (-want +got):\n%s", v.Cause, v.Scope, v.Guessed, diff)
			}
		})
	}
}

// TestCancelledAttemptsOfOneTenantStopNobodyElse: a tenant that deletes its waiting pods over and over stops only
// itself.
func TestCancelledAttemptsOfOneTenantStopNobodyElse(t *testing.T) {
	seen := claim(by(ClusterAutoscaler), gone(time.Minute))
	var attempts []Attempt
	for hour := range 8 {
		for _, who := range []Asker{ws1, ws2} {
			a := attemptAt(who, seen, mustRules(t).Classify(seen, limits, created.Add(time.Minute)))
			a.Started, a.Ended = minute(hour*60), minute(hour*60+1)
			attempts = append(attempts, a)
		}
	}
	cooldowns := NewCooldowns(attempts)
	if _, _, is := cooldowns.Active(minute(7*60+1), ws9, asked); is {
		t.Error("another namespace leaves the machine type alone")
	}
}

// TestRefusalOfTheLastMachineIsOnesOwn: refusals of requests for many machines do not exclude a request for one.
func TestRefusalOfTheLastMachineIsOnesOwn(t *testing.T) {
	seen := claim(by(KarpenterAWS), event(time.Minute, ice, iceAWS+"InsufficientInstanceCapacity: no"), gone(time.Minute))
	v := mustRules(t).Classify(seen, limits, created.Add(time.Minute))
	for _, test := range []struct {
		verdict Verdict
		want    bool
	}{{v, true}, {v.InPart(), false}} {
		cooldowns := NewCooldowns([]Attempt{attemptAt(ws1, seen, test.verdict)})
		if _, _, is := cooldowns.Active(minute(1), ws9, asked); is != test.want {
			t.Errorf("guessed %v: another namespace leaves it alone: %v, want %v", test.verdict.Guessed, is, test.want)
		}
		if _, _, is := cooldowns.Active(minute(1), ws1, asked); !is {
			t.Error("the same is asked for again at once")
		}
	}
}

// TestLaunchDisprovesQuota: a launched machine is evidence for other Workspaces, even before it is a node.
func TestLaunchDisprovesQuota(t *testing.T) {
	out := func(cause Cause, scope Scope) Attempt { return refused(0, 2, cause, scope, time.Hour) }
	launch := func(started int) Attempt {
		return Attempt{Asker: ws2, Offering: asked, Started: minute(started), Launched: true}
	}
	tests := []struct {
		reason   string
		attempts []Attempt
		want     bool
	}{
		{"a quota is refused", []Attempt{out(Quota, family(onDemand))}, true},
		{"a machine is launched since", []Attempt{out(Quota, family(onDemand)), launch(5)}, false},
		{"it is learned the other way round", []Attempt{launch(5), out(Quota, family(onDemand))}, false},
		{"it was asked for before", []Attempt{out(Quota, family(onDemand)), launch(1)}, true},
		{"one machine of the refused attempt was launched, all in one second", []Attempt{out(Quota, family(onDemand)), launch(2)}, true},
		{"the type is sold after all", []Attempt{out(NotOffered, sku(Any)), launch(5)}, false},
		{"Azure launches what it may have no capacity for", []Attempt{out(NoCapacity, sku(Any)), launch(5)}, true},
		{"a launch says nothing of nodes that never join", []Attempt{
			out(NeverRegistered, sku(onDemand)), refused(2, 3, NeverRegistered, sku(onDemand), time.Hour), launch(5),
		}, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if _, _, is := NewCooldowns(test.attempts).Active(minute(10), ws9, asked); is != test.want {
				t.Errorf("it is left alone: %v, want %v", is, test.want)
			}
		})
	}
}

// TestMemoryOfRefusalsIsBounded: a tenant can invent zones and Workspaces, but the memory is bounded and keeps shared
// refusals.
func TestMemoryOfRefusalsIsBounded(t *testing.T) {
	cooldowns := &Cooldowns{}
	shared := refused(0, 1, Quota, family(onDemand), 10*time.Minute)
	cooldowns.Learn(shared)
	for i := range 3 * mostHistories {
		a := refused(0, 2, NoCapacity, offering(fmt.Sprint("zone-", i), onDemand), time.Hour)
		a.Asker, a.Guessed = Asker{types.UID(fmt.Sprint("ws-", i%7)), "a"}, true
		cooldowns.Learn(a)
		got := a
		got.Offering.Zone, got.Cause, got.Guessed, got.Started = fmt.Sprint("zone-", i), None, false, minute(-1)
		cooldowns.Learn(got)
	}
	size := 0
	cooldowns.each(func(Scope, audience, *history) { size++ })
	if size != cooldowns.size || size > mostHistories || len(cooldowns.got) > mostHistories+32 {
		t.Errorf("%d histories, counted as %d, and %d proofs; want %d at most", size, cooldowns.size, len(cooldowns.got), mostHistories)
	}
	for range 3 * historySize {
		cooldowns.Learn(shared)
		shared.Ended = shared.Ended.Add(time.Second)
	}
	if _, cause, is := cooldowns.Active(minute(2), ws9, asked); !is || cause != Quota {
		t.Error("the quota that everybody relies on is forgotten")
	}
	history := cooldowns.places["fam"][Scope{Breadth: Family, Name: "fam", Zone: Any}][audience{}]
	if len(history.recent) > historySize {
		t.Errorf("%d refusals of one scope are kept, want %d", len(history.recent), historySize)
	}
}

// TestOldRefusalsCountOn: refusals that are no longer kept individually still count.
func TestOldRefusalsCountOn(t *testing.T) {
	var attempts []Attempt
	for i := range 4 { // each after the cooldown of the previous one
		attempts = append(attempts, refused(i*600, i*600+1, NoCapacity, sku(Any), time.Hour))
	}
	for i := range 3 * historySize { // one refusal of many Workspaces at once
		a := refused(1800, 1801, NoCapacity, sku(Any), time.Hour)
		a.Workspace, a.Ended = types.UID(fmt.Sprint(i)), a.Ended.Add(time.Duration(i)*time.Second)
		a.Offering.CapacityType = v1beta1.CapacityOnDemand
		attempts = append(attempts, a)
	}
	list := NewCooldowns(attempts).List(minute(1810))
	if len(list) != 1 || list[0].Refusals != 4 || list[0].Until.Before(minute(1801+4*60)) {
		t.Errorf("got %+v, want four refusals in a row", list)
	}
}
