// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"strings"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/presets"
)

// TestObjectives checks that an administrator can replace an objective, and that an invalid one is refused.
func TestObjectives(t *testing.T) {
	for _, tc := range []struct {
		reason, objective, refused string
	}{
		{"everything that Balanced may have", "{name: Balanced, premium: 0.1, gain: 0.05, saving: {rdma: 0.2, network: 0.3}, leastModelLen: 1024}", ""},
		{"a length for Cost", "{name: Cost, leastModelLen: 2048}", ""},
		{"a premium for Cost", "{name: Cost, premium: 0.1}", "premium: 0.1 must be 0"},
		{"a gain for Latency", "{name: Latency, gain: 0.1}", "gain: 0.1 must be 0"},
		{"a gain of everything", "{name: Balanced, gain: 1}", "gain: 1 must be from 0"},
		{"a length for Latency", "{name: Latency, leastModelLen: 2048}", "leastModelLen: 2048 must be 0"},
		{"a length below nothing", "{name: Balanced, leastModelLen: -1}", "leastModelLen: -1 must be from 0"},
		{"an aim without a price", "{name: Throughput, premium: 1}", "must be Balanced, Cost or Latency"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c, err := catalog.Load(presets.FS(), overlay("objectives: ["+tc.objective+"]"))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("error %v, want %q", err, tc.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Objective(v1beta1.OptimizeForLatency).Premium != 1 {
				t.Error("an entry of another name has changed")
			}
		})
	}
}
