// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package usd_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/usd"
)

func TestPerHour(t *testing.T) {
	for _, tc := range []struct {
		reason string
		price  float64
		want   string
	}{
		{"nothing", 0, "$0.00/h"},
		{"cents", 3.67, "$3.67/h"},
		{"more than cents", 0.526, "$0.53/h"},
		{"a large machine", 98.32, "$98.32/h"},
		{"a sum of floats", 0.1 + 0.2, "$0.30/h"},
		{"less than ten cents", 0.0416, "$0.0416/h"},
		{"whole cents below ten", 0.05, "$0.05/h"},
		{"more than four decimals", 0.00412, "$0.0041/h"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := usd.PerHour(tc.price); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestApart(t *testing.T) {
	for _, tc := range []struct {
		reason        string
		a, b          float64
		first, second string
	}{
		{"cents tell them apart", 3.67, 6.98, "$3.67/h", "$6.98/h"},
		{"cents do not", 3.671, 3.674, "$3.671/h", "$3.674/h"},
		{"nothing does", 3.67, 3.67, "$3.67/h", "$3.67/h"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if first, second := usd.Apart(tc.a, tc.b); first != tc.first || second != tc.second {
				t.Errorf("%s and %s, want %s and %s", first, second, tc.first, tc.second)
			}
		})
	}
}

func TestSignificant(t *testing.T) {
	for amount, want := range map[float64]string{0.5: "$0.50", 1.234: "$1.23", 13: "$13.0", 12.49: "$12.5", 187.6: "$188"} {
		if got := usd.Significant(amount); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{
		"50": 50, "0.25": 0.25, "007": 7, "1000000": 1e6, "0": 0, "0.0": 0, "": 0, ".": 0, ".5": 0, "5.": 0, "1.2.3": 0, "-1": 0, "+1": 0,
		"1e3": 0, "0x10": 0, "1_000": 0, "1,000": 0, "$5": 0, "5 0": 0, "5\n": 0, "inf": 0, "NaN": 0, "٥": 0, strings.Repeat("9", 400): 0,
	} {
		got, ok := usd.Parse(text)
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
}
