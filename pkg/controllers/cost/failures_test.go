// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// TestKilledAtAnyMoment kills the process again and again. A remaining machine is charged for all of its time, but only
// once.
func TestKilledAtAnyMoment(t *testing.T) {
	for every := 1; every < 30; every++ {
		ws := workspace("team-a", "chat")
		w := newWorld(t, ws)
		w.pass(t, 0)
		w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
		w.pass(t, time.Minute)
		w.answers(t, ws, metav1.ConditionTrue)
		for n := range 60 {
			if n%every == 0 {
				w.restart()
			}
			w.pass(t, 37*time.Second)
		}
		w.costs = nil
		w.pass(t, 0)
		w.pass(t, urgency)
		if diff := cmp.Diff(map[string]float64{"starting": 60, "serving": 60 * 37}, w.stored(t, "modelberth")); diff != "" {
			t.Errorf("killed each %d passes: %s", every, diff)
		}
	}
}

// TestKilledAfterAShortLife kills the process together with a machine that has existed for less than an interval. The
// next process finds it in the ledger alone.
func TestKilledAfterAShortLife(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
	if next := w.pass(t, time.Minute); next > urgency {
		t.Errorf("the beginning of a machine waits %s", next)
	}
	w.pass(t, urgency)
	w.restart()
	w.costs = nil
	w.pass(t, time.Second)
	w.pass(t, urgency)
	if diff := cmp.Diff(map[string]float64{"wasted": 76}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// overtaken returns a world in which a former leader writes after another one has begun. That write must fail.
func overtaken(t *testing.T) *world {
	t.Helper()
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 5*time.Minute)
	former := w.keeper
	w.restart()
	w.pass(t, 5*time.Minute)
	w.keeper = former
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("a former leader overwrites the books")
	}
	return w
}

// TestPreviousLeader: a former leader does not overwrite the newer ledger, but continues from it.
func TestPreviousLeader(t *testing.T) {
	w := overtaken(t)
	if diff := cmp.Diff(map[string]float64{"starting": 11 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Errorf("the copy without the books of the new leader: %s", diff)
	}
	w.pass(t, 5*time.Minute)
	for _, namespace := range []string{"modelberth", "team-a"} {
		if diff := cmp.Diff(map[string]float64{"starting": 21 * 60}, w.stored(t, namespace)); diff != "" {
			t.Errorf("in %s: %s", namespace, diff)
		}
	}
}

// TestPreviousLeaderEnds stops a former leader that cannot read the newer ledger.
func TestPreviousLeaderEnds(t *testing.T) {
	w := overtaken(t)
	w.refuseReads = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.keeper.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"starting": 11 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Error(diff)
	}
}

// TestAPIServerFails: failed writes lose nothing, and the metric shows the delay.
func TestAPIServerFails(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
	w.pass(t, time.Minute)
	w.fail = errors.New("the API server is away")
	for range 10 {
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		_, err := w.keeper.Reconcile(t.Context(), named(machines))
		if err != nil && !strings.Contains(err.Error(), "storing the cost ledger in ConfigMap modelberth/berth-cost-") {
			t.Errorf("error %v", err)
		}
	}
	if got := gathered(t, w.keeper, true)["modelberth_cost_unstored_seconds"]; got != 600 {
		t.Errorf("unstored for %v s, want 600", got)
	}
	w.fail = nil
	w.pass(t, time.Minute)
	if diff := cmp.Diff(map[string]float64{"starting": 12 * 60}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestDamagedBooks: a damaged part stays as it is, the other parts are written, and no copy is written.
func TestDamagedBooks(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	damaged := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", shardOf("team-a", "chat"))},
		Data:       map[string]string{v1beta1.CostLedgerKey: "{"},
	}
	if shardOf("team-a", "chat") == shardOf("team-b", "draw") {
		t.Fatal("the names share a shard")
	}
	w := newWorld(t, a, b, damaged)
	w.costs = []capacity.MachineCost{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	if got := w.written(); !cmp.Equal(got, []string{fmt.Sprint("modelberth/berth-cost-", shardOf("team-b", "draw"))}) {
		t.Errorf("written %v", got)
	}
}

// TestEndOfLeader: a leader stores the rest when it ends.
func TestEndOfLeader(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	if got := w.written(); len(got) > 0 {
		t.Fatalf("written already: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.keeper.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"starting": 60}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestLostAnswer: a write succeeds without an answer, and then a machine ends. The process continues from its memory, so
// the machine is not charged after its end.
func TestLostAnswer(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, 5*time.Minute)
	w.losesAnswers = true
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("no error")
	}
	w.losesAnswers, w.costs = false, nil
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	w.pass(t, 5*time.Minute)
	if diff := cmp.Diff(map[string]float64{"wasted": 11 * 60}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestTwoFirstLeaders: two leaders overlap before the ledger exists. The first one that stores its part creates it, and the
// other one continues from there, so an end that only one of them saw stays.
func TestTwoFirstLeaders(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	former := w.keeper
	w.restart()
	w.pass(t, 4*time.Minute)
	w.costs = nil
	w.pass(t, time.Minute)
	w.pass(t, time.Minute) // an end counts once it was seen twice
	w.pass(t, 5*time.Minute)
	stored := w.stored(t, "modelberth")
	if len(stored) == 0 {
		t.Fatal("the newer leader has stored nothing")
	}
	w.keeper = former
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("error %v, want that the part exists", err)
	}
	w.pass(t, 6*time.Minute)
	if diff := cmp.Diff(stored, w.stored(t, "modelberth")); diff != "" {
		t.Errorf("the former leader has changed the costs (-before +after):\n%s", diff)
	}
}
