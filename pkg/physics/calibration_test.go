// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/presets"
)

// gib is a GiB in bytes.
const gib = 1 << 30

// started is one row of kvcache.csv: a logged start of the engine.
type started map[string]string

// number returns the number in a column; 0 if the log has none.
func (s started) number(t *testing.T, column string) float64 {
	t.Helper()
	text, known := s[column]
	if !known {
		t.Fatalf("there is no column %q", column)
	}
	if text == "" {
		return 0
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("row %s, column %s: %v", s["id"], column, err)
	}
	return number
}

// release returns the engine's release; empty if the log names none.
func (s started) release() string {
	if version := strings.TrimLeft(s["vllm_version"], "~"); strings.HasPrefix(version, "0.") {
		return version
	}
	return ""
}

func (s started) failed() bool { return strings.HasPrefix(s["note"], "FAILS") }

func readStarts(t *testing.T) []started {
	t.Helper()
	data, err := os.ReadFile("testdata/kvcache.csv")
	if err != nil {
		t.Fatal(err)
	}
	reader := csv.NewReader(bytes.NewReader(data))
	reader.Comment = '#'
	lines, err := reader.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []started
	for _, line := range lines[1:] {
		row := started{}
		for i, column := range lines[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// published is a model as a logged start loaded it.
type published struct {
	Quantization string      `json:"quantization"`
	Bytes        int64       `json:"bytes"`
	Shape        model.Shape `json:"shape"`
}

// shelf finds models by repository: in the presets, or else in testdata.
type shelf struct {
	catalog *catalog.Catalog
	others  map[string]published
}

// loaded loads the catalogue once. That is safe, because nobody can change it.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

func newShelf(t testing.TB) shelf {
	t.Helper()
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := shelf{catalog: c}
	if err := yaml.UnmarshalStrict(data, &s.others); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s shelf) find(repo string) (published, bool) {
	if m, err := s.catalog.ResolveModel(repo); err == nil {
		for _, a := range m.Artifacts {
			if a.Engine == "vllm" && strings.EqualFold(a.Repo, repo) {
				return published{a.Quantization, a.LoadedBytes(), m.Shape}, true
			}
		}
	}
	p, known := s.others[repo]
	return p, known
}

func (s shelf) model(t testing.TB, p published) *physics.Model {
	t.Helper()
	format, known := s.catalog.Quantization(p.Quantization)
	if !known {
		t.Fatalf("there is no quantization %q", p.Quantization)
	}
	return physics.NewModel(p.Shape, physics.Weights{Format: format, Bytes: p.Bytes})
}

// vllm returns the engine of the presets.
func (s shelf) vllm(t testing.TB) *catalog.Engine {
	t.Helper()
	e, known := s.catalog.Engine("vllm")
	if !known {
		t.Fatal("there is no engine vllm")
	}
	return &e
}

// excluded returns the reason why the figures of the KV cache do not cover a row; empty if they do.
func excluded(t *testing.T, row started, p published, known bool) string {
	v := row["vllm_version"]
	switch {
	case !known:
		return "the model's shape is not known for sure"
	case strings.HasPrefix(v, "V0"), strings.HasPrefix(v, "0.5"):
		return "engine V0"
	case strings.HasPrefix(row["gpu"], "MI"):
		return "ROCm, whose libraries and kernels are others"
	case p.Shape.ExtraParams > 0 && p.Shape.Vision == nil:
		return "an encoder that is not known"
	case row.failed():
		return "did not start: checked apart"
	case row.number(t, "gpu_mem_util") == 0:
		return "the share is not stated"
	case row.number(t, "kv_gib_per_gpu") == 0:
		return "KV cache is not logged"
	case row.number(t, "max_num_seqs") == 0:
		return "max-num-seqs is not stated"
	default:
		return ""
	}
}

// start has the settings of a row's engine.
type start struct {
	gpu     sku.GPU
	layout  physics.Layout
	serving physics.Serving
}

func startOf(t *testing.T, row started) start {
	t.Helper()
	version := cmp.Or(row.release(), "0.11") // rows without a release are older than the one that counts graphs
	out := start{
		gpu:    sku.GPU{Class: row["gpu"], MemoryGiB: row.number(t, "gpu_total_gib")},
		layout: physics.Layout{TP: int(row.number(t, "tp")), PP: 1, DP: 1, Nodes: 1},
		serving: physics.Serving{
			MaxModelLen: int(row.number(t, "max_model_len")), MaxNumSeqs: int(row.number(t, "max_num_seqs")),
			Utilization: row.number(t, "gpu_mem_util"), Version: version,
		},
	}
	if strings.HasSuffix(out.gpu.Class, "SXM") {
		out.layout.LinkedGPUs = int(row.number(t, "gpu_count"))
	}
	return out
}

// budget returns the start's budget by the engine's law.
func (s *start) budget(m *physics.Model, e *catalog.Engine) physics.Budget {
	return physics.Memory(m, &s.gpu, s.layout, &s.serving, e)
}

// The law passes if the median error of the rows is at most halfMost, and no predicted KV cache exceeds the logged one
// by overMost or more.
const halfMost, overMost = 0.10, 0.10

// The published logs of text models confirm the memory law; `go test -v -run Calibration` prints them.
func TestKVCacheCalibration(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	var off []float64
	over := 0.0
	for _, row := range readStarts(t) {
		p, known := s.find(row["hf_repo"])
		why := excluded(t, row, p, known)
		name := fmt.Sprintf("%2s %-26s %-18s x%s", row["id"], row["model"], row["gpu"], row["tp"])
		if !known || row.number(t, "gpu_total_gib") == 0 || row.number(t, "gpu_mem_util") == 0 {
			t.Logf("%s excluded: %s", name, why)
			continue
		}
		begun := startOf(t, row)
		b := begun.budget(s.model(t, p), e)
		logged := row.number(t, "kv_gib_per_gpu")
		text := fmt.Sprintf("%s weights %6.2f, logged %6s; KV cache %6.2f, logged %6s", name, b.Weights,
			row["weights_gib_per_gpu"], b.KVCache, row["kv_gib_per_gpu"])
		if why != "" {
			t.Logf("%s; excluded: %s", text, why)
			continue
		}
		by := b.KVCache - logged
		t.Logf("%s: %+.2f GiB", text, by)
		off, over = append(off, math.Abs(by)), max(over, by)
		if by > overMost {
			t.Errorf("row %s: %.2f GiB more KV cache than logged", row["id"], by)
		}
	}
	slices.Sort(off)
	if len(off) < 34 {
		t.Fatalf("only %d rows count, of 34 that did", len(off))
	}
	median := off[len(off)/2]
	t.Logf("figure: KV cache, %d rows, fitted: median error %.3f GiB (at most %.2f), over-predicted by %.2f GiB at most (%.2f), largest error %.2f GiB",
		len(off), median, halfMost, over, overMost, off[len(off)-1])
	if median > halfMost {
		t.Errorf("median error of the KV cache: %.3f GiB, more than %.2f", median, halfMost)
	}
}

// The predicted weights per GPU equal the logged ones.
func TestWeightsCalibration(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	otherwise := map[string]string{
		"37": "a vision tower, of which more is loaded than the checkpoint has",
		"38": "a vision tower, of which more is loaded than the checkpoint has",
		"82": "a vision tower, of which more is loaded than the checkpoint has",
		"83": "a vision tower, of which more is loaded than the checkpoint has",
		"43": "the checkpoint's size is an estimate of two formats mixed",
		"45": "this release's MXFP4 kernels padded two dimensions",
	}
	checked, most := 0, 0.0
	for _, row := range readStarts(t) {
		p, known := s.find(row["hf_repo"])
		logged := row.number(t, "weights_gib_per_gpu")
		switch why := otherwise[row["id"]]; {
		case !known || logged == 0:
		case why != "":
			t.Logf("row %s excluded: %s", row["id"], why)
		default:
			checked++
			m := s.model(t, p)
			weights := m.WeightBytes(physics.Layout{TP: int(row.number(t, "tp")), PP: 1}) * e.Profile.WeightFactor / gib
			off := weights/logged - 1
			if most = max(most, math.Abs(off)); math.Abs(off) > 0.01 {
				t.Errorf("row %s, %s: weights of %.2f GiB, logged %.2f: %+.2f %%", row["id"], row["model"], weights, logged, 100*off)
			}
		}
	}
	t.Logf("figure: weights of a rank, %d rows: %.2f %% off at most (1)", checked, 100*most)
	if checked < 40 {
		t.Errorf("only %d rows count, of 40 that did", checked)
	}
}

// The predicted tokens of a KV cache of the logged size equal the logged ones.
func TestKVTokensCalibration(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	otherwise := map[string]string{"32": "a connector to another cache takes part of it"}
	checked, most := 0, 0.0
	for _, row := range readStarts(t) {
		p, known := s.find(row["hf_repo"])
		kv, tokens := row.number(t, "kv_gib_per_gpu"), row.number(t, "kv_tokens")
		if !known || kv == 0 || tokens == 0 || len(p.Shape.Pattern) > 0 {
			continue
		}
		if why := otherwise[row["id"]]; why != "" {
			t.Logf("row %s excluded: %s", row["id"], why)
			continue
		}
		checked++
		layout := physics.Layout{TP: int(row.number(t, "tp")), PP: 1}
		if strings.Contains(row["note"], "--decode-context-parallel-size 8") {
			layout.CP = 8
		}
		got := holding(s.model(t, p), layout, roomy(4096), e, kv).KVTokens
		off := float64(got)/tokens - 1
		t.Logf("row %s, %s: %d tokens, logged %.0f: %+.2f %%", row["id"], row["model"], got, tokens, 100*off)
		if most = max(most, math.Abs(off)); math.Abs(off) > 0.01 {
			t.Errorf("row %s: %d tokens, logged %.0f", row["id"], got, tokens)
		}
	}
	t.Logf("figure: tokens of a KV cache of the logged size, %d rows: %.2f %% off at most (1)", checked, 100*most)
	if checked < 15 {
		t.Errorf("only %d rows count, of 15 that did", checked)
	}
}

// roomy returns settings for a deployment whose KV cache the test chooses.
func roomy(length int) physics.Serving {
	return physics.Serving{MaxModelLen: length, MaxNumSeqs: 256, MaxBatchedTokens: 2048}
}

// holding returns the budget of a GPU with a KV cache of the given size.
func holding(m *physics.Model, l physics.Layout, s physics.Serving, e *catalog.Engine, kv float64) physics.Budget {
	s.Utilization = 1
	gpu := sku.GPU{MemoryGiB: 1000}
	gpu.MemoryGiB += kv - physics.Memory(m, &gpu, l, &s, e).KVCache
	return physics.Memory(m, &gpu, l, &s, e)
}

// No start that failed for lack of memory is predicted to fit.
func TestFailedStartsDoNotFit(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	checked := 0
	for _, row := range readStarts(t) {
		p, known := s.find(row["hf_repo"])
		if !row.failed() || !known {
			continue
		}
		if strings.HasPrefix(row["vllm_version"], "V0") {
			t.Logf("row %s excluded: engine V0, which computes whole prompts at once", row["id"])
			continue
		}
		checked++
		m := s.model(t, p)
		begun := startOf(t, row)
		b := begun.budget(m, e)
		serving := physics.Serving{MaxModelLen: int(row.number(t, "max_model_len")), MaxBatchedTokens: 2048}
		if need := m.KVNeed(begun.layout, &serving, 1, 1, e); b.KVCache >= need {
			t.Errorf("row %s fits with %.2f GiB of KV cache, of which it needs %.2f; the log says that it does not", row["id"], b.KVCache, need)
		}
	}
	t.Logf("figure: starts that failed for lack of memory and are said to fit: none of %d", checked)
	if checked == 0 {
		t.Error("no failed start was checked")
	}
}
