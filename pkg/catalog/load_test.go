// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/sku"
)

// base is a small catalogue.
const base = `
source: made up
date: "2026-01-31"
cloud: azure
region: eastus
gpus:
- {name: G-16, class: G, aliases: [G16], memoryGiB: 15, bandwidthGBs: 300, computeCapability: "8.0"}
skus:
- {name: Small, gpu: G-16, gpus: 1, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28, prices: {eastus: 0.5}}
engines:
- name: e
  version: "1"
  image: i
  userID: 1
  healthPath: /h
  imageGiB: 1
  split: layers
  cpus: 1
  memoryGiB: 1
  memory: {basis: measured, reserveGiB: 1, batchTokens: 1, logitBytes: 1, hiddenBytes: 1, maskBytes: 1, inputCopies: 1, kvBytes: 2, contextMultiple: 1}
  flags: {a: {kind: bool, aliases: [b], negations: [no-a]}, c: {kind: int, values: [all]}}
  reserved: [{reason: because, flags: [a]}]
quantizations:
- {name: fp16, aliases: [f16], bytesPerParam: 2, scope: all, peak: fp16}
models:
- name: m
  aliases: [em]
  hubId: Org/M
  shape: {layers: 2, hidden: 8, intermediate: 16, heads: 2, kvHeads: 1, headDim: 4, vocab: 32}
  context: 128
  artifacts:
  - {engine: e, repo: Org/M-GGUF, revision: main, quantization: f16, native: true, files: [{path: m.gguf, bytes: 100}]}
`

func files(content map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range content {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func load(overlays ...fs.FS) (*catalog.Catalog, error) {
	return catalog.Load(files(map[string]string{"base.yaml": base}), overlays...)
}

func TestLookups(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"m", "M", "em", "EM", "Org/M", "org/m"} {
		if m, ok := c.Model(name); !ok || m.Name != "m" {
			t.Errorf("Model(%q) = %q, %v, want m", name, m.Name, ok)
		}
	}
	for _, name := range []string{"G-16", "g-16", "g16", "G 16", "G"} {
		if g, ok := c.GPU(name); !ok || g.Name != "G-16" {
			t.Errorf("GPU(%q) = %q, %v, want G-16", name, g.Name, ok)
		}
	}
	for _, name := range []string{"Small", "SMALL"} {
		if s, ok := c.SKU(name); !ok || s.Name != "Small" {
			t.Errorf("SKU(%q) = %q, %v, want the cloud's spelling Small", name, s.Name, ok)
		}
	}
	if e, ok := c.Engine("E"); !ok || e.Name != "e" {
		t.Errorf("Engine(E) = %q, %v, want e", e.Name, ok)
	}
}

func TestOverlayAddsAndReplaces(t *testing.T) {
	c, err := load(files(map[string]string{
		"skus.yaml": `
cloud: azure
skus:
- {name: SMALL, gpu: G-16, gpus: 1, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28, prices: {eastus: 0.1}}
- {name: Other, cloud: aws, vcpus: 2, memoryGiB: 8}
`,
		"gpus.yaml": `gpus: [{name: H-80, class: H, memoryGiB: 79, bandwidthGBs: 3000}]`,
	}), files(map[string]string{
		"models.yaml": `models: [{name: later, hubId: Org/Later, needs: other}]`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []sku.SKU{
		{Name: "Other", Cloud: "aws", VCPUs: 2, MemoryGiB: 8},
		{
			Name: "SMALL", Cloud: "azure", GPU: "G-16", GPUs: 1, Resource: "nvidia.com/gpu", VCPUs: 4, MemoryGiB: 28,
			Prices: map[string]float64{"eastus": 0.1},
		},
	}
	if diff := cmp.Diff(want, c.SKUs()); diff != "" {
		t.Errorf("machine types (-want +got):\n%s", diff)
	}
	if _, ok := c.GPU("h-80"); !ok {
		t.Error("the overlay's GPU is missing")
	}
	later, ok := c.Model("later")
	if diff := cmp.Diff(model.Model{Name: "later", HubID: "Org/Later", Needs: "other"}, later); !ok || diff != "" {
		t.Errorf("model of the second overlay: %v (-want +got):\n%s", ok, diff)
	}
	if region := c.ReferenceRegion("azure"); region != "eastus" {
		t.Errorf("ReferenceRegion(azure) = %q, want the base's eastus", region)
	}
}

// A ConfigMap is mounted as links into a directory ..data, next to a dated directory.
func TestOverlayMayBeAMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	dated := filepath.Join(dir, "..2026_01_31")
	if err := os.Mkdir(dated, 0o755); err != nil {
		t.Fatal(err)
	}
	content := []byte(`models: [{name: later, hubId: Org/Later, needs: other}]`)
	if err := os.WriteFile(filepath.Join(dated, "models.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"..data": "..2026_01_31", "models.yaml": "..data/models.yaml"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Model("later"); !ok {
		t.Error("the mounted model is missing")
	}
}

// modelWith returns the model for an error's test, with a part replaced.
func modelWith(old, replacement string) string {
	const entry = `models:
- name: nn
  hubId: Org/NN
  shape: {layers: 2, hidden: 8, intermediate: 16, heads: 2, kvHeads: 1, headDim: 4, vocab: 32}
  context: 128
  artifacts:
  - {engine: e, repo: Org/N, revision: main, quantization: f16, files: [{path: n.gguf, bytes: 100}]}
`
	return strings.Replace(entry, old, replacement, 1)
}

// profiled returns the tensor-parallel engine for an error's test, with a part replaced.
func profiled(old, replacement string) string {
	const entry = `engines:
- name: x
  version: "1"
  image: i
  userID: 1
  healthPath: /h
  imageGiB: 1
  split: tensor
  cpus: 1
  memoryGiB: 1
  computeCapability: {default: "7.5"}
  profile:
    basis: measured
    mostUsed: 0.95
    defaultUsed: 0.92
    weightFactor: 1
    graphs: [{giB: 1}]
    graphsSince: "0.21"
    blockTokens: 16
    defaults: [{leastGiB: 0, sequences: 256, batchTokens: 2048}]
  flags: {a: {kind: bool}}
`
	return strings.Replace(entry, old, replacement, 1)
}

func TestLoadRefuses(t *testing.T) {
	const machine = "name: X, gpu: G-16, gpus: 1, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28"
	for _, tc := range []struct {
		reason, file, text, want string
	}{
		{
			"an unknown field", "skus.yaml", "cloud: azure\nskus: [{" + machine + ", price: 3}]",
			`catalogue file "skus.yaml": skus[0] "X": unknown field "price"`,
		},
		{
			"an unknown list", "skus.yaml", "machines: []",
			`catalogue file "skus.yaml": unknown field "machines"`,
		},
		{
			"a key given twice", "skus.yaml", "cloud: azure\ncloud: aws\n",
			`catalogue file "skus.yaml": line 2: key "cloud" already set in map`,
		},
		{
			"a wrong type", "skus.yaml", "cloud: azure\nskus: [{name: X, vcpus: four, memoryGiB: 1}]",
			`catalogue file "skus.yaml": skus[0] "X": vcpus: found the text "four" instead of a whole number`,
		},
		{
			"a number where text in quotes is needed", "gpus.yaml",
			"gpus: [{name: H, class: H, memoryGiB: 1, bandwidthGBs: 1, computeCapability: 8.0}]",
			`catalogue file "gpus.yaml": gpus[0] "H": computeCapability: found the number 8 instead of text in quotes`,
		},
		{
			"a fraction of a GPU", "skus.yaml", "cloud: azure\nskus: [{name: X, gpus: 0.5}]",
			`catalogue file "skus.yaml": skus[0] "X": gpus: found the number 0.5 instead of a whole number`,
		},
		{
			"a word that YAML takes for false", "models.yaml", modelWith("name: nn", "name: no"),
			`catalogue file "models.yaml": models[0]: name: found false instead of text in quotes`,
		},
		{
			"a negative price", "skus.yaml", "cloud: azure\nskus: [{" + machine + ", prices: {eastus: -1}}]",
			`catalogue file "skus.yaml": skus[0] "X": prices.eastus: -1 must be from 0 to 100000`,
		},
		{
			"a negative number of GPUs", "skus.yaml", "cloud: azure\nskus: [{name: X, gpus: -1, vcpus: 4, memoryGiB: 28}]",
			`catalogue file "skus.yaml": skus[0] "X": gpus: -1 must be from 0 to 64`,
		},
		{
			"no cloud", "skus.yaml", "skus: [{" + machine + "}]",
			`catalogue file "skus.yaml": skus[0] "X": cloud: "" must be a lower-case name such as azure, in the entry or at the top of the file`,
		},
		{
			"a currency that nobody converts", "skus.yaml", "cloud: azure\ncurrency: EUR\n",
			`catalogue file "skus.yaml": currency: "EUR" must be USD: convert the prices`,
		},
		{
			"a GPU without a name", "skus.yaml", "cloud: azure\nskus: [{name: X, gpus: 1, vcpus: 4, memoryGiB: 28}]",
			`catalogue file "skus.yaml": skus[0] "X": gpu: "" is incompatible with gpus: 1`,
		},
		{
			"an unknown GPU", "skus.yaml", "cloud: azure\nskus: [{" + strings.Replace(machine, "G-16", "G-61", 1) + "}]",
			`catalogue file "skus.yaml": instance type "X": gpu: "G-61" is not the name of a GPU: did you mean G-16?`,
		},
		{
			"a name given twice in one layer", "skus.yaml", "cloud: azure\nskus: [{" + machine + "}, {" + machine + "}]",
			`catalogue file "skus.yaml": skus[1] "X": the name is taken by an entry of file "skus.yaml"`,
		},
		{
			"a reason that would not fit into a verdict", "skus.yaml",
			"cloud: azure\nskus: [{" + machine + ", unusable: " + strings.Repeat("x", 201) + "}]",
			`catalogue file "skus.yaml": skus[0] "X": unusable: "` + strings.Repeat("x", 40) + `"… must be one line of at most 200 bytes`,
		},
		{
			"no memory", "gpus.yaml", "gpus: [{name: H, class: H, bandwidthGBs: 1}]",
			`catalogue file "gpus.yaml": gpus[0] "H": memoryGiB: 0 must be above 0 and at most 4096`,
		},
		{
			"a model name that is not the hub's", "models.yaml", modelWith("name: nn", "name: other"),
			`catalogue file "models.yaml": models[0] "other": name: "other" must be the lower-case basename of hubId, "nn"`,
		},
		{
			"heads 0", "models.yaml", modelWith("heads: 2", "heads: 0"),
			`catalogue file "models.yaml": models[0] "nn": shape.heads: 0 must be from 1 to 4096`,
		},
		{
			"a thousand million layers", "models.yaml", modelWith("layers: 2", "layers: 1000000000"),
			`catalogue file "models.yaml": models[0] "nn": shape.layers: 1e+09 must be from 1 to 4096`,
		},
		{
			"KV heads that do not divide heads", "models.yaml", modelWith("heads: 2, kvHeads: 1", "heads: 3, kvHeads: 2"),
			`catalogue file "models.yaml": models[0] "nn": shape.kvHeads: 2 does not divide shape.heads: 3`,
		},
		{
			"an engine that does not exist", "models.yaml", modelWith("engine: e", "engine: ee"),
			`catalogue file "models.yaml": model "nn": artifacts[0].engine: "ee" is not the name of an engine: did you mean e?`,
		},
		{
			"a path out of the repository", "models.yaml", modelWith("n.gguf", "../n.gguf"),
			`catalogue file "models.yaml": models[0] "nn": artifacts[0].files[0].path: "../n.gguf" must be a path within the repository`,
		},
		{
			"a checksum that is none", "models.yaml", modelWith("bytes: 100", "bytes: 100, sha256: abc"),
			`catalogue file "models.yaml": models[0] "nn": artifacts[0].files[0].sha256: "abc" must be 64 lower-case hexadecimal digits`,
		},
		{
			"an unknown basis", "models.yaml", modelWith("bytes: 100", "bytes: 100, bytesBasis: guessed"),
			`catalogue file "models.yaml": models[0] "nn": artifacts[0].files[0].bytesBasis: "guessed" must be exact or estimated`,
		},
		{
			"a model that waits for an engine it has weights for", "models.yaml", modelWith("context: 128", "context: 128\n  needs: e"),
			`catalogue file "models.yaml": models[0] "nn": needs: "e" must not be set for a model with artifacts`,
		},
		{
			"an alias that means another model", "models.yaml", modelWith("name: nn", "name: nn\n  aliases: [em]"),
			`catalogue file "models.yaml": model "nn": the name "em" already belongs to "m"`,
		},
		{
			"an engine that spreads in a way that nobody plans for", "engines.yaml",
			"engines: [{name: x, version: '1', image: i, userID: 1, healthPath: /h, imageGiB: 1, cpus: 1, memoryGiB: 1, split: rows}]",
			`catalogue file "engines.yaml": engines[0] "x": split: "rows" must be layers or tensor`,
		},
		{
			"a quantization that does not exist", "models.yaml", modelWith("quantization: f16", "quantization: f61"),
			`catalogue file "models.yaml": model "nn": artifacts[0].quantization: "f61" is not the name of a quantization: did you mean f16?`,
		},
		{
			"a quantization's name that means another", "formats.yaml",
			"quantizations: [{name: half, aliases: [f16], bytesPerParam: 2, scope: all, peak: fp16}]",
			`catalogue file "formats.yaml": quantization "half": the name "f16" already belongs to "fp16"`,
		},
		{
			"a sibling that lacks the files", "models.yaml", modelWith("files:", "siblings: [Org/O], files:"),
			`catalogue file "models.yaml": models[0] "nn": artifacts[0].siblings: [Org/O] must not be set for an artifact with files, because its files are in one repository`,
		},
		{
			"a quantization of nothing", "formats.yaml", "quantizations: [{name: q, bytesPerParam: 0, scope: all, peak: fp16}]",
			`catalogue file "formats.yaml": quantizations[0] "q": bytesPerParam: 0 must be above 0 and at most 8`,
		},
		{
			"a scope that is none", "formats.yaml", "quantizations: [{name: q, bytesPerParam: 1, scope: layers, peak: fp16}]",
			`catalogue file "formats.yaml": quantizations[0] "q": scope: "layers" must be all, linears or experts`,
		},
		{
			"weights that shrink when they are loaded", "formats.yaml",
			"quantizations: [{name: q, bytesPerParam: 1, scope: all, peak: fp8, loadedFactor: 0.9}]",
			`catalogue file "formats.yaml": quantizations[0] "q": loadedFactor: 0.9 must be from 1 to 2`,
		},
		{
			"a factor until no release", "formats.yaml",
			"quantizations: [{name: q, bytesPerParam: 1, scope: all, peak: fp8, formerFactor: 1.1, formerUntil: now}]",
			`catalogue file "formats.yaml": quantizations[0] "q": formerUntil: "now" must be a release such as "0.11", in quotes`,
		},
		{
			"a KV cache that the engine's flag does not know", "engines.yaml",
			profiled("split: tensor", "split: tensor\n  kvCacheTypes: [{names: [int8], capability: '8.0'}]"),
			`catalogue file "engines.yaml": engines[0] "x": kvCacheTypes[0].names: "int8" is not one of flags.kv-cache-dtype.values`,
		},
		{
			"sparse attention on every GPU", "engines.yaml",
			profiled("split: tensor", "split: tensor\n  sparseAttention: [{capability: any}]"),
			`catalogue file "engines.yaml": engines[0] "x": sparseAttention[0].capability: "any" must be two numbers such as "8.0"`,
		},
		{
			"sparse attention with a KV cache that is not planned for", "engines.yaml",
			profiled("split: tensor", "split: tensor\n  sparseAttention: [{capability: '12.0', kvTypes: [fp8]}]"),
			`catalogue file "engines.yaml": engines[0] "x": sparseAttention[0].kvTypes: "fp8" is not one of kvCacheTypes`,
		},
		{
			"a compute capability for a format that does not exist", "engines.yaml", profiled("default:", "fp61: '8.0', default:"),
			`catalogue file "engines.yaml": engine "x": computeCapability: "fp61" is not the name of a quantization: did you mean fp16?`,
		},
		{
			"a law of another split", "engines.yaml", profiled("split: tensor", "split: layers"),
			`catalogue file "engines.yaml": engines[0] "x": profile: it is for split: tensor, not for layers`,
		},
		{
			"more memory than there is", "engines.yaml", profiled("mostUsed: 0.95", "mostUsed: 1.1"),
			`catalogue file "engines.yaml": engines[0] "x": profile.mostUsed: 1.1 must be from 0.05 to 1`,
		},
		{
			"a release that is none", "engines.yaml", profiled(`graphsSince: "0.21"`, "graphsSince: \"0.21\"\n    measuredUntil: main"),
			`catalogue file "engines.yaml": engines[0] "x": profile.measuredUntil: "main" must be a version such as "0.20", in quotes`,
		},
		{
			"a version that is none", "engines.yaml", profiled(`graphsSince: "0.21"`, `graphsSince: v0.21`),
			`catalogue file "engines.yaml": engines[0] "x": profile.graphsSince: "v0.21" must be a version such as "0.21", in quotes`,
		},
		{
			"graphs of small models only", "engines.yaml", profiled("{giB: 1}", "{paramsB: 16, giB: 1}"),
			`catalogue file "engines.yaml": engines[0] "x": profile.graphs: the last step must hold for every model: give it neither paramsB, states, experts nor formats`,
		},
		{
			"defaults for large GPUs only", "engines.yaml", profiled("leastGiB: 0", "leastGiB: 70"),
			`catalogue file "engines.yaml": engines[0] "x": profile.defaults: the last step must hold for every GPU: give it leastGiB: 0 and no except`,
		},
		{
			"not YAML", "models.yaml", "models: [",
			`catalogue file "models.yaml": line 1: did not find expected node content`,
		},
		{
			"a second document, which would be ignored", "models.yaml", "models: []\n---\nmodels: []\n",
			`catalogue file "models.yaml": it holds more than one YAML document: join them into one`,
		},
		{
			"a list that is none", "models.yaml", "models: {n: {}}",
			`catalogue file "models.yaml": models: found a map instead of a list`,
		},
		{
			"a file that would be ignored", "models.yml", "models: []",
			`catalogue file "models.yml": its name must end in .yaml`,
		},
		{
			"a file of another size", "models.yaml", "# " + strings.Repeat("x", 1<<20),
			`catalogue file "models.yaml": it has 1048578 bytes: at most 1048576 are allowed`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := load(files(map[string]string{tc.file: tc.text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEngineFlagsAreChecked(t *testing.T) {
	for _, tc := range []struct{ reason, old, replacement, want string }{
		{"an unknown kind", "kind: int", "kind: integer", `flags.c.kind: "integer" must be bool, int, size, float, string or json`},
		{"values of a bool", "{kind: bool,", "{kind: bool, values: [x],", `flags.a.values: [x] must be absent: only a string, an int or a size can have them`},
		{"several values of a bool", "{kind: bool,", "{kind: bool, many: true,", `flags.a.many: true must be absent: a bool has no value, and JSON has lists of its own`},
		{"a negation of what is no bool", "{kind: int,", "{kind: int, negations: [no-c],", `flags.c.negations: [no-c] must be absent: only a bool can be switched off`},
		{"a spelling of two flags", "aliases: [b]", "aliases: [c]", `flags.c: "c" is also a spelling of a`},
		{"a leading dash", "aliases: [b]", "aliases: [--b]", `flags.a: "--b" must be a flag's name without dashes`},
		{"a reserved flag that does not exist", "flags: [a]", "flags: [b]", `reserved[0].flags: "b" is not one of flags`},
		{"a flag that is reserved twice", "flags: [a]", "flags: [a, a]", `reserved[0].flags: "a" is reserved twice`},
		{"a reservation without a reason", "reason: because", `reason: ""`, `reserved[0].reason: "" must give the reason why users cannot set these flags`},
		{"root", "userID: 1", "userID: 0", `userID: 0 must be from 1 to 2.147483647e+09`},
		{"a path that is none", "healthPath: /h", "healthPath: h", `healthPath: "h" must start with a slash`},
		{"a variable that is none", "healthPath: /h", "healthPath: /h\n  apiKeyVariable: API-KEY", `apiKeyVariable: "API-KEY" must be the name of an environment variable such as VLLM_API_KEY`},
		{"a basis that is none", "basis: measured", "basis: known", `memory.basis: "known" must be exact, measured or estimated`},
		{"copies of nothing", "inputCopies: 1", "inputCopies: 0", `memory.inputCopies: 0 must be from 1 to 64`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			text := strings.Replace(base, tc.old, tc.replacement, 1)
			if text == base {
				t.Fatalf("%q does not occur", tc.old)
			}
			_, err := catalog.Load(files(map[string]string{"base.yaml": text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			want := `catalogue file "base.yaml": engines[0] "e": ` + tc.want
			if diff := cmp.Diff(want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBaseMustStateItsSources(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{"no source", "date: \"2026-01-31\"\n", `catalogue file "f.yaml": source: "" must name the source of the facts`},
		{"no date", "source: s\n", `catalogue file "f.yaml": date: "" must be a date such as 2026-01-31, in quotes`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := catalog.Load(files(map[string]string{"f.yaml": tc.text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownNamesSuggest(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct {
		reason string
		err    func() error
		want   string
	}{
		{
			"a letter is missing", func() error { _, err := c.ResolveModel("phi4"); return err },
			`preset "phi4" is not in the catalogue: did you mean phi-4?`,
		},
		{
			"a hub id of another form of a model that is known",
			func() error { _, err := c.ResolveModel("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"); return err },
			`preset "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4" is not in the catalogue: did you mean qwen2.5-7b-instruct?`,
		},
		{
			"a letter of a repository is missing",
			func() error { _, err := c.ResolveModel("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamc"); return err },
			`preset "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamc" is not in the catalogue: did you mean llama-3.3-70b-instruct, llama-3.3-70b-instruct-fp8 or llama-3.3-70b-instruct-fp8-dynamic?`,
		},
		{
			"the end is missing", func() error { _, err := c.ResolveModel("gpt-oss"); return err },
			`preset "gpt-oss" is not in the catalogue: did you mean gpt-oss-20b or gpt-oss-120b?`,
		},
		{
			"a size that is not published: the nearest first", func() error { _, err := c.ResolveModel("qwen3-3b"); return err },
			`preset "qwen3-3b" is not in the catalogue: did you mean qwen3-4b, qwen3-8b or qwen3-32b?`,
		},
		{
			"a dash is missing", func() error { _, err := c.ResolveModel("gemma3-27b-it"); return err },
			`preset "gemma3-27b-it" is not in the catalogue: did you mean gemma-3-27b-it, gemma-2-27b-it or gemma-3-12b-it?`,
		},
		{
			"a dash and the end are missing", func() error { _, err := c.ResolveModel("phi4-mini"); return err },
			`preset "phi4-mini" is not in the catalogue: did you mean phi-4 or phi-4-mini-instruct?`,
		},
		{
			"nothing is similar", func() error { _, err := c.ResolveModel("something-else"); return err },
			`preset "something-else" is not in the catalogue: check its spelling, or ask the administrator to add it`,
		},
		{
			"the start is missing", func() error { _, err := c.ResolveSKU("NC24ads_A100_v4"); return err },
			`instance type "NC24ads_A100_v4" is not in the catalogue: did you mean Standard_NC24ads_A100_v4?`,
		},
		{
			"two letters are swapped", func() error { _, err := c.ResolveSKU("g5.xlagre"); return err },
			`instance type "g5.xlagre" is not in the catalogue: did you mean g5.xlarge, g5.2xlarge or g5.4xlarge?`,
		},
		{
			"a name as long as a manifest admits", func() error { _, err := c.ResolveModel(strings.Repeat("x", 253)); return err },
			`preset "` + strings.Repeat("x", 253) + `" is not in the catalogue: check its spelling, or ask the administrator to add it`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			err := tc.err()
			if err == nil {
				t.Fatal("the name was found")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever an administrator mounts, the result is a catalogue, or an error of one line with the file's name.
func FuzzLoadOverlay(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(hybrid))
	f.Add([]byte(several))
	f.Add([]byte(modelWith("heads: 2", "heads: .nan")))
	f.Add([]byte("cloud: azure\nskus: [{name: X, vcpus: 1e400, memoryGiB: .inf}]"))
	f.Add([]byte("a: &a [*a]\nmodels: *a"))
	f.Add([]byte("models: [1, \"x\", null, [], {name: [1]}]"))
	f.Add([]byte("gpus:\n- {name: \"a\\nb\", class: \x00}\n"))
	f.Add([]byte("? {a: 1}\n: 2\n"))
	f.Add([]byte("!!binary models: !!float x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := load(files(map[string]string{"overlay.yaml": string(data)}))
		if err != nil {
			text := err.Error()
			if strings.ContainsAny(text, "\n\r") || !strings.HasPrefix(text, `catalogue file "`) || len(text) > 4096 {
				t.Errorf("message is not one line that names the file: %q", text)
			}
			return
		}
		for _, m := range c.Models() {
			if found, ok := c.Model(strings.ToUpper(m.HubID)); !ok || found.Name != m.Name {
				t.Errorf("Model(%q) = %q, %v", m.HubID, found.Name, ok)
			}
		}
		for _, s := range c.SKUs() {
			if _, ok := c.GPU(s.GPU); s.GPUs > 0 && !ok {
				t.Errorf("%s has the unknown GPU %q", s.Name, s.GPU)
			}
		}
	})
}

// A format's name and aliases find it, in upper and lower case.
func TestQuantizationLookups(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct{ reason, name, want string }{
		{"its name", "fp8", "fp8"},
		{"any case", "BF16", "bf16"},
		{"the GGUF spelling of fp16", "F16", "fp16"},
		{"a config.json's word", "gptq", "gptq-int4"},
		{"experts of 4 bits", "int4", "int4-experts"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if q, ok := c.Quantization(tc.name); !ok || q.Name != tc.want {
				t.Errorf("Quantization(%q) = %q, %v, want %q", tc.name, q.Name, ok, tc.want)
			}
		})
	}
	if q, ok := c.Quantization("fp61"); ok {
		t.Errorf("Quantization(fp61) = %q, want none", q.Name)
	}
}
