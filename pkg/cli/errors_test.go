// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/model"
)

// TestErrors pins the messages about errors: one line each, on the error stream, with an exit code.
func TestErrors(t *testing.T) {
	tests := []struct {
		reason string
		args   string
		code   int
		want   string
	}{
		{"no such command", "buy", 2, `kubectl berth: unknown command "buy" for "kubectl berth"`},
		{"no such flag", "plan --modl x", 2, "kubectl berth plan: unknown flag: --modl; see kubectl berth plan --help"},
		{"a flag without a value", "plan --model", 2, "kubectl berth plan: flag needs an argument: --model; see kubectl berth plan --help"},
		{
			"nothing is asked for", "plan", 2,
			"kubectl berth plan: no model: name one with --model, or a manifest with -f; see kubectl berth plan --help",
		},
		{
			"an output that is none", "plan --model small -o xml", 2,
			`kubectl berth plan: --output: "xml" is not supported: use table, wide, json or yaml`,
		},
		{
			"a model that is nearly one", "plan --model small-chatt", 2,
			`kubectl berth plan: preset "small-chatt" is not in the catalogue: did you mean small-chat? (a Hugging Face id has the form ORG/NAME)`,
		},
		{
			"the hub must not be asked", "plan --model org/other --offline", 2,
			`kubectl berth plan: preset "org/other" is not in the catalogue: check its spelling, or ask the administrator to add it ` +
				`(--offline forbids queries to the hub: pass the model's config.json with --config FILE)`,
		},
		{
			"an unknown machine", "plan --model small --instance-type Standard_B80_3", 2,
			`kubectl berth plan: --instance-type: instance type "Standard_B80_3" is not in the catalogue: ` +
				`did you mean Standard_B80_1, Standard_B80_2 or Standard_B80_8?`,
		},
		{
			"an unknown engine", "plan --model small --engine vlm", 2,
			`kubectl berth plan: --engine: "vlm" is not an engine of this version: use llamacpp or vllm, or leave it out`,
		},
		{"an unknown cloud", "plan --model small --cloud moon", 2, `kubectl berth plan: --cloud: "moon" is not supported: use aws or azure`},
		{
			"an unknown region", "plan --model small --region westus", 2,
			`kubectl berth plan: --region: the catalogue has no prices for "westus": use westeurope, or add its prices with --catalog`,
		},
		{
			"a region of another cloud", "plan --model small --cloud aws --region eastus", 2,
			`kubectl berth plan: --region: the catalogue has no prices for "eastus": use us-east-1 or us-west-2, or add its prices with --catalog`,
		},
		{
			"a price that is none", "plan --model small --max-hourly-price cheap", 2,
			`kubectl berth plan: --max-hourly-price is "cheap", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
		{
			"a price that would lift the limit", "plan --model small --max-hourly-price NaN", 2,
			`kubectl berth plan: --max-hourly-price is "NaN", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
		{
			"a release without a number", "estimate --model small --gpu B-80-SXM --engine-version newest", 2,
			`kubectl berth estimate: --engine-version: "newest" is not a release: give a number such as 0.11`,
		},
		{
			"no requests", "plan --model small --rate 0", 2,
			`kubectl berth plan: --rate is "0", which is not a rate: give a number above 0 and below 1e+06, such as 2.5`,
		},
		{
			"an estimate of no requests", "estimate --model small --gpu B-80 --rate 0", 2,
			`kubectl berth estimate: --rate is 0: it must be above 0 and below 1000000`,
		},
		{
			"two loads", "estimate --model small --gpu B-80 --rate 1 --concurrency 2", 2,
			`kubectl berth estimate: --rate and --concurrency cannot be combined: keep one`,
		},
		{
			"too low a price", "plan --model small --max-hourly-price 0.5 --cloud azure", 3,
			"kubectl berth plan: the cheapest plan is 1 × Standard_A24_1 at $1.00/h, above --max-hourly-price $0.50/h: " +
				"raise the limit",
		},
		{"a number below its least", "plan --model small --concurrency -1", 2, "kubectl berth plan: --concurrency is -1: it must be at least 1"},
		{
			"an aim that is none", "plan --model small --optimize-for fun", 2,
			`kubectl berth plan: --optimize-for: "fun" is not supported: use balanced, cost, latency or throughput`,
		},
		{
			"a way to pay that is none", "plan --model small --capacity-type free", 2,
			`kubectl berth plan: --capacity-type[0] is "free": it must be reserved, on-demand or spot`,
		},
		{
			"two answers to one question", "plan --model small --instance-type a --instance-types b", 2,
			"kubectl berth plan: --instance-types and --instance-type cannot be combined: keep one",
		},
		{
			"a flag beside a manifest", "plan -f testdata/manifests/old.yaml --concurrency 3", 2,
			"kubectl berth plan: --concurrency works only with --model: with -f, set inference.objectives.concurrency in the file",
		},
		{
			"a flag of the engine that is none", "plan --model small --engine-arg max-num-seqs=many", 2,
			`kubectl berth plan: --engine-arg: flag "max-num-seqs" of engine vllm needs a whole number, not "many"`,
		},
		{"no such file", "plan -f nothing.yaml", 2, `kubectl berth plan: -f: there is no file "nothing.yaml"`},
		{"a directory in place of a file", "plan -f testdata", 2, `kubectl berth plan: -f: "testdata" cannot be read: is a directory`},
		{
			"a catalogue that is not there", "models --catalog nowhere", 2,
			`kubectl berth models: --catalog: "nowhere" is not a directory: name a directory with catalogue files`,
		},
		{
			"no GPU", "estimate --model small", 2,
			"kubectl berth estimate: no GPU: name one with --gpu; `kubectl berth gpus` lists the names",
		},
		{
			"no model", "estimate --gpu B-80", 2,
			"kubectl berth estimate: no model: name one with --model, or its config.json with --config; see kubectl berth estimate --help",
		},
		{
			"an unknown GPU", "estimate --model small --gpu B-81", 2,
			`kubectl berth estimate: --gpu: "B-81" is not in the catalogue: did you mean B-80?`,
		},
		{
			"GPUs that are left over", "estimate --model small --gpu B-80 --gpus 6 --tp 4", 2,
			"kubectl berth estimate: --gpus is 6, which is not a multiple of tp × pp × dp = 4 × 1 × 1 = 4",
		},
		{
			"more stages than layers", "estimate --model small --gpu B-80 --pp 64", 2,
			"kubectl berth estimate: --pp is 64, but the model has only 32 layers: each stage needs at least one layer",
		},
		{
			"machines that GPUs do not fill", "estimate --model small --gpu B-80 --gpus 4 --nodes 3", 2,
			"kubectl berth estimate: --nodes is 3, which does not divide 4 GPUs",
		},
		{"no GPUs", "estimate --model small --gpu B-80 --gpus 0", 2, "kubectl berth estimate: --gpus is 0: it must be from 1 to 4096"},
		{
			"a share above one", "estimate --model small --gpu B-80 --gpu-memory-utilization 1.5", 2,
			"kubectl berth estimate: --gpu-memory-utilization is 1.5: it must be above 0 and at most 1",
		},
		{
			"an unknown format", "estimate --model small --gpu B-80 --dtype int3", 2,
			`kubectl berth estimate: --dtype: "int3" is not a format of weights: use fp4, int4, awq, bf16, fp16, fp8, fp8-channel, ` +
				`gptq-int4, int4-experts, mxfp4, nvfp4 or w4a16`,
		},
		{
			"an unknown cache", "estimate --model small --gpu B-80 --kv-dtype fp2", 2,
			`kubectl berth estimate: --kv-dtype: no prediction for engine vllm with a KV cache of type "fp2": use auto or fp8`,
		},
		{
			"an unknown engine of an estimate", "estimate --model small --gpu B-80 --engine sg", 2,
			`kubectl berth estimate: --engine: "sg" is not an engine of the catalogue: use llamacpp or vllm`,
		},
		{"an unknown GPU of machines", "skus --gpu H1", 2, "kubectl berth skus: --gpu: \"H1\" is not in the catalogue: `kubectl berth gpus` lists the names"},
		{"one manifest for two", "diff a.yaml", 2, "kubectl berth diff: accepts 2 arg(s), received 1"},
		{
			"two manifests from one stream", "diff - -", 2,
			"kubectl berth diff: only one of the manifests can be the standard input: name a file for the other",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			want := ran{Err: test.want + "\n", Code: test.code}
			if diff := cmp.Diff(want, run(t, strings.Fields(test.args)...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBadManifests pins the messages about files: place, field and expected value.
func TestBadManifests(t *testing.T) {
	workspace := func(text string) string {
		return "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: chat, namespace: team-a}\n" + text
	}
	const at = "standard input, document 1 (Workspace team-a/chat): "
	tests := []struct{ reason, file, want string }{
		{"nothing", "", "standard input: has no Workspace: write one with apiVersion kaito.sh/v1beta1 and kind Workspace"},
		{"no YAML", "a: [", "standard input, document 1: is not YAML (line 1: did not find expected node content): correct it"},
		{"a key twice", workspace("suspend: true\nsuspend: false"), `standard input, document 1: is not YAML (line 5: key "suspend" already set in map): correct it`},
		{"no object", "just text", "standard input, document 1: is not a Kubernetes object: write apiVersion, kind and the object's fields"},
		{"no kind", "inference: {}", "standard input, document 1: kind is missing: write apiVersion kaito.sh/v1beta1 and kind Workspace"},
		{
			"a version that does not exist", "apiVersion: kaito.sh/v2\nkind: Workspace",
			`standard input, document 1: apiVersion is "kaito.sh/v2": it must be kaito.sh/v1beta1`,
		},
		{
			"a field in the wrong case, in the second document", workspace("inference: {preset: {name: small}}") + "\n---\n" +
				strings.Replace(workspace("inference: {objectives: {maxModellen: 5}}"), "chat", "other", 1),
			"standard input, document 2 (Workspace team-a/other): inference.objectives.maxModellen is not a field: did you mean maxModelLen?",
		},
		{
			"a spec, as most objects have one", workspace("spec: {}"),
			at + "spec is not a field: use one of apiVersion, inference, kind, metadata, resource, status, suspend, tuning",
		},
		{"a text for a number", workspace(`resource: {count: "2"}`), at + `resource.count is "2": it must be a whole number`},
		{"a number for a text", workspace("inference: {engine: {args: {max-num-seqs: 8}}}"), at + "inference.engine.args.max-num-seqs is 8: it must be a string: put it in quotes"},
		{"a fraction", workspace("inference: {objectives: {concurrency: 1.5}}"), at + "inference.objectives.concurrency is 1.5: it must be a whole number"},
		{"a number too large", workspace("inference: {objectives: {concurrency: 5000000000}}"), at + "inference.objectives.concurrency is 5000000000: it must be a whole number"},
		{"a text for a list", workspace("resource: {placement: {zones: a}}"), at + `resource.placement.zones is "a": it must be a list`},
		{"a list for fields", workspace("inference: []"), at + "inference is a list: it must be a mapping of fields"},
		{"a number in a list of texts", workspace("resource: {placement: {zones: [1]}}"), at + "resource.placement.zones[0] is 1: it must be a string: put it in quotes"},
		{"a text for a truth", workspace(`suspend: "yes"`), at + `suspend is "yes": it must be true or false`},
		{"an aim that is none", workspace("inference: {objectives: {optimizeFor: Fun}}"), at + `inference.objectives.optimizeFor is "Fun": it must be Balanced, Cost, Latency or Throughput`},
		{"no sequence", workspace("inference: {objectives: {concurrency: 0}}"), at + "inference.objectives.concurrency is 0: it must be at least 1"},
		{"no machine", workspace("resource: {count: 0}"), at + "resource.count is 0: it must be between 1 and 1000"},
		{
			"a time that is none", workspace("inference: {objectives: {timeToFirstToken: soon}}"),
			at + `cannot be read: time: invalid duration "soon"`,
		},
		{"a time that was", workspace("inference: {objectives: {timeToFirstToken: -1s}}"), at + "inference.objectives.timeToFirstToken is -1s: it must be above zero, such as 100ms"},
		{"one name twice", workspace("inference: {preset: {name: small}}") + "\n---\n" + workspace("{}"), "standard input, document 2: is not YAML"},
		{
			"an unknown model", workspace("inference: {preset: {name: small-chatt}}"),
			`standard input, Workspace team-a/chat: preset "small-chatt" is not in the catalogue: did you mean small-chat? (a Hugging Face id has the form ORG/NAME)`,
		},
		{
			"tuning", workspace("tuning: {method: lora, preset: {name: small}}"),
			"standard input, Workspace team-a/chat: this version does not support tuning, so nothing is bought: " +
				"delete this Workspace, or keep it until you install a version with tuning",
		},
		{
			"a template that is none", workspace("inference: {template: {spec: {containers: 5}}}"),
			"standard input, Workspace team-a/chat: inference.template cannot be read: json: cannot unmarshal number into Go struct field " +
				"PodSpec.spec.containers of type []v1.Container",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := process{stdin: test.file}.run(t, "plan", "-f", "-")
			if got.Code == 0 || got.Out != "" || strings.Count(got.Err, "\n") != 1 {
				t.Errorf("ended with %d, %d lines of errors and %q, want one line of errors", got.Code, strings.Count(got.Err, "\n"), got.Out)
			}
			text := strings.TrimPrefix(strings.TrimSpace(got.Err), "kubectl berth plan: ")
			if test.reason == "one name twice" {
				text = text[:min(len(text), len(test.want))]
			}
			if diff := cmp.Diff(test.want, text); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHub checks that only models outside the catalogue need the hub.
func TestHub(t *testing.T) {
	described := model.Model{
		Name: "other", HubID: "org/Other", Context: 8192,
		Shape: model.Shape{Layers: 32, Hidden: 4096, Intermediate: 14336, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 128256},
		Artifacts: []model.Artifact{{
			Engine: "vllm", Repo: "org/Other", Revision: "main", Quantization: "bf16", Native: true,
		}},
	}
	tests := []struct {
		reason string
		hub    silentHub
		model  string
		asked  []string
		code   int
		out    string
		err    string
	}{
		{reason: "the catalogue has it", model: "made-up/Small-Chat", out: "made-up/Small-Chat: 1 × "},
		{
			reason: "the hub has it; its weights have the size that follows from the shape", hub: silentHub{model: described, notes: []string{"something was assumed"}},
			model: "org/Other", asked: []string{"org/Other"}, out: "org/Other: 1 × ",
		},
		{
			reason: "the hub is away, and the catalogue has one that is spelled alike", hub: silentHub{err: errors.New("the hub is away")},
			model: "org/small-chatt", asked: []string{"org/small-chatt"}, code: 4,
			err: "kubectl berth plan: the hub is away; the catalogue has small-chat\n",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var asked []string
			test.hub.asked = &asked
			got := process{hub: test.hub}.run(t, "plan", "--model", test.model)
			if diff := cmp.Diff(ran{Err: test.err, Code: test.code}, ran{Err: got.Err, Code: got.Code}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.asked, asked); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
			if len(test.hub.notes) > 0 && !strings.Contains(got.Out, "  ! "+test.hub.notes[0]) {
				t.Errorf("%q does not tell what was assumed", got.Out)
			}
			if !strings.HasPrefix(got.Out, test.out) || strings.Contains(got.Out, " 0.00 GiB") {
				t.Errorf("out is %q, want it to begin with %q and to state the weights' size", got.Out, test.out)
			}
		})
	}
}

// TestConfig plans for a model that only a file describes.
func TestConfig(t *testing.T) {
	file := func(t *testing.T, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := "testdata/manifests/config.json"
	named := run(t, "plan", "--config", good, "--model", "org/Mine", "--offline")
	if named.Code != 0 || !strings.HasPrefix(named.Out, "org/Mine: 1 × Standard_A24_1") || !strings.Contains(named.Out, "15.0 GiB (estimated)") {
		t.Errorf("a good config: %+v", named)
	}
	for _, test := range []struct{ reason, text, want string }{
		{"no JSON", "{", "is not JSON"},
		{"no layers", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 0}`, "num_hidden_layers"},
		{"too many layers", `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1000000000}`, "num_hidden_layers"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			path := file(t, test.text)
			got := run(t, "estimate", "--config", path, "--gpu", "B-80")
			if got.Code != 2 || strings.Count(got.Err, "\n") != 1 || !strings.Contains(got.Err, path) || !strings.Contains(got.Err, test.want) {
				t.Errorf("ended with %d and %q, want one line with %q and the file", got.Code, got.Err, test.want)
			}
		})
	}
	if got := run(t, "plan", "--config", "absent.json"); got.Code != 2 || !strings.Contains(got.Err, `--config: there is no file "absent.json"`) {
		t.Errorf("an absent config: %+v", got)
	}
}
