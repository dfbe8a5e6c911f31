// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// TestNamespaceRefusesCopy: the accounts of that namespace and the copies of others are still written.
func TestNamespaceRefusesCopy(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	w := newWorld(t, a, b)
	w.refuses = "team-a"
	w.costs = []capacity.MachineCost{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	for namespace, want := range map[string]map[string]float64{
		"modelberth": {"starting": 22 * 60}, "team-a": {}, "team-b": {"starting": 11 * 60},
	} {
		if diff := cmp.Diff(want, w.stored(t, namespace)); diff != "" {
			t.Errorf("in %s: %s", namespace, diff)
		}
	}
	w.refuses = ""
	w.pass(t, 5*time.Minute)
	if diff := cmp.Diff(map[string]float64{"starting": 16 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Error(diff)
	}
}

// TestCopyIsTriedAgain: a failed copy is retried, also by the next process, and then written once.
func TestCopyIsTriedAgain(t *testing.T) {
	ended := func(t *testing.T) *world {
		ws := workspace("team-a", "chat")
		w := newWorld(t, ws)
		w.broken = "team-a"
		w.costs = []capacity.MachineCost{machineOf(ws, noon)}
		w.pass(t, time.Minute)
		w.costs = nil
		if next := w.pass(t, time.Minute); next == 0 || next > time.Minute {
			t.Errorf("a copy that failed waits %s", next)
		}
		if got := len(w.written()); got != 1 || w.attempts != 1 {
			t.Fatalf("%d writes and %d attempts, want 1 of each", got, w.attempts)
		}
		w.broken = ""
		return w
	}
	for _, tc := range []struct {
		reason  string
		restart bool
	}{{"by the same process", false}, {"by the next process", true}} {
		t.Run(tc.reason, func(t *testing.T) {
			w := ended(t)
			if tc.restart {
				w.restart()
			}
			if next := w.pass(t, time.Minute); next != 0 {
				t.Errorf("looks again after %s, and everything is written", next)
			}
			if diff := cmp.Diff([]string{"team-a/modelberth-cost"}, w.written()); diff != "" {
				t.Error(diff)
			}
			for range 3 {
				w.restart()
				w.pass(t, time.Minute)
			}
			if got := w.written(); len(got) > 0 {
				t.Errorf("the copy is right, and written %v", got)
			}
		})
	}
}

// TestPublishedIsBounded: a refused copy is not retried before its content changes, and deleted namespaces are
// forgotten.
func TestPublishedIsBounded(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.refuses = "team-a"
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	w.costs = nil
	w.pass(t, time.Minute)
	if next := w.pass(t, urgency); next != 0 {
		t.Errorf("a copy that was refused is tried again after %s", next)
	}
	w.keeper.published["gone"] = digest{}
	for range 3 {
		w.keeper.stale["team-a"] = true
		w.pass(t, time.Minute)
	}
	if w.attempts != 1 {
		t.Errorf("%d attempts, want 1", w.attempts)
	}
	if _, ok := w.keeper.published["gone"]; ok || len(w.keeper.published) != 1 {
		t.Errorf("published: %v", w.keeper.published)
	}
}

// TestCopiesKeepTenantsApart: a copy contains nothing about other namespaces.
func TestCopiesKeepTenantsApart(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	w := newWorld(t, a, b)
	w.costs = []capacity.MachineCost{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	for namespace, other := range map[string]string{"team-a": "team-b", "team-b": "team-a"} {
		stored := &corev1.ConfigMap{}
		if err := w.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: v1beta1.CostConfigMap}, stored); err != nil {
			t.Fatal(err)
		}
		if text := stored.Data[v1beta1.CostLedgerKey]; strings.Contains(text, other) || !strings.Contains(text, namespace) {
			t.Errorf("in %s: %s", namespace, text)
		}
	}
}
