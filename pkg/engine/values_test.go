// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
)

// rich returns an engine that has flags with several values, with sizes and with JSON.
func rich() catalog.Engine {
	return catalog.Engine{
		Name: "rich", Version: "1",
		Reserved: []catalog.Reservation{{Reason: "it is ours", Flags: []string{"secret-config"}}},
		Flags: map[string]catalog.Flag{
			"sizes":         {Kind: catalog.FlagInt, Many: true},
			"modules":       {Kind: catalog.FlagString, Many: true, Values: []string{"model", "worker"}},
			"names":         {Kind: catalog.FlagString, Many: true},
			"length":        {Kind: catalog.FlagSize, Values: []string{"auto"}},
			"bytes":         {Kind: catalog.FlagSize},
			"run-config":    {Kind: catalog.FlagJSON, Aliases: []string{"rc"}},
			"secret-config": {Kind: catalog.FlagJSON},
			"plain":         {Kind: catalog.FlagString},
		},
	}
}

func TestValues(t *testing.T) {
	for _, tc := range []struct{ reason, name, value, want string }{
		{"several values", "sizes", "1  2\t4", "1 2 4"},
		{"one of several", "sizes", "1", "1"},
		{"several values as JSON", "sizes", "[1, 2, -4]", "1 2 -4"},
		{"several words as JSON", "names", `["a", "b.c"]`, "a b.c"},
		{"words of a list", "modules", "model worker", "model worker"},
		{"a number", "bytes", "4096", "4096"},
		{"nothing", "bytes", "0", "0"},
		{"thousands", "bytes", "32k", "32000"},
		{"powers of two", "bytes", "32K", "32768"},
		{"millions", "bytes", "2m", "2000000"},
		{"gibibytes", "bytes", "3G", "3221225472"},
		{"the largest suffix", "bytes", "1t", "1000000000000"},
		{"a fraction of a thousand", "bytes", "25.6k", "25600"},
		{"a fraction that is cut", "bytes", "0.0015k", "1"},
		{"a word beside numbers", "length", "auto", "auto"},
		{"a number that means the word", "length", "-1", "auto"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, warnings, err := engine.Resolve(rich(), args(map[string]string{tc.name: tc.value}))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("Resolve: %v, warnings %v", err, warnings)
			}
			if diff := cmp.Diff([]engine.Setting{{Name: tc.name, Value: tc.want}}, got); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
		})
	}
}

func TestValuesAreChecked(t *testing.T) {
	for _, tc := range []struct{ reason, name, value, want string }{
		{"one of several is no number", "sizes", "1 two", `flag "sizes" of engine rich needs a whole number, not "two"`},
		{"a list without an end", "sizes", "[1,", `flag "sizes" of engine rich needs values separated by spaces, or a JSON list, not "[1,"`},
		{"a list of nothing", "sizes", "[]", `flag "sizes" of engine rich needs at least one value`},
		{"blanks only", "sizes", "  ", `flag "sizes" of engine rich needs at least one value`},
		{"a blank within a value", "names", `["a b"]`, `flag "names" of engine rich takes values without spaces, not "a b"`},
		{"an empty value", "names", `["a", ""]`, `flag "names" of engine rich takes values without spaces, not ""`},
		{"a word outside of the list", "modules", "model all", `flag "modules" of engine rich must be one of model, worker, not "all"`},
		{"a unit", "bytes", "1GB", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "1GB"`},
		{"a suffix alone", "bytes", "k", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "k"`},
		{"a fraction of a power of two", "bytes", "1.5K", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "1.5K"`},
		{"below nothing", "bytes", "-1", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "-1"`},
		{"more than fits", "bytes", "9999999999T", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "9999999999T"`},
		{"a fraction of more than fits", "bytes", "99999999999.5t", `flag "bytes" of engine rich needs a whole number, as in 32768, 32k or 32K, not "99999999999.5t"`},
		{"another word", "length", "max", `flag "length" of engine rich needs a whole number, as in 32768, 32k or 32K or one of auto, not "max"`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, _, err := engine.Resolve(rich(), args(map[string]string{tc.name: tc.value}))
			if err == nil {
				t.Fatalf("Resolve = %v, want an error", got)
			}
			if diff := cmp.Diff("args: "+tc.want, err.Error()); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
		})
	}
}

func TestPartsOfJSON(t *testing.T) {
	for _, tc := range []struct {
		reason string
		flags  map[string]string
		want   string
	}{
		{"a member", map[string]string{"run-config.mode": "3"}, `{"mode":3}`},
		{"a member of a member, by an alias and with underscores", map[string]string{"--run_config.a.b_c": "x", "rc.a.d": "1.50"}, `{"a":{"b_c":"x","d":1.50}}`},
		{"YAML's truth is JSON's", map[string]string{"rc.a": "True", "rc.b": "false", "rc.c": "null"}, `{"a":true,"b":false,"c":null}`},
		{"lists and objects", map[string]string{"rc.a": "[1, 2]", "rc.b": `{"c": {}}`}, `{"a":[1,2],"b":{"c":{}}}`},
		{"over the whole", map[string]string{"run-config": `{"a": 1, "b": {"c": 2}}`, "rc.b.d": "3", "rc.a": "0"}, `{"a":0,"b":{"c":2,"d":3}}`},
		{"numbers keep their digits", map[string]string{"rc.a": "12345678901234567890"}, `{"a":12345678901234567890}`},
		{"what only looks like JSON is text", map[string]string{"rc.a": "1 2"}, `{"a":"1 2"}`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, warnings, err := engine.Resolve(rich(), args(tc.flags))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("Resolve: %v, warnings %v", err, warnings)
			}
			if diff := cmp.Diff([]engine.Setting{{Name: "run-config", Value: tc.want}}, got); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
		})
	}
}

func TestPartsOfJSONAreChecked(t *testing.T) {
	for _, tc := range []struct {
		reason string
		flags  map[string]string
		want   string
	}{
		{"a member of a list", map[string]string{"run-config": "[]", "rc.a": "1"}, `flag "rc.a" is part of "run-config", whose value is not a JSON object`},
		{"a member of nothing", map[string]string{"run-config": "null", "rc.a": "1"}, `flag "rc.a" is part of "run-config", whose value is not a JSON object`},
		{"a member of a number", map[string]string{"rc.a": "1", "rc.a.b": "2"}, `flag "rc.a.b" is part of "a", whose value is not a JSON object`},
		{"a whole over its parts", map[string]string{"run-config": `{"a": {"b": 1}}`, "rc.a": "2"}, `flag "rc.a" is set both as a whole and in parts: keep one`},
		{"the same twice", map[string]string{"run-config.a": "1", "rc.a": "1"}, `"rc.a" and "run-config.a" are the same part: keep one`},
		{"a member without a name", map[string]string{"rc.": "1"}, `flag "rc." does not name a member of an object: write the whole value as JSON`},
		{"adding to a list", map[string]string{"rc.a+": "1"}, `flag "rc.a+" does not name a member of an object: write the whole value as JSON`},
		{"a zero byte", map[string]string{"rc.a": "\x00"}, `flag "rc.a" has a zero byte in its value: remove it`},
		{"a long value", map[string]string{"rc.a": strings.Repeat("x", 64<<10+1)}, `flag "rc.a" has a value of 65537 bytes: at most 65536 are allowed`},
		{"a deep member", map[string]string{"rc" + strings.Repeat(".a", 17): "1"}, `flag "rc.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a" is deeper than 16 levels`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, _, err := engine.Resolve(rich(), args(tc.flags))
			if err == nil {
				t.Fatalf("Resolve = %v, want an error", got)
			}
			if diff := cmp.Diff("args: "+tc.want, err.Error()); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
		})
	}
}

// Parts of a reserved value, or of a value without members, are dropped like the whole value.
func TestPartsOfOthers(t *testing.T) {
	got, warnings, err := engine.Resolve(rich(), args(map[string]string{"secret-config.a": "1", "plain.a": "1", "x.y": "1"}))
	if err != nil || len(got) > 0 {
		t.Fatalf("Resolve = %v, %v", got, err)
	}
	want := []string{
		"args: plain.a and x.y are ignored, because engine rich 1 has no such flag",
		"args: secret-config.a is ignored, because it is ours",
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("Warnings: -want +got:\n%s", diff)
	}
}

func TestRenderSeveralValues(t *testing.T) {
	got := engine.Render(rich(), []engine.Setting{{Name: "names", Value: "a b"}, {Name: "plain", Value: "c d"}})
	if diff := cmp.Diff([]string{"--names", "a", "b", "--plain", "c d"}, got); diff != "" {
		t.Errorf("Render: -want +got:\n%s", diff)
	}
}

func TestMergeEnv(t *testing.T) {
	ours := []engine.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	got := engine.MergeEnv(ours, []engine.EnvVar{{Name: "C", Value: "3"}, {Name: "A", Value: "4"}})
	if diff := cmp.Diff([]engine.EnvVar{{Name: "A", Value: "4"}, {Name: "B", Value: "2"}, {Name: "C", Value: "3"}}, got); diff != "" {
		t.Errorf("MergeEnv: -want +got:\n%s", diff)
	}
	if ours[0].Value != "1" {
		t.Error("MergeEnv changed its input")
	}
}

func TestWithoutReserved(t *testing.T) {
	env := []engine.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	kept, warnings := engine.WithoutReserved(env, map[string]string{"A": "it is ours"})
	if diff := cmp.Diff([]engine.EnvVar{{Name: "B", Value: "2"}}, kept); diff != "" {
		t.Errorf("WithoutReserved: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"inference.engine.env: A is ignored, because it is ours"}, warnings); diff != "" {
		t.Errorf("Warnings: -want +got:\n%s", diff)
	}
}
