// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/cli"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/presets"
)

var update = flag.Bool("update", false, "write the golden files")

// ran is the result of a command.
type ran struct {
	Out, Err string
	Code     int
}

// process is the World of a command.
type process struct {
	stdin    string
	presets  fs.FS
	env      map[string]string
	terminal bool
	hub      cli.Describer
}

func (p process) run(t *testing.T, args ...string) ran {
	t.Helper()
	if p.presets == nil {
		p.presets = os.DirFS("testdata/catalog")
	}
	var out, err bytes.Buffer
	code := cli.Main(t.Context(), args, cli.World{
		In: strings.NewReader(p.stdin), Out: &out, Err: &err, Getenv: func(name string) string { return p.env[name] },
		Presets: p.presets, Terminal: p.terminal,
		Hub: func(string, string) (cli.Describer, error) { return p.hub, nil },
	})
	return ran{Out: out.String(), Err: err.String(), Code: code}
}

func run(t *testing.T, args ...string) ran {
	t.Helper()
	return process{}.run(t, args...)
}

// shipped runs a command with the shipped catalogue.
func shipped(t *testing.T, args ...string) ran {
	t.Helper()
	return process{presets: presets.FS()}.run(t, args...)
}

// silentHub describes one model, or returns an error.
type silentHub struct {
	model model.Model
	notes []string
	err   error
	asked *[]string
}

func (h silentHub) Describe(_ context.Context, id string) (model.Model, []string, error) {
	*h.asked = append(*h.asked, id)
	return h.model, h.notes, h.err
}

// TestGolden pins the output for users and programs, word by word.
func TestGolden(t *testing.T) {
	tests := []struct {
		name string
		args []string
		code int
	}{
		{name: "help", args: nil},
		{name: "plan-help", args: []string{"plan", "--help"}},
		{name: "plan", args: []string{"plan", "--model", "small"}},
		{name: "plan-wide", args: []string{"plan", "--model", "small", "--cloud", "azure", "-o", "wide"}},
		{name: "plan-json", args: []string{"plan", "--model", "made-up/small-chat", "-o", "json"}},
		{name: "plan-yaml", args: []string{"plan", "--model", "tiny-chat", "-o", "yaml"}},
		{name: "plan-gated", args: []string{"plan", "--model", "large-chat", "--region", "eastus", "--explain"}},
		{name: "plan-allowed", args: []string{"plan", "--model", "large-chat", "--allow-quantization", "fp8-channel", "--cloud", "azure"}},
		{name: "plan-spot", args: []string{"plan", "--model", "small", "--capacity-type", "spot,on-demand", "--cloud", "azure"}},
		{name: "plan-spot-unpriced", args: []string{"plan", "--model", "small", "--capacity-type", "spot", "--cloud", "azure", "--region", "westeurope"}},
		{name: "plan-latency", args: []string{"plan", "--model", "small", "--optimize-for", "latency", "--max-hourly-price", "20"}},
		{name: "plan-rate", args: []string{"plan", "--model", "small", "--rate", "2.5"}},
		{name: "plan-rate-beyond", args: []string{"plan", "--model", "small", "--rate", "200"}, code: 3},
		{name: "plan-concurrency-beyond", args: []string{"plan", "--model", "small", "--concurrency", "100000", "--max-model-len", "4096"}, code: 3},
		{name: "estimate-rate", args: []string{"estimate", "--model", "small", "--gpu", "B-80", "--rate", "2.5"}},
		{name: "plan-named", args: []string{"plan", "--model", "small", "--instance-type", "standard_a24_1", "--zones", "1"}},
		{name: "plan-file", args: []string{"plan", "-f", "testdata/manifests/several.yaml"}},
		{name: "plan-file-json", args: []string{"plan", "-f", "testdata/manifests/several.yaml", "-o", "json"}},
		{name: "plan-weights", args: []string{"plan", "-f", "testdata/manifests/weights.yaml"}},
		{
			name: "plan-nodes", args: []string{
				"plan", "-f", "testdata/manifests/existing.yaml", "--nodes", "testdata/manifests/nodes.yaml", "--explain",
			},
		},
		{
			name: "plan-nodes-none", code: 3,
			args: []string{"plan", "-f", "testdata/manifests/existing-large.yaml", "--nodes", "testdata/manifests/nodes.yaml"},
		},
		{name: "plan-nodes-unknown", args: []string{"plan", "-f", "testdata/manifests/existing.yaml"}, code: 3},
		{name: "plan-nodes-file", args: []string{"plan", "--model", "small", "--nodes", "testdata/manifests/existing.yaml"}, code: 2},
		{name: "plan-nothing-fits", args: []string{"plan", "--model", "large-chat", "--accelerators", "OLD-16", "--explain"}, code: 3},
		{name: "estimate", args: []string{"estimate", "--model", "small", "--gpu", "b-80", "--concurrency", "16"}},
		{name: "estimate-json", args: []string{"estimate", "--model", "large-chat", "--gpu", "B-80", "--gpus", "4", "--dtype", "fp8", "-o", "json"}},
		{name: "estimate-not", args: []string{"estimate", "--model", "large-chat", "--gpu", "a24 24", "--tp", "2", "--enforce-eager"}},
		{name: "estimate-short", args: []string{"estimate", "--model", "small", "--gpu", "A24", "--gpus", "4", "--tp", "1", "--max-model-len", "1000"}},
		{name: "estimate-llamacpp", args: []string{"estimate", "--model", "tiny-chat", "--engine", "llamacpp", "--gpu", "OLD-16", "-o", "yaml"}},
		{name: "models", args: []string{"models"}},
		{name: "models-wide", args: []string{"models", "--gated=false", "--engine", "vllm", "-o", "wide"}},
		{name: "models-json", args: []string{"models", "LARGE", "-o", "json"}},
		{name: "skus", args: []string{"skus"}},
		{name: "skus-wide", args: []string{"skus", "--gpu", "b-80", "--usable", "--max-price", "20", "-o", "wide"}},
		{name: "skus-json", args: []string{"skus", "_1", "--region", "westeurope", "--spot", "-o", "json"}},
		{name: "gpus", args: []string{"gpus"}},
		{name: "diff", args: []string{"diff", "testdata/manifests/old.yaml", "testdata/manifests/new.yaml"}, code: 1},
		{name: "diff-json", args: []string{"diff", "testdata/manifests/old.yaml", "testdata/manifests/new.yaml", "-o", "json"}, code: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, test.args...)
			if got.Code != test.code {
				t.Errorf("exit code %d, want %d: %s", got.Code, test.code, got.Err)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
