// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/model"
)

func knownTable(t testing.TB) table {
	t.Helper()
	known, err := loadTable()
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// The table must not have entries without effect: each can be found, and hides no other.
func TestTable(t *testing.T) {
	known := knownTable(t)
	seen := map[string]bool{}
	once := func(types []string) {
		if len(types) == 0 {
			t.Error("an entry has no types")
		}
		for _, name := range types {
			if seen[name] {
				t.Errorf("model_type %q stands in two entries", name)
			}
			seen[name] = true
		}
	}
	for _, a := range known.Architectures {
		once(a.Types)
		// A class without its own default for the tie inherits true from its base class, so the table must have it.
		if _, ok := a.Defaults["tie_word_embeddings"]; !ok {
			t.Errorf("%v: no default of tie_word_embeddings", a.Types)
		}
	}
	for _, r := range known.Refused {
		once(r.Types)
		if r.Reason == "" || strings.HasSuffix(r.Reason, ".") {
			t.Errorf("%v: reason %q is no clause", r.Types, r.Reason)
		}
	}
	for _, v := range known.Vision {
		if !slices.Contains([]projector{projectorPooled, projectorMerged, projectorShuffled, projectorMLP}, v.Projector) ||
			!slices.Contains([]positions{"", positionsImage, positionsKey}, v.Positions) {
			t.Errorf("%v: projector %q or positions %q is none", v.Types, v.Projector, v.Positions)
		}
	}
	if known.Source == "" || known.Date == "" {
		t.Error("the table does not say where its facts come from")
	}
}

// FuzzParse looks for panics, and for shapes that overflow.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		f.Fatalf("testdata: %d configs, %v", len(paths), err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		for _, absurd := range []string{"0", "-1", "1000000000", "1048576", "4096", "null", "[]", "{}", `"x"`, "Infinity", "1e400"} {
			f.Add(bytes.ReplaceAll(data, []byte("128"), []byte(absurd)))
		}
	}
	known := knownTable(f)
	f.Fuzz(func(t *testing.T, config []byte) {
		facts, err := known.parse(Files{Config: config})
		if err != nil {
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || len(text) > 512 {
				t.Errorf("error is no short line: %q", text)
			}
			return
		}
		if problem := overflow(facts); problem != "" {
			t.Errorf("%s: %+v", problem, facts)
		}
	})
}

// Every key of every config, also in nested objects, gets every absurd value.
func TestEveryKeyAbsurd(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata: %d configs, %v", len(paths), err)
	}
	known := knownTable(t)
	tried := 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := json.Unmarshal(quoteNonNumbers(data), &config); err != nil {
			t.Fatal(err)
		}
		everywhere(config, func() {
			tried++
			data, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			facts, err := known.parse(Files{Config: data})
			_, field := errors.AsType[*FieldError](err)
			_, unsupported := errors.AsType[*UnsupportedError](err)
			if err != nil && !field && !unsupported {
				t.Fatalf("error has no kind: %v", err)
			}
			if err != nil {
				return
			}
			if problem := overflow(facts); problem != "" {
				t.Fatalf("%s: %s", problem, data)
			}
		})
	}
	if tried < 5000 {
		t.Errorf("only %d configs were tried", tried)
	}
}

// everywhere replaces each value by each absurd value in turn, calls try, and restores the value.
func everywhere(config map[string]any, try func()) {
	absurd := []any{
		nil, 0, 1, -1, 3, 4096, 1 << 17, 1 << 20, 1e9, 2.5, "x", "NaN", "", true,
		[]any{},
		[]any{-1},
		[]any{"x"},
		map[string]any{},
		map[string]any{"config_groups": map[string]any{"a": 1}},
		json.RawMessage("1e400"),
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := config[key]
		for _, bad := range absurd {
			config[key] = bad
			try()
		}
		delete(config, key)
		try()
		config[key] = value
		if nested, ok := value.(map[string]any); ok {
			everywhere(nested, try)
		}
	}
}

// All dimensions have their largest accepted value at the same time.
func TestLargestShape(t *testing.T) {
	facts, err := Parse(fmt.Appendf(nil, `{"model_type": "qwen3_5_moe_text", "num_hidden_layers": %d, "hidden_size": %d, "vocab_size": %d,
		"num_attention_heads": %d, "num_key_value_heads": %[4]d, "head_dim": %d, "num_experts": %d, "num_experts_per_tok": %[6]d,
		"moe_intermediate_size": %d, "shared_expert_intermediate_size": %d, "moe_latent_size": %[2]d,
		"linear_num_key_heads": %[4]d, "linear_num_value_heads": %[4]d, "linear_key_head_dim": %[5]d, "linear_value_head_dim": %[5]d,
		"linear_conv_kernel_dim": %[9]d}`,
		maxLayers, maxHidden, maxVocab, maxHeads, maxHeadDim, maxExperts, maxExpertWidth, maxIntermediate, maxConv))
	if err != nil {
		t.Fatal(err)
	}
	if problem := overflow(facts); problem != "" {
		t.Error(problem)
	}
}

// overflow names a value that overflowed.
func overflow(f Facts) string {
	s := f.Shape
	layers := 0
	estimate := 2 * float64(s.EmbeddingParams())
	for _, l := range s.LayerKinds() {
		layers += l.Count
		parts := []int64{l.Attention, l.KeyValue, l.Dense, l.Replicated, l.Expert, l.StateElements, l.ConvElements}
		if l.Count < 0 || slices.Min(parts) < 0 {
			return fmt.Sprintf("a kind of layer has something negative: %+v", l)
		}
		each := float64(l.Attention) + float64(l.KeyValue) + float64(l.Dense) + float64(l.Replicated) + float64(l.Experts)*float64(l.Expert)
		estimate += float64(l.Count) * each
	}
	estimate += float64(s.ExtraParams) + float64(s.Hidden)
	switch {
	case layers != s.Layers:
		return fmt.Sprintf("%d layers in all kinds", layers)
	case s.Params() <= 0 || s.ActiveParams() <= 0 || float64(s.Params()) > estimate*1.0001:
		return fmt.Sprintf("%d parameters, %d active, %.0f at most", s.Params(), s.ActiveParams(), estimate)
	case s.KVBytes(2) < 0 || math.IsInf(s.KVBytes(2), 0):
		return fmt.Sprintf("%v bytes of KV cache", s.KVBytes(2))
	case f.Context < 1 || f.Context > maxContext:
		return fmt.Sprintf("context of %d", f.Context)
	case f.Quantization == "" || f.Type == "":
		return "no format or type"
	}
	for _, g := range s.Pattern {
		if (g.State != nil) != (g.Mixer == model.MixerMamba2 || g.Mixer == model.MixerDeltaNet) {
			return fmt.Sprintf("mixer %s with state %v", g.Mixer, g.State)
		}
	}
	return ""
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/deepseek-v3.json")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
