// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
)

func toy() catalog.Engine {
	return catalog.Engine{
		Name:    "toy",
		Version: "1.2.3",
		Reserved: []catalog.Reservation{
			{Reason: "the Service relies on it", Flags: []string{"host", "port"}},
			{Reason: "it prints and exits", Flags: []string{"help"}},
		},
		Flags: map[string]catalog.Flag{
			"help":     {Kind: catalog.FlagBool, Aliases: []string{"h"}},
			"host":     {Kind: catalog.FlagString},
			"port":     {Kind: catalog.FlagInt},
			"ctx-size": {Kind: catalog.FlagInt, Aliases: []string{"c"}},
			"layers":   {Kind: catalog.FlagInt, Values: []string{"auto", "all"}},
			"temp":     {Kind: catalog.FlagFloat},
			"mode":     {Kind: catalog.FlagString, Values: []string{"on", "off"}},
			"template": {Kind: catalog.FlagString},
			"kwargs":   {Kind: catalog.FlagJSON},
			"jinja":    {Kind: catalog.FlagBool, Negations: []string{"no-jinja", "nj"}},
			"metrics":  {Kind: catalog.FlagBool},
		},
	}
}

func args(flags map[string]string) engine.Source {
	return engine.Source{Name: "args", Flags: flags}
}

func TestResolve(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		sources  []engine.Source
		want     []engine.Setting
		warnings []string
	}{
		{reason: "no source asks for nothing", want: []engine.Setting{}},
		{
			reason:  "every kind, sorted by name",
			sources: []engine.Source{args(map[string]string{"temp": "0.70", "ctx-size": "4096", "mode": "off", "kwargs": `{"a":1}`, "template": "-x", "metrics": ""})},
			want: []engine.Setting{
				{Name: "ctx-size", Value: "4096"},
				{Name: "kwargs", Value: `{"a":1}`},
				{Name: "metrics", Value: "true"},
				{Name: "mode", Value: "off"},
				{Name: "temp", Value: "0.70"},
				{Name: "template", Value: "-x"},
			},
		},
		{
			reason:  "a word beside numbers",
			sources: []engine.Source{args(map[string]string{"layers": "all"})},
			want:    []engine.Setting{{Name: "layers", Value: "all"}},
		},
		{
			reason:  "dashes in front, underscores and aliases mean the same flag",
			sources: []engine.Source{args(map[string]string{"--ctx_size": "1"}), args(map[string]string{"-c": "2"})},
			want:    []engine.Setting{{Name: "ctx-size", Value: "2"}},
		},
		{
			reason:  "the later source wins, flag by flag",
			sources: []engine.Source{args(map[string]string{"ctx-size": "1", "temp": "0"}), args(map[string]string{"ctx-size": "2"})},
			want:    []engine.Setting{{Name: "ctx-size", Value: "2"}, {Name: "temp", Value: "0"}},
		},
		{
			reason:  "a negation switches off",
			sources: []engine.Source{args(map[string]string{"no-jinja": "", "metrics": "False"})},
			want:    []engine.Setting{{Name: "jinja", Value: "false"}, {Name: "metrics", Value: "false"}},
		},
		{
			reason:  "a negated negation switches on",
			sources: []engine.Source{args(map[string]string{"nj": "false"})},
			want:    []engine.Setting{{Name: "jinja", Value: "true"}},
		},
		{
			reason:   "flags of another version are dropped with a warning",
			sources:  []engine.Source{args(map[string]string{"swap-space": "4", "mlock": "true", "temp": "1"})},
			want:     []engine.Setting{{Name: "temp", Value: "1"}},
			warnings: []string{"args: mlock and swap-space are ignored, because engine toy 1.2.3 has no such flag"},
		},
		{
			reason:  "flags that others rely on are dropped with the reason",
			sources: []engine.Source{args(map[string]string{"port": "80", "host": "::1", "h": ""})},
			want:    []engine.Setting{},
			warnings: []string{
				"args: h is ignored, because it prints and exits",
				"args: host and port are ignored, because the Service relies on it",
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, warnings, err := engine.Resolve(toy(), tc.sources...)
			if err != nil {
				t.Fatalf("Resolve: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, warnings); diff != "" {
				t.Errorf("Resolve warns: -want +got:\n%s", diff)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason string
		flags  map[string]string
		want   string
	}{
		{"a word for a number", map[string]string{"ctx-size": "big"}, `args: flag "ctx-size" of engine toy needs a whole number, not "big"`},
		{"a fraction for a whole number", map[string]string{"c": "1.5"}, `args: flag "c" of engine toy needs a whole number, not "1.5"`},
		{"a number that the engine cannot hold", map[string]string{"c": "3000000000"}, `args: flag "c" of engine toy needs a whole number, not "3000000000"`},
		{"the words that are possible", map[string]string{"layers": "most"}, `args: flag "layers" of engine toy needs a whole number or one of auto, all, not "most"`},
		{"a word for a float", map[string]string{"temp": "hot"}, `args: flag "temp" of engine toy needs a number, not "hot"`},
		{"infinity", map[string]string{"temp": "Inf"}, `args: flag "temp" of engine toy needs a number, not "Inf"`},
		{"a value outside the enumeration", map[string]string{"mode": "maybe"}, `args: flag "mode" of engine toy must be one of on, off, not "maybe"`},
		{"no value", map[string]string{"template": ""}, `args: flag "template" of engine toy needs a value`},
		{"no value of an enumeration", map[string]string{"mode": ""}, `args: flag "mode" of engine toy needs a value, for example on, off`},
		{"broken JSON", map[string]string{"kwargs": "{a:1}"}, `args: flag "kwargs" of engine toy needs JSON, not "{a:1}"`},
		{"a bool with a number", map[string]string{"jinja": "2"}, `args: flag "jinja" of engine toy must be true or false, not "2"`},
		{"a zero byte", map[string]string{"template": "a\x00b"}, `args: flag "template" of engine toy has a zero byte in its value: remove it`},
		{"one flag under two names", map[string]string{"c": "1", "ctx-size": "2"}, `args: "c" and "ctx-size" are the same flag: keep one`},
		{
			"a value that no command line holds",
			map[string]string{"template": strings.Repeat("x", 64<<10+1)},
			`args: flag "template" of engine toy has a value of 65537 bytes: at most 65536 are allowed`,
		},
		{
			"a long value is quoted in part",
			map[string]string{"ctx-size": strings.Repeat("x", 100)},
			`args: flag "ctx-size" of engine toy needs a whole number, not "` + strings.Repeat("x", 62) + `…"`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, _, err := engine.Resolve(toy(), args(tc.flags))
			if err == nil {
				t.Fatalf("Resolve = %v, want an error", got)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("Resolve: -want +got:\n%s", diff)
			}
		})
	}
}

// The status holds 512 characters of a warning, so no warning is longer, whatever a user writes.
func TestWarningsAreShort(t *testing.T) {
	flags := map[string]string{}
	for i := range 64 {
		flags[fmt.Sprintf("%02d", i)+strings.Repeat("ü", 200)] = "\n"
	}
	_, warnings, err := engine.Resolve(toy(), args(flags))
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 {
		t.Fatalf("64 unknown flags give %d warnings, want 1", len(warnings))
	}
	if n := len([]rune(warnings[0])); n > 512 {
		t.Errorf("warning has %d characters, want at most 512: %s", n, warnings[0])
	}
	if !strings.Contains(warnings[0], "58 more") {
		t.Errorf("warning does not count what it leaves out: %s", warnings[0])
	}
}

func TestMergeAndRender(t *testing.T) {
	ours := []engine.Setting{{Name: "host", Value: "0.0.0.0"}, {Name: "ctx-size", Value: "8192"}, {Name: "metrics", Value: "true"}, {Name: "jinja", Value: "true"}}
	for _, tc := range []struct {
		reason string
		users  []engine.Setting
		want   []string
	}{
		{"without a user's flags", nil, []string{"--host", "0.0.0.0", "--ctx-size", "8192", "--metrics", "--jinja"}},
		{
			"the user's value takes our place, the rest follows",
			[]engine.Setting{{Name: "ctx-size", Value: "4096"}, {Name: "temp", Value: "0"}},
			[]string{"--host", "0.0.0.0", "--ctx-size", "4096", "--metrics", "--jinja", "--temp", "0"},
		},
		{
			"switching off takes the negation, or nothing where there is none",
			[]engine.Setting{{Name: "jinja", Value: "false"}, {Name: "metrics", Value: "false"}},
			[]string{"--host", "0.0.0.0", "--ctx-size", "8192", "--no-jinja"},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, engine.Render(toy(), engine.Merge(ours, tc.users))); diff != "" {
				t.Errorf("Render: -want +got:\n%s", diff)
			}
		})
	}
}

func TestServedNames(t *testing.T) {
	for _, tc := range []struct {
		reason string
		model  model.Model
		set    string
		want   []string
	}{
		{
			"the basename of the id comes first, the id last",
			model.Model{HubID: "Org/Model-It", Aliases: []string{"model-instruct"}},
			"",
			[]string{"model-it", "model-instruct", "Org/Model-It"},
		},
		{
			"a set's name comes before all",
			model.Model{HubID: "Org/Model-It"},
			"my-set",
			[]string{"my-set", "model-it", "Org/Model-It"},
		},
		{
			"nothing is listed twice",
			model.Model{HubID: "model", Aliases: []string{"model"}},
			"model",
			[]string{"model"},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, engine.ServedNames(tc.model, tc.set)); diff != "" {
				t.Errorf("ServedNames: -want +got:\n%s", diff)
			}
		})
	}
}

func TestWithoutPrefix(t *testing.T) {
	env := []engine.EnvVar{{Name: "B", Value: "1"}, {Name: "X_PORT", Value: "1"}, {Name: "A", Value: "2"}, {Name: "X_HOST"}}
	kept, warnings := engine.WithoutPrefix(env, "X_")
	if diff := cmp.Diff([]engine.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "2"}}, kept); diff != "" {
		t.Errorf("WithoutPrefix: -want +got:\n%s", diff)
	}
	want := []string{"inference.engine.env: X_PORT and X_HOST are ignored, because variables that start with X_ set flags: set them in inference.engine.args"}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("WithoutPrefix warns: -want +got:\n%s", diff)
	}
}
