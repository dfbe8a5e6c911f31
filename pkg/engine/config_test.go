// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/engine"
)

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		reason, in string
		want       engine.Config
	}{
		{reason: "an empty file asks for nothing", in: "", want: engine.Config{}},
		{reason: "a file of comments asks for nothing", in: "# nothing\n", want: engine.Config{}},
		{reason: "null asks for nothing", in: "null\n", want: engine.Config{}},
		{
			reason: "a file as existing manifests have it",
			in:     "kv_cache_cpu_memory_utilization: 0.5\nmax_probe_steps: 6\nvllm:\n  cpu-offload-gb: 0\n  gpu-memory-utilization: 0.95\n  max-model-len: 131072\n  enable-x: true\n",
			want: engine.Config{
				"":     {"kv_cache_cpu_memory_utilization": "0.5", "max_probe_steps": "6"},
				"vllm": {"cpu-offload-gb": "0", "gpu-memory-utilization": "0.95", "max-model-len": "131072", "enable-x": "true"},
			},
		},
		{
			reason: "values keep their spelling: YAML's own types would change 0.90, 010, on and 1e3",
			in:     "llamacpp:\n  a: 0.90\n  b: 010\n  c: on\n  d: 1e3\n  e: 0x10\n  f: 2026-01-02\n",
			want: engine.Config{"llamacpp": {
				"a": "0.90", "b": "010", "c": "on", "d": "1e3", "e": "0x10", "f": "2026-01-02",
			}},
		},
		{
			reason: "quotes and blocks are read",
			in:     "llamacpp:\n  a: \"x\\ty\"\n  b: |\n    line 1\n    line 2\n",
			want:   engine.Config{"llamacpp": {"a": "x\ty", "b": "line 1\nline 2\n"}},
		},
		{reason: "a flag without a value", in: "llamacpp:\n  jinja:\n  mlock: ~\n", want: engine.Config{"llamacpp": {"jinja": "", "mlock": ""}}},
		{reason: "a section without flags", in: "vllm:\n", want: engine.Config{"vllm": {}}},
		{reason: "JSON is YAML", in: `{"vllm":{"a":1}}`, want: engine.Config{"vllm": {"a": "1"}}},
		{
			reason: "aliases are followed",
			in:     "vllm: &x\n  a: &y 1\n  b: *y\nllamacpp: *x\n",
			want:   engine.Config{"vllm": {"a": "1", "b": "1"}, "llamacpp": {"a": "1", "b": "1"}},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := engine.ParseConfig([]byte(tc.in))
			if err != nil {
				t.Fatalf("ParseConfig(%q): %v", tc.in, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ParseConfig(%q): -want +got:\n%s", tc.in, diff)
			}
		})
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, tc := range []struct{ reason, in, want string }{
		{
			reason: "no YAML", in: "vllm:\n\ta: 1\n",
			want: `inference_config.yaml is not YAML (line 2: found character that cannot start any token): correct it`,
		},
		{
			reason: "a list at the root", in: "- a\n",
			want: `inference_config.yaml, line 1, is a list: write sections of flags, such as "llamacpp:" with "name: value" lines below it`,
		},
		{
			reason: "a bare word at the root", in: "llamacpp\n",
			want: `inference_config.yaml, line 1, is a single value: write sections of flags, such as "llamacpp:" with "name: value" lines below it`,
		},
		{
			reason: "a list for a section", in: "llamacpp:\n- ctx-size\n",
			want: `inference_config.yaml, line 2, has a list at "llamacpp": write a section of flags`,
		},
		{
			reason: "a list for a flag", in: "llamacpp:\n  ctx-size: [1, 2]\n",
			want: `inference_config.yaml, line 2, has a list at flag "ctx-size" of section "llamacpp": write a single value; put JSON in quotes`,
		},
		{
			reason: "a mapping for a flag", in: "vllm:\n  compilation-config: {level: 3}\n",
			want: `inference_config.yaml, line 2, has a mapping at flag "compilation-config" of section "vllm": write a single value; put JSON in quotes`,
		},
		{
			reason: "a section twice", in: "vllm:\n  a: 1\nvllm:\n  b: 1\n",
			want: `inference_config.yaml, line 3, names "vllm" twice at the top level: keep one`,
		},
		{
			reason: "a flag twice", in: "vllm:\n  a: 1\n  a: 2\n",
			want: `inference_config.yaml, line 3, names "a" twice at section "vllm": keep one`,
		},
		{
			reason: "a list for a key", in: "vllm:\n  ? [a]\n  : 1\n",
			want: `inference_config.yaml, line 2, has an invalid key at section "vllm": write "name: value"`,
		},
		{
			reason: "an empty key", in: "vllm:\n  \"\": 1\n",
			want: `inference_config.yaml, line 2, has an invalid key at section "vllm": write "name: value"`,
		},
		{
			reason: "two documents", in: "vllm: {}\n---\nvllm: {}\n",
			want: `inference_config.yaml holds more than one YAML document: keep one`,
		},
		{
			reason: "a value that no command line holds", in: "vllm:\n  a: " + strings.Repeat("x", 64<<10+1) + "\n",
			want: `inference_config.yaml, line 2, has 65537 bytes at flag "a" of section "vllm": at most 65536 are allowed`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := engine.ParseConfig([]byte(tc.in))
			if err == nil {
				t.Fatalf("ParseConfig(%q) = %v, want an error", tc.in, got)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("ParseConfig(%q): -want +got:\n%s", tc.in, diff)
			}
		})
	}
}

func TestForeign(t *testing.T) {
	config := engine.Config{
		"":         {"max_probe_steps": "6"},
		"llamacpp": {"ctx-size": "1"},
		"empty":    {},
		"vllm":     {"swap-space": "4", "cpu-offload-gb": "0"},
	}
	want := []string{
		`inference_config.yaml: max_probe_steps is ignored, because engine llamacpp has no such setting`,
		`inference_config.yaml: section "vllm" (cpu-offload-gb and swap-space) is ignored, because engine llamacpp serves the model: put flags of that engine into section "llamacpp"`,
	}
	if diff := cmp.Diff(want, config.Foreign("llamacpp")); diff != "" {
		t.Errorf("Foreign: -want +got:\n%s", diff)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		"", "vllm:\n  a: 1\n", "llamacpp: {ctx-size: 4096, jinja: true}\n", "a: &a\n  b: *a\n", "a: &a [*a]\n",
		"{\"vllm\": {\"a\": null}}", "vllm:\n  <<: {a: 1}\n", "? [a]\n: b\n", "a: !!binary aGk=\n", "---\n---\n", "%YAML 1.1\n---\na: b\n",
		"vllm: !!map {a: !!str 1}\n", "\ufeffvllm: {}\n", "vllm:\n\ta: 1\n", "*a: b\n", "&a x: *a\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := engine.ParseConfig(in)
		if err != nil {
			if got != nil {
				t.Errorf("ParseConfig(%q) returns %v beside the error %v", in, got, err)
			}
			if message := err.Error(); strings.ContainsAny(message, "\n\r") || !strings.HasPrefix(message, "inference_config.yaml") {
				t.Errorf("ParseConfig(%q): error is not one sentence about the file: %q", in, message)
			}
			return
		}
		again, err := engine.ParseConfig(in)
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("ParseConfig(%q) gives %v, then %v (%v)", in, got, again, err)
		}
		for _, warning := range got.Foreign("llamacpp") {
			if len([]rune(warning)) > 512 || strings.ContainsAny(warning, "\n\r") {
				t.Errorf("ParseConfig(%q): warning is not one short sentence: %q", in, warning)
			}
		}
	})
}
