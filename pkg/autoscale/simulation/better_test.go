// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import "testing"

// TestIsBetter compares trials for a goal of 95 % with a reserve up to 96 %.
func TestIsBetter(t *testing.T) {
	for _, test := range []struct {
		reason         string
		share, dollars float64
		than, paid     float64
		want           bool
	}{
		{"cheaper, both with the reserve", 0.96, 10, 0.99, 20, true},
		{"dearer, both with the reserve", 0.99, 20, 0.96, 10, false},
		{"only it has the reserve, and is dearer", 0.97, 20, 0.951, 10, true},
		{"both just reach the goal, and it is cheaper", 0.951, 10, 0.958, 30, true},
		{"both just reach the goal, and it is dearer", 0.958, 30, 0.951, 10, false},
		{"only it reaches the goal", 0.951, 30, 0.94, 10, true},
		{"both miss the goal, and it has more in time", 0.94, 30, 0.93, 10, true},
		{"both miss the goal, and it is cheaper", 0.93, 10, 0.94, 30, false},
	} {
		one := Trial{Attained: test.share, Result: &Result{Dollars: test.dollars}}
		other := Trial{Attained: test.than, Result: &Result{Dollars: test.paid}}
		if got := one.isBetter(&other, 0.95); got != test.want {
			t.Errorf("%s: better: %v, want %v", test.reason, got, test.want)
		}
	}
}
