// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package calibration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/presets"
)

// TestOverlay: the order of the names decides, not the order of the files, and a refused file has no effect on the
// others.
func TestOverlay(t *testing.T) {
	known, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	run := func(name, gpu string, tpot float64) catalog.Measurement {
		m := someRun()
		m.Name, m.GPU, m.TPOTMillis, m.Model = name, gpu, tpot, "meta-llama/Llama-3.1-8B-Instruct"
		m.OutputTokensPerSecond = 4 * 100 / (0.29 + 0.099*tpot)
		return m
	}
	files := []calibration.Input{
		{Name: "x/c", Data: signed(t, keyOf('a'), run("same", "A10", 12))},
		{Name: "y/a", Data: signed(t, keyOf('a'), run("same", "A10", 11))},
		{Name: "d", Data: signed(t, keyOf('a'), run("nobody", "A11", 11))},
		{Name: "b", Data: signed(t, keyOf('b'), run("stranger", "A10", 10))},
	}
	for range 2 {
		slices.Reverse(files)
		got, used, refused := calibration.Overlay(known, files, publicOf(keyOf('a')))
		if diff := cmp.Diff([]string{"y/a", "x/c"}, used); diff != "" {
			t.Errorf("used (-want +got):\n%s", diff)
		}
		if len(refused) != 2 || !strings.HasPrefix(refused[0].Error(), `calibration file "b": signature.key: `) ||
			!strings.HasPrefix(refused[1].Error(), `calibration file "d": measurements[0] "nobody": gpu: "A11" is not the name of a GPU`) {
			t.Errorf("refused: %v", refused)
		}
		m, err := got.ResolveModel("meta-llama/Llama-3.1-8B-Instruct")
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range got.Measurements(&m, &m.Artifacts[0]) {
			if found.Name == "same" && found.TPOTMillis != 12 {
				t.Errorf("the run of file a counts, not that of c: %+v", found)
			}
		}
	}
}
