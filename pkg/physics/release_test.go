// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Releases are named in many ways. The default memory share shows how the name is understood: until 0.22 it was 0.90,
// then 0.92.
func TestReleases(t *testing.T) {
	e := newShelf(t).vllm(t)
	gpu := sku.GPU{Class: "H100-80", MemoryGiB: 79.1}
	for _, tc := range []struct {
		reason, version string
		former          bool
	}{
		{"as it is", "0.11", true},
		{"about", "~0.11", true},
		{"a tag", "v0.10.1", true},
		{"as of a package", "vllm==0.9.2", true},
		{"or later", "0.21+", true},
		{"with a date behind", "0.10.x 2025-09", true},
		{"a generation, which logs named until 0.11", "V1", true},
		{"a generation and a date", "V1 2025-12", true},
		{"a generation and a release", "V0 0.6.x", true},
		{"two digits are more than one", "0.9", true},
		{"the release that changed it", "0.22", false},
		{"a patch", "v0.22.1", false},
		{"a whole number that is no generation", "1.0", false},
		{"a year", "2026", false},
		{"nothing is said", "", false},
	} {
		s := physics.Serving{Version: tc.version}.Settled(&gpu, e)
		if want := map[bool]float64{true: 0.90, false: 0.92}[tc.former]; s.Utilization != want {
			t.Errorf("%s: release %q takes %v of the memory, want %v", tc.reason, tc.version, s.Utilization, want)
		}
		if tc.version != "" && !physics.IsRelease(tc.version) {
			t.Errorf("%s: %q is no release", tc.reason, tc.version)
		}
	}
	for _, text := range []string{"", "newest", "main", "v"} {
		if physics.IsRelease(text) {
			t.Errorf("%q is a release", text)
		}
	}
}

// A release with more padding loads more: row 45 of kvcache.csv has an exact version, and logs 65.9651 GiB.
func TestEarlierReleasesLoadMore(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	p, _ := s.find("openai/gpt-oss-120b")
	format, _ := s.catalog.Quantization(p.Quantization)
	for version, logged := range map[string]float64{"0.10.1": 65.9651, "v0.10.1": 65.9651, "~0.11": 64.38, "": 64.38} {
		m := physics.NewModel(p.Shape, physics.Weights{Format: format, Bytes: p.Bytes, Version: version})
		got := m.WeightBytes(physics.Layout{TP: 1, PP: 1}) * e.Profile.WeightFactor / gib
		if off := got/logged - 1; off > 0.01 || off < -0.01 {
			t.Errorf("release %q: %.2f GiB of weights, logged %.2f", version, got, logged)
		}
	}
}
