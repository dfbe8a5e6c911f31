// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// line is both tables' entry for a flag.
type line struct {
	Kind      string
	Spellings string
	Many      bool
	Values    string
}

// kinds maps our kinds to the presets' kinds. The presets do not distinguish a switch from a bool, or text from a
// string.
func kinds() map[Kind]catalog.FlagKind {
	return map[Kind]catalog.FlagKind{
		Switch: catalog.FlagBool, Bool: catalog.FlagBool, Int: catalog.FlagInt, Float: catalog.FlagFloat, String: catalog.FlagString,
		Text: catalog.FlagString, JSON: catalog.FlagJSON, Size: catalog.FlagSize, Auto: catalog.FlagSize,
	}
}

// The product's table and this one were read from vLLM's source independently.
func TestTableAgreesWithPresets(t *testing.T) {
	data, err := os.ReadFile("../../../presets/engines/vllm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var preset struct {
		Engines []catalog.Engine `json:"engines"`
	}
	if err := yaml.Unmarshal(data, &preset); err != nil {
		t.Fatal(err)
	}
	theirs := map[string]line{}
	for name, flag := range preset.Engines[0].Flags {
		theirs[name] = line{
			Kind: string(flag.Kind), Many: flag.Many, Values: join(flag.Values),
			Spellings: join(slices.Concat(flag.Aliases, flag.Negations)),
		}
	}
	table, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]line{}
	for _, flag := range table {
		each := line{Kind: string(kinds()[flag.Kind]), Many: flag.Many, Values: join(flag.Values)}
		spellings := flag.Aliases
		if flag.Kind == Bool {
			spellings = slices.Concat(spellings, []string{"no-" + flag.Name})
		}
		each.Spellings = join(spellings)
		if flag.Kind == Auto {
			each.Values = "auto"
		}
		if reason := mayDiffer()[flag.Name]; reason != "" {
			each.Values = theirs[flag.Name].Values
		}
		ours[flag.Name] = each
	}
	if diff := cmp.Diff(ours, theirs); diff != "" {
		t.Errorf("flags (-here +presets/engines/vllm.yaml):\n%s", diff)
	}
	for _, name := range slices.Sorted(maps.Keys(mayDiffer())) {
		if _, found := ours[name]; !found {
			t.Errorf("there is no flag %s that values may differ of", name)
		}
	}
}

// mayDiffer returns the flags with an open or partial list of values in one of the two tables, and the reason.
func mayDiffer() map[string]string {
	const open = "the list was not read for this table"
	return map[string]string{
		"collect-detailed-traces": "pairs are written with a comma, which the renderer has no use for",
		"kv-cache-dtype":          open,
		"kda-prefill-backend":     open,
		"kda-decode-backend":      open,
	}
}

func join(list []string) string {
	return strings.Join(slices.Sorted(slices.Values(list)), " ")
}
