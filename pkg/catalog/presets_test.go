// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/presets"
)

func loadPresets(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatalf("loading the presets: %v", err)
	}
	return c
}

// A 16-bit file has two bytes per parameter, and a few MB for the tokenizer. This detects typing errors in a shape or a
// size.
func TestPresetsSizesAgreeWithShapes(t *testing.T) {
	checked := 0
	for _, m := range loadPresets(t).Models() {
		for _, a := range m.Artifacts {
			if a.Quantization != "f16" && a.Quantization != "bf16" {
				continue
			}
			checked++
			once, twice := float64(2*m.Shape.Params()), float64(2*(m.Shape.Params()+m.Shape.EmbeddingParams()))
			bytes := float64(a.LoadedBytes())
			off := math.Abs(bytes/once - 1)
			if m.Shape.Tied { // the file may hold the embedding a second time, as its output matrix
				off = min(off, math.Abs(bytes/twice-1))
			}
			if off > 0.006 {
				t.Errorf("%s %s: %.0f bytes, its shape gives %.0f: %.2f %% off", m.Name, a.Quantization, bytes, once, 100*off)
			}
		}
	}
	if checked == 0 {
		t.Error("no 16-bit artifact was checked")
	}
}

// Of a model's artifacts for an engine, those in the released precision come first, the largest first.
func TestPresetsPreferReleasedPrecision(t *testing.T) {
	for _, m := range loadPresets(t).Models() {
		last := map[string]model.Artifact{}
		for _, a := range m.Artifacts {
			before, known := last[a.Engine]
			last[a.Engine] = a
			switch {
			case !known:
			case a.Native && !before.Native:
				t.Errorf("%s: native %s comes after %s", m.Name, a.Quantization, before.Quantization)
			case a.Bytes() > before.Bytes():
				t.Errorf("%s: %s has %d bytes, more than the %d of %s", m.Name, a.Quantization, a.Bytes(), before.Bytes(), before.Quantization)
			}
		}
	}
}

// Every usable machine has a price somewhere, so that a plan can be compared.
func TestPresetsMachinesHavePrices(t *testing.T) {
	c := loadPresets(t)
	for _, s := range c.SKUs() {
		if s.Unusable == "" && len(s.Prices) == 0 {
			t.Errorf("%s may be chosen and has no price", s.Name)
		}
		if c.ReferenceRegion(s.Cloud) == "" {
			t.Errorf("%s: cloud %s has no reference region", s.Name, s.Cloud)
		}
	}
}

// The overlay of the local cloud is a valid overlay, and its model needs nobody's consent.
func TestLocalCatalogLoads(t *testing.T) {
	c, err := catalog.Load(presets.FS(), os.DirFS("../../examples/local-catalog"))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := c.Model("tiny-chat")
	if !ok || len(m.Artifacts) != 1 || !m.Artifacts[0].Native {
		t.Errorf("Model(tiny-chat) = %+v, %v, want one native artifact", m, ok)
	}
}

// A caller's change to a result does not change the catalogue.
func TestCatalogIsImmutable(t *testing.T) {
	c, fresh := loadPresets(t), loadPresets(t)
	for _, m := range c.Models() {
		for i := range m.Artifacts {
			m.Artifacts[i].Repo = "changed"
			clear(m.Artifacts[i].Files)
			clear(m.Artifacts[i].Flags)
		}
		clear(m.Aliases)
	}
	for _, s := range c.SKUs() {
		clear(s.Prices)
	}
	for _, q := range c.Quantizations() {
		clear(q.Aliases)
	}
	for _, e := range c.Engines() {
		clear(e.Flags)
		e.Reserved[0].Flags[0] = "changed"
		clear(e.ComputeCapability)
	}
	for _, pair := range []struct {
		reason      string
		got, expect any
	}{
		{"models", c.Models(), fresh.Models()},
		{"machine types", c.SKUs(), fresh.SKUs()},
		{"engines", c.Engines(), fresh.Engines()},
		{"quantizations", c.Quantizations(), fresh.Quantizations()},
	} {
		if diff := cmp.Diff(pair.expect, pair.got); diff != "" {
			t.Errorf("%s changed (-want +got):\n%s", pair.reason, diff)
		}
	}
}
