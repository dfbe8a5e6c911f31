// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// The bounds of the schema.
const (
	attempts, claims, endedClaims = 10, 1000, 64
	words, message, fix           = 4, 1024, 512
)

func quota() refusal.Verdict {
	return refusal.Verdict{
		Cause: refusal.Quota, Final: true, Message: "no quota", Fix: "raise it", Cooldown: time.Hour,
		Scope: refusal.Scope{Breadth: refusal.SKU, Name: "A", Zone: refusal.Any, CapacityType: v1beta1.CapacityOnDemand},
	}
}

func begun(number int32, names ...string) v1beta1.Attempt {
	return v1beta1.Attempt{
		Number: number, InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand, NodeClaims: names, Revision: "chat-1",
		StartTime: metav1.NewTime(start),
	}
}

// TestSelect covers the selection of attempts by state and number.
func TestSelect(t *testing.T) {
	number := func(a *v1beta1.Attempt) int32 {
		if a == nil {
			return 0
		}
		return a.Number
	}
	tests := []struct {
		reason                         string
		ended, open                    []int32
		but                            int32
		next, last, openBut, latestBut int32
	}{
		{"no attempt", nil, nil, 0, 1, 0, 0, 0},
		{"one ended", []int32{1}, nil, 0, 2, 1, 0, 1},
		{"one is open", []int32{1, 2}, []int32{3}, 0, 4, 3, 3, 3},
		{"two are open, and nothing is left out", nil, []int32{1, 2}, 0, 3, 2, 2, 2},
		{"two are open, the first left out", nil, []int32{1, 2}, 1, 3, 2, 2, 2},
		{"the open one is left out, and no other began", nil, []int32{4}, 4, 5, 4, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var log acquire.Attempts
			for _, n := range test.ended {
				log.Begin(begun(n))
				acquire.Close(log.Last(), quota(), 1, start)
			}
			for _, n := range test.open {
				log.Begin(begun(n))
			}
			got := []int32{log.NextNumber(), number(log.Last()), number(log.OpenBut(test.but)), number(log.LatestBut(test.but))}
			if diff := cmp.Diff([]int32{test.next, test.last, test.openBut, test.latestBut}, got); diff != "" {
				t.Errorf("next, last, open, latest (-want +got):\n%s", diff)
			}
			if got := number(log.OpenNumber(test.but)); test.but != 0 && got != test.but {
				t.Errorf("the open attempt of number %d is %d", test.but, got)
			}
		})
	}
}

// TestClaims covers the record that an attempt keeps of one machine.
func TestClaims(t *testing.T) {
	at := func(after time.Duration) *metav1.Time { return new(metav1.NewTime(start.Add(after))) }
	created := func(uid types.UID) func(*acquire.Attempts) {
		return func(a *acquire.Attempts) {
			acquire.NoteCreated(a.Last(), []capacity.Created{{Name: "m", UID: uid}}, start.Add(time.Minute))
		}
	}
	seen := func(machine capacity.Machine) func(*acquire.Attempts) {
		machine.Name = "m"
		return func(a *acquire.Attempts) {
			a.Note(a.Last(), []capacity.Machine{machine}, []string{"m"}, 4, start.Add(2*time.Minute))
		}
	}
	ready, later := func(a *acquire.Attempts) { a.Last().ReadyTime = at(time.Minute) }, start.Add(2*time.Minute)
	loses := func(a *acquire.Attempts) { acquire.Lose(a.Last(), "m", quota(), start.Add(3*time.Minute)) }
	lost := func(uid string) *v1beta1.LostClaim {
		return &v1beta1.LostClaim{
			UID: uid, CreationTime: at(time.Minute), Time: *at(3 * time.Minute), Reason: "Quota", Message: "no quota",
			Scope: "sku/A/*/on-demand", Cooldown: &metav1.Duration{Duration: time.Hour},
		}
	}
	tests := []struct {
		reason string
		do     []func(*acquire.Attempts)
		want   []v1beta1.AttemptClaim
	}{
		{"created", []func(*acquire.Attempts){created("u")}, []v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(time.Minute)}}},
		{"its object does not exist yet", []func(*acquire.Attempts){created("")}, nil},
		{
			"seen before the attempt began: the clocks differ",
			[]func(*acquire.Attempts){seen(capacity.Machine{UID: "u", CreatedAt: start.Add(-time.Hour)})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(0)}},
		},
		{
			"the time of creation is noted once",
			[]func(*acquire.Attempts){created("u"), seen(capacity.Machine{UID: "u", CreatedAt: start, Launched: true})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(time.Minute), Stage: "Launched"}},
		},
		{
			"a node stands for registration",
			[]func(*acquire.Attempts){seen(capacity.Machine{UID: "u", NodeName: "n"})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", Stage: "Registered"}},
		},
		{
			"a successor of the same name begins anew",
			[]func(*acquire.Attempts){seen(capacity.Machine{UID: "u", NodeName: "n"}), seen(capacity.Machine{UID: "v"})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "v"}},
		},
		{
			"a lost machine is not noted again while it goes",
			[]func(*acquire.Attempts){created("u"), loses, seen(capacity.Machine{UID: "u", NodeName: "n"})},
			[]v1beta1.AttemptClaim{{Name: "m", Lost: lost("u")}},
		},
		{
			"the replacement keeps the loss",
			[]func(*acquire.Attempts){created("u"), loses, seen(capacity.Machine{UID: "v", ProviderID: "p"})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "v", Stage: "Launched", Lost: lost("u")}},
		},
		{
			"of the machines that became usable together, readyTime says so",
			[]func(*acquire.Attempts){ready, seen(capacity.Machine{UID: "u", CreatedAt: start, NodeName: "n", Initialized: true, GPUs: 4})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(0), Stage: "Registered"}},
		},
		{
			"a later one has its own record, and keeps it without its GPUs",
			[]func(*acquire.Attempts){
				ready, seen(capacity.Machine{UID: "u", CreatedAt: later, NodeName: "n", Initialized: true, GPUs: 4}),
				seen(capacity.Machine{UID: "u", NodeName: "n", Initialized: true}),
			},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(2 * time.Minute), Stage: "Usable"}},
		},
		{
			"a later one that lacks a GPU is not usable yet",
			[]func(*acquire.Attempts){ready, seen(capacity.Machine{UID: "u", CreatedAt: later, NodeName: "n", Initialized: true, GPUs: 3})},
			[]v1beta1.AttemptClaim{{Name: "m", UID: "u", CreationTime: at(2 * time.Minute), Stage: "Registered"}},
		},
		{"a machine that was never seen cannot be lost", []func(*acquire.Attempts){loses}, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			log := acquire.Attempts{begun(1, "m")}
			for _, do := range test.do {
				do(&log)
			}
			if diff := cmp.Diff(test.want, log.Last().Claims); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMisses(t *testing.T) {
	attempt := begun(1, "a", "b")
	acquire.NoteCreated(&attempt, []capacity.Created{{Name: "a", UID: "u"}, {Name: "b", UID: "v"}}, start)
	if acquire.Misses(&attempt, 2) || !acquire.Misses(&attempt, 3) {
		t.Error("an attempt with two machines lacks the third of three alone")
	}
	acquire.Lose(&attempt, "a", quota(), start)
	if !acquire.Misses(&attempt, 2) {
		t.Error("an attempt that lost one of two machines lacks none")
	}
}

// TestAttemptsKeepTheirBounds checks random histories of attempts against the schema: no open attempt is ever dropped,
// the newest stay, and a round trip through the API server loses nothing.
func TestAttemptsKeepTheirBounds(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, seed))
		var log acquire.Attempts
		now := start
		for range 40 {
			now = now.Add(time.Duration(random.Int64N(int64(time.Hour))))
			before := acquire.Attempts(log.Clone())
			live(&log, random, now)
			if err := check(before, log); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := checkJSON(log); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// live applies one random event to attempts.
func live(log *acquire.Attempts, random *rand.Rand, now time.Time) {
	open := log.Open()
	if len(open) < 2 && random.IntN(3) == 0 {
		names := make([]string, random.IntN(claims+200))
		for i := range names {
			names[i] = fmt.Sprintf("m-%d-%d", log.NextNumber(), i)
		}
		next := begun(log.NextNumber(), names...)
		next.StartTime = metav1.NewTime(now)
		log.Begin(next)
		return
	}
	if len(open) == 0 {
		return
	}
	a := open[random.IntN(len(open))]
	name := fmt.Sprintf("m-%d-%d", a.Number, random.IntN(claims+200))
	long := strings.Repeat("é", 600)
	verdict := quota()
	verdict.Message, verdict.Fix = long, long
	switch random.IntN(8) {
	case 0:
		acquire.Close(a, verdict, 1, now)
	case 1:
		acquire.Lose(a, name, verdict, now)
	case 2:
		created := make([]capacity.Created, claims+100)
		for i := range created {
			created[i] = capacity.Created{Name: fmt.Sprintf("m-%d-%d", a.Number, i), UID: types.UID(fmt.Sprint(random.Uint64()))}
		}
		acquire.NoteCreated(a, created, now)
	default:
		machine := capacity.Machine{Name: name, UID: types.UID(fmt.Sprint(random.IntN(9))), Launched: random.IntN(2) == 0, CreatedAt: now}
		machine.Words.Launched = refusal.Condition{Status: refusal.StatusUnknown, Reason: fmt.Sprint(random.IntN(9)) + long, Message: long}
		log.Note(a, []capacity.Machine{machine}, []string{name}, 1, now)
	}
}

func check(before, after acquire.Attempts) error {
	if len(after) > attempts {
		return fmt.Errorf("%d attempts", len(after))
	}
	for _, open := range before.Open() {
		isThere := func(a v1beta1.Attempt) bool { return a.Number == open.Number }
		if !slices.ContainsFunc(after, isThere) {
			return fmt.Errorf("open attempt %d is gone", open.Number)
		}
	}
	if last := before.Last(); last != nil && after.Last().Number < last.Number {
		return fmt.Errorf("the last attempt is %d, and was %d", after.Last().Number, last.Number)
	}
	for i := range after {
		a := &after[i]
		most := claims
		if a.Reason != "" {
			most = endedClaims
		}
		if len(a.NodeClaims) > most || len(a.Claims) > claims || len(a.Message) > message || len(a.Fix) > fix {
			return fmt.Errorf("attempt %d: %d names, %d claims, %d and %d bytes", a.Number, len(a.NodeClaims), len(a.Claims), len(a.Message), len(a.Fix))
		}
		for _, claim := range a.Claims {
			if len(claim.Heard) > words || a.Reason != "" && claim.Lost == nil {
				return fmt.Errorf("attempt %d keeps %+v", a.Number, claim)
			}
		}
	}
	return nil
}

func checkJSON(log acquire.Attempts) error {
	written, err := json.Marshal(log)
	if err != nil {
		return err
	}
	var read acquire.Attempts
	if err := json.Unmarshal(written, &read); err != nil {
		return err
	}
	again, err := json.Marshal(read)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, written) {
		return errors.New("attempts change on their way through JSON")
	}
	return nil
}

// TestRemember covers the conversion of attempts for the memory of refusals.
func TestRemember(t *testing.T) {
	who := refusal.Asker{Workspace: "uid", Namespace: "team-a"}
	offer := refusal.Offering{InstanceType: "A"}
	ended := func(verdict refusal.Verdict) func(*v1beta1.Attempt) {
		return func(a *v1beta1.Attempt) { acquire.Close(a, verdict, 1, start.Add(time.Hour)) }
	}
	ready := func(a *v1beta1.Attempt) { a.ReadyTime = new(metav1.NewTime(start.Add(time.Minute))) }
	got := refusal.Attempt{Asker: who, Offering: offer, Started: start, Ended: start.Add(time.Minute)}
	refused := refusal.Attempt{
		Asker: who, Offering: offer, Started: start, Ended: start.Add(time.Hour), Cause: refusal.Quota, Scope: quota().Scope, Cooldown: time.Hour,
	}
	loss := refused
	loss.Started, loss.Ended = start.Add(2*time.Minute), start.Add(3*time.Minute)
	tests := []struct {
		reason string
		change []func(*v1beta1.Attempt)
		want   []refusal.Attempt
	}{
		{"it is getting its machines", nil, []refusal.Attempt{{Asker: who, Offering: offer, Started: start}}},
		{
			"one of them was launched",
			[]func(*v1beta1.Attempt){func(a *v1beta1.Attempt) { a.Claims = []v1beta1.AttemptClaim{{Name: "m", Stage: "Launched"}} }},
			[]refusal.Attempt{{Asker: who, Offering: offer, Started: start, Launched: true}},
		},
		{"it has its machines", []func(*v1beta1.Attempt){ready}, []refusal.Attempt{got}},
		{"it was refused", []func(*v1beta1.Attempt){ended(quota())}, []refusal.Attempt{refused}},
		{"it had its machines and lost them", []func(*v1beta1.Attempt){ready, ended(quota())}, []refusal.Attempt{got, refused}},
		{"its machines were released", []func(*v1beta1.Attempt){ended(acquire.Released("another plan"))}, nil},
		{"what ran on its machines failed", []func(*v1beta1.Attempt){ended(refusal.Verdict{Cause: refusal.CannotServe})}, nil},
		{
			"it lost one machine and kept the others",
			[]func(*v1beta1.Attempt){ready, func(a *v1beta1.Attempt) {
				acquire.NoteCreated(a, []capacity.Created{{Name: "m", UID: "u"}}, start.Add(2*time.Minute))
				acquire.Lose(a, "m", quota(), start.Add(3*time.Minute))
			}},
			[]refusal.Attempt{got, loss},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			attempt := begun(1, "m")
			for _, change := range test.change {
				change(&attempt)
			}
			remembered := acquire.Remember(who, []v1beta1.Attempt{attempt}, func(*v1beta1.Attempt) refusal.Offering { return offer })
			if diff := cmp.Diff(test.want, remembered); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
