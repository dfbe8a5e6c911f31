// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// The speed law would never use a constant under an unknown name.
func TestPresetsSpeedNamesExist(t *testing.T) {
	c := loadPresets(t)
	links := map[string]bool{}
	for _, s := range c.SKUs() {
		if gpu, known := c.GPU(s.GPU); known {
			links[gpu.Link] = true
		}
	}
	engines := 0
	for _, e := range c.Engines() {
		if e.Speed.Basis == "" {
			continue
		}
		engines++
		for _, kernels := range []map[string]catalog.Kernel{e.Speed.Dense, e.Speed.Experts} {
			for name := range kernels {
				if q, known := c.Quantization(name); name != "default" && (!known || q.Name != name) {
					t.Errorf("%s: %q is not the name of a quantization", e.Name, name)
				}
			}
		}
		for link := range links {
			reduces := func(a catalog.AllReduce) bool { return slices.Contains(a.Links, link) }
			if e.Split == catalog.SplitTensor && !slices.ContainsFunc(e.Speed.AllReduce, reduces) {
				t.Errorf("%s: allReduce: there is nothing for GPUs joined by %q", e.Name, link)
			}
		}
	}
	if engines != 2 {
		t.Errorf("%d engines have a speed, want 2", engines)
	}
}
