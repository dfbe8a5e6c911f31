// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package args

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		reason, line string
		want         map[string][]string
	}{
		{"nothing but a model", "/models", map[string][]string{}},
		{
			"flag and value apart, and together", "/models --port 5000 --host=0.0.0.0",
			map[string][]string{"port": {"5000"}, "host": {"0.0.0.0"}},
		},
		{"a short spelling", "/models -tp 2 -pp=2", map[string][]string{"tensor-parallel-size": {"2"}, "pipeline-parallel-size": {"2"}}},
		{"underscores", "/models --max_model_len 32k", map[string][]string{"max-model-len": {"32k"}}},
		{"a beginning that is unique", "/models --tensor 2", map[string][]string{"tensor-parallel-size": {"2"}}},
		{"on, off and a switch", "/models --enforce-eager --no-async-scheduling --headless", map[string][]string{
			"enforce-eager": {"true"}, "async-scheduling": {"false"}, "headless": {"true"},
		}},
		{"several values", "/models --served-model-name a b --port 1", map[string][]string{"served-model-name": {"a", "b"}, "port": {"1"}}},
		{"one that is given twice", "/models --middleware a --middleware b", map[string][]string{"middleware": {"a", "b"}}},
		{"the last one wins", "/models --port 1 --port 2", map[string][]string{"port": {"2"}}},
		{"a negative number is a value", "/models --max-model-len -1", map[string][]string{"max-model-len": {"-1"}}},
		{"keys of JSON", "/models --hf-overrides.a.b 1 --hf_overrides.c=x", map[string][]string{"hf-overrides": {`{"a":{"b":1},"c":"x"}`}}},
		{"--model", "--port 1 --model /models", map[string][]string{"port": {"1"}}},
		{"a level", "/models -O3", map[string][]string{"optimization-level": {"3"}}},
		{"a token without a value", "/models --hf-token", map[string][]string{"hf-token": {}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := Parse(strings.Fields(tc.line))
			if err != nil {
				t.Fatal(err)
			}
			if got.Model != "/models" {
				t.Errorf("model is %q", got.Model)
			}
			if diff := cmp.Diff(tc.want, got.values); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const serve = "usage: vllm serve [model_tag] [options]\nvllm serve: error: "
	for _, tc := range []struct{ reason, line, want string }{
		{
			"unknown flags, all of them", "/models --swap-space 4 --port 1 --nope",
			"usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ...\nvllm: error: unrecognized arguments: --swap-space 4 --nope",
		},
		{"a word", "/models --port abc", serve + "argument --port: invalid int value: 'abc'"},
		{"a word for a short spelling", "/models -tp two", serve + "argument --tensor-parallel-size/-tp: invalid int value: 'two'"},
		{"a fraction", "/models --watermark x", serve + "argument --watermark: invalid float value: 'x'"},
		{
			"another choice", "/models --dtype int4",
			serve + "argument --dtype: invalid choice: 'int4' (choose from 'auto', 'bfloat16', 'float', 'float16', 'float32', 'half')",
		},
		{
			"a rank that is none", "/models --max-lora-rank 24",
			serve + "argument --max-lora-rank: invalid choice: '24' (choose from 1, 8, 16, 32, 64, 128, 256, 320, 512)",
		},
		{"no JSON", "/models --hf-overrides {x", serve + "argument --hf-overrides: Value {x cannot be converted to <function loads>."},
		{
			"a size", "/models --max-num-batched-tokens 1.5K",
			serve + "argument --max-num-batched-tokens: Decimals are not allowed with binary suffixes like K. Did you mean to use 1.5k instead?",
		},
		{"a value for a bool", "/models --enforce-eager=true", serve + "argument --enforce-eager/--no-enforce-eager: ignored explicit argument 'true'"},
		{"no value", "/models --port", serve + "argument --port: expected one argument"},
		{"no value before a flag", "/models --port --headless", serve + "argument --port: expected one argument"},
		{"no values", "/models --served-model-name --headless", serve + "argument --served-model-name: expected at least one argument"},
		{"a beginning of many", "/models --node", "--node-rank"},
		{"two flags with that beginning", "/models --max-num-b 1 --max-num-s 1", serve + "ambiguous option: --max-num-s could match --max-num-scheduled-tokens, --max-num-seqs"},
		{"the model after its names", "--served-model-name a /models", "ValueError: `model` should be provided"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := Parse(strings.Fields(tc.line))
			if tc.reason == "a beginning of many" {
				// The only flag that begins so, and it needs a value.
				tc.want = serve + "argument --node-rank/-r: expected one argument"
			}
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("result %v, error\n%v\nwant\n%s", got, err, tc.want)
			}
		})
	}
}

func TestParseSize(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
	}{{"1k", 1000}, {"1K", 1024}, {"25.6k", 25600}, {"2M", 2 << 20}, {"3g", 3_000_000_000}, {"1T", 1 << 40}, {" 7 ", 7}} {
		if got, err := ParseSize(tc.text); got != tc.want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", tc.text, got, err, tc.want)
		}
	}
}
