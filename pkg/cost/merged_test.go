// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// partOf returns the number of the part that has a Workspace.
func partOf(workspace string) int {
	number := 0
	_, _ = fmt.Sscanf(workspace, "model-%d", &number) // 0 for merged accounts
	return number % 4
}

// parts returns the four parts of a ledger of one namespace with random machines, each merged to a random size.
func parts(t *testing.T, random *rand.Rand) []*cost.Ledger {
	t.Helper()
	out := []*cost.Ledger{cost.New(), cost.New(), cost.New(), cost.New()}
	at := noon
	for n := range 25 {
		elapsed := time.Duration(random.Int64N(int64(30 * 24 * time.Hour))).Truncate(time.Millisecond)
		at = at.Add(elapsed)
		steps := [4]cost.Step{}
		for range random.IntN(20) {
			key := chat()
			key.Workspace = fmt.Sprint("model-", random.IntN(150))
			of := &steps[partOf(key.Workspace)]
			of.Machines = append(of.Machines, cost.Machine{UID: fmt.Sprint(n, "-", len(of.Machines)), Key: key, Owned: true, Since: at, Serving: random.IntN(2) == 0})
		}
		for i, l := range out {
			steps[i].At, steps[i].Elapsed = at, elapsed
			l.Observe(steps[i])
		}
	}
	for i, l := range out { // some machines are still there
		step := cost.Step{At: at, Machines: []cost.Machine{{UID: "open", Key: chat(), Owned: true}}}
		step.Machines[0].Key.Workspace = fmt.Sprint("model-", 400+i)
		l.Observe(step)
		step.At, step.Elapsed = at.Add(time.Hour), time.Hour
		l.Observe(step)
		if _, err := l.Fit(4_000 + random.IntN(20_000)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestMergedCostsSurvive loses some parts of a ledger whose copy has merged accounts. The copy and the other parts have
// the costs of all accounts, each once.
func TestMergedCostsSurvive(t *testing.T) {
	restored := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 11))
		all := parts(t, random)
		copied := cost.Join(all...)
		want := total(t, copied)
		if _, err := copied.Fit(2_000 + random.IntN(40_000)); err != nil {
			t.Fatal(err)
		}
		var kept []*cost.Ledger
		var lost []int
		for i, l := range all {
			if random.IntN(2) == 0 {
				lost = append(lost, i)
				continue
			}
			kept = append(kept, l)
		}
		merged := cost.Merged(copied, "team-a", kept)
		back := copied.Select(func(name cost.Name) bool {
			return name.Workspace != cost.Others && slices.Contains(lost, partOf(name.Workspace))
		})
		if got := total(t, cost.Join(append(kept, merged, back)...)); got != want {
			t.Fatalf("seed %d: without the parts %v: %+v, want %+v", seed, lost, got, want)
		}
		if len(lost) == 0 && len(merged.Namespaces()) > 0 {
			t.Fatalf("seed %d: nothing was lost, and %+v is restored", seed, merged.Charges(time.Time{}))
		}
		if len(merged.Namespaces()) > 0 {
			restored++
		}
	}
	if restored < 10 {
		t.Errorf("only %d of 40 ledgers had merged costs in a lost part", restored)
	}
}
