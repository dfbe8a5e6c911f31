// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/presets"
)

var update = flag.Bool("update", false, "write the golden files")

// loaded loads the catalogue once. That is safe, because nobody can change it.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

func presetCatalog(t testing.TB) (*catalog.Catalog, catalog.Engine) {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	data, found := all.Engine(vllm.Name)
	if !found {
		t.Fatal("the presets have no engine vllm")
	}
	return all, data
}

// layout spreads a model over the GPUs of one machine.
type layout struct {
	name                   string
	tensor, pipeline, data int
	capability             string
}

// layouts are one GPU, tensor parallelism over several, replicas of both, and stages.
var layouts = []layout{
	{"one-t4", 1, 1, 1, "7.5"},
	{"one-h100", 1, 1, 1, "9.0"},
	{"tensor-8", 8, 1, 1, "9.0"},
	{"tensor-2-data-4", 2, 1, 4, "9.0"},
	{"tensor-2-pipeline-2", 2, 2, 1, "8.0"},
}

// artifact returns the first form of the weights for vLLM.
func artifact(m model.Model) *model.Artifact {
	at := slices.IndexFunc(m.Artifacts, func(a model.Artifact) bool { return a.Engine == vllm.Name })
	if at < 0 {
		return nil
	}
	return &m.Artifacts[at]
}

func presetInput(data catalog.Engine, m model.Model, l layout) engine.Input {
	plan := planner.Plan{
		Nodes: 1, GPUsPerNode: l.tensor * l.pipeline * l.data, TensorParallel: l.tensor, PipelineParallel: l.pipeline,
		DataParallel: l.data, Artifact: artifact(m), MaxModelLen: min(m.Context, 32768), Concurrency: 16, MaxNumSeqs: 256,
		MaxBatchedTokens: 8192, GPUMemoryUtilization: 0.92, ComputeCapability: l.capability,
		ExpertParallel: m.Shape.MoE != nil && l.data > 1,
	}
	if l.pipeline > 1 {
		first := m.Shape.Layers/2 + 1
		plan.StageLayers = []int{first, m.Shape.Layers - first}
	}
	return engine.Input{
		Data: data, Model: m, Plan: plan, ModelDir: "/models", CacheDir: "/tmp/.cache",
		ServedNames: engine.ServedNames(m, ""), Port: 5000, Drain: 110 * time.Second, AllowRemoteCode: true,
	}
}

// families returns the golden files, each with one model of every kind in a family.
func families() map[string][]string {
	return map[string][]string{
		"cohere":   {"c4ai-command-a-03-2025"},
		"deepseek": {"deepseek-v3-0324", "deepseek-r1-distill-llama-8b", "deepseek-v4-flash"},
		"falcon":   {"falcon3-7b-instruct"},
		"gemma":    {"gemma-2-9b-it", "gemma-4-31b-it"},
		"glm":      {"glm-4.5-air", "glm-5.2"},
		"gpt-oss":  {"gpt-oss-120b"},
		"granite":  {"granite-4.1-8b"},
		"kimi":     {"kimi-k2.6"},
		"llama":    {"llama-3.3-70b-instruct", "llama-4-scout-17b-16e-instruct"},
		"minimax":  {"minimax-m2"},
		"mistral":  {"mistral-nemo-instruct-2407", "ministral-3-8b-instruct-2512"},
		"nemotron": {"nvidia-nemotron-nano-9b-v2"},
		"olmo":     {"olmo-2-1124-7b-instruct"},
		"phi":      {"phi-4"},
		"qwen2.5":  {"qwen2.5-7b-instruct"},
		"qwen3.5":  {"qwen3.5-35b-a3b"},
		"qwen3":    {"qwen3-30b-a3b"},
		"smollm":   {"smollm2-1.7b-instruct"},
	}
}

func TestGolden(t *testing.T) {
	all, data := presetCatalog(t)
	for family, names := range families() {
		t.Run(family, func(t *testing.T) {
			var text strings.Builder
			for _, name := range names {
				m, err := all.ResolveModel(name)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range layouts {
					write(t, &text, name+" "+l.name, presetInput(data, m, l))
				}
			}
			golden(t, family, text.String())
		})
	}
}

func TestGoldenAdapters(t *testing.T) {
	all, data := presetCatalog(t)
	m, err := all.ResolveModel("phi-4")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	write(t, &text, "phi-4 with adapters", withAdapters(presetInput(data, m, layouts[1])))
	golden(t, "adapters", text.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run the test with -update to write it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", path, diff)
	}
}

// write writes a command for readers: one flag per line.
func write(t *testing.T, text *strings.Builder, title string, in engine.Input) {
	t.Helper()
	got, err := vllm.Command(in)
	if err != nil {
		t.Fatalf("%s: %v", title, err)
	}
	fmt.Fprintf(text, "# %s\n", title)
	for i, arg := range got.Args {
		if i > 0 && strings.HasPrefix(arg, "--") {
			text.WriteString("\n")
		} else if i > 0 {
			text.WriteString(" ")
		}
		text.WriteString(arg)
	}
	text.WriteString("\n")
	for _, v := range got.Env {
		fmt.Fprintf(text, "env %s=%s\n", v.Name, v.Value)
	}
	fmt.Fprintf(text, "health %s, kv events %d, shared memory %d GiB\n", got.HealthPath, got.KVEventsPort, got.SharedMemoryGiB)
	fmt.Fprintf(text, "weights %v, others %v, except %v\n", got.Weights.Weights, got.Weights.Others, got.Weights.Except)
	for _, w := range got.Warnings {
		fmt.Fprintf(text, "warning %s\n", w)
	}
	text.WriteString("\n")
}

// Everything for vLLM in the catalogue renders with flags of this version, so the table in the presets and the code
// agree.
func TestEveryPresetRenders(t *testing.T) {
	all, data := presetCatalog(t)
	rendered := 0
	for _, m := range all.Models() {
		for _, l := range layouts {
			if artifact(m) == nil {
				continue
			}
			in := presetInput(data, m, l)
			got, err := vllm.Command(in)
			if err != nil {
				t.Errorf("%s on %s: %v", m.Name, l.name, err)
				continue
			}
			rendered++
			if len(got.Warnings) > 0 {
				t.Errorf("%s on %s warns without a user: %v", m.Name, l.name, got.Warnings)
			}
			for _, problem := range foreign(data, got.Args) {
				t.Errorf("%s on %s: %s", m.Name, l.name, problem)
			}
		}
	}
	if rendered == 0 {
		t.Error("no preset has weights for vllm")
	}
}

// The server accepts the values of the flags that artifacts require.
func TestArtifactFlagsAreLegal(t *testing.T) {
	all, data := presetCatalog(t)
	checked := 0
	for _, m := range all.Models() {
		for _, a := range m.Artifacts {
			flags := map[string]string{}
			for _, f := range a.Flags {
				flags[f.Name] = f.Value
			}
			if a.Engine != vllm.Name || len(flags) == 0 {
				continue
			}
			checked++
			_, warnings, err := engine.Resolve(data, engine.Source{Name: "flags", Flags: flags})
			if err != nil || len(warnings) > 0 {
				t.Errorf("%s, %s: %v %v", m.Name, a.Repo, err, warnings)
			}
		}
	}
	if checked == 0 {
		t.Error("no artifact has flags")
	}
}

// foreign lists the arguments that the catalogue does not explain: each one must be a flag, or follow a flag with
// values.
func foreign(data catalog.Engine, args []string) []string {
	negations := map[string]catalog.Flag{}
	for _, f := range data.Flags {
		for _, negation := range f.Negations {
			negations[negation] = f
		}
	}
	var problems []string
	room := 1 // the model
	for _, arg := range args {
		name, isFlag := strings.CutPrefix(arg, "--")
		f, known := data.Flags[name]
		if !known {
			f, known = negations[name]
		}
		switch {
		case isFlag && !known:
			problems = append(problems, fmt.Sprintf("%s is not among the flags of %s %s", arg, data.Name, data.Version))
		case isFlag && f.Kind == catalog.FlagBool:
			room = 0
		case isFlag && f.Many:
			room = 1 << 10
		case isFlag:
			room = 1
		case room == 0:
			problems = append(problems, fmt.Sprintf("%q is a value of no flag", arg))
		default:
			room--
		}
	}
	return problems
}
