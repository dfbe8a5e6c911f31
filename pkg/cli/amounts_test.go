// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

// People write 128k tokens and 100 milliseconds.
func TestAmounts(t *testing.T) {
	for text, want := range map[string]int32{"8192": 8192, "128k": 131072, "16K": 16384, "1M": 1 << 20, "-5": -5, "0": 0} {
		var got int32
		if err := (tokensFlag{&got}).Set(text); err != nil || got != want {
			t.Errorf("tokens %q are %d (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", "12kk", "many", "99999999999", "9999M", "1.5k"} {
		var got int32
		if err := (tokensFlag{&got}).Set(text); err == nil {
			t.Errorf("tokens %q are %d, want an error", text, got)
		}
	}
	for text, want := range map[string]time.Duration{
		"100": 100 * time.Millisecond, "100ms": 100 * time.Millisecond, "2s": 2 * time.Second, "0.5": 500 * time.Microsecond,
	} {
		var got time.Duration
		if err := (timeFlag{&got}).Set(text); err != nil || got != want {
			t.Errorf("time %q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "NaN", "Inf"} {
		var got time.Duration
		if err := (timeFlag{&got}).Set(text); err == nil {
			t.Errorf("time %q is %v, want an error", text, got)
		}
	}
}
