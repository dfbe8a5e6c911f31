// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/presets"
)

// model is the model of the runs. It fits one A10.
const model = "meta-llama/Llama-3.1-8B-Instruct"

// key makes a key from a letter.
func key(letter byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = letter
	return ed25519.NewKeyFromSeed(seed)
}

// public returns the public key, which is the last half of a private key.
func public(letter byte) ed25519.PublicKey { return ed25519.PublicKey(key(letter)[ed25519.SeedSize:]) }

// run returns a run with 32 ms per output token.
func run(name string) catalog.Measurement {
	const tpot = 32
	return catalog.Measurement{
		Name: name, Engine: "vllm", Version: "0.31.0", Model: model, Quantization: "bf16", GPU: "A10", TensorParallel: 1,
		InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TTFTMillis: 500, TPOTMillis: tpot,
		OutputTokensPerSecond: 4 * 256 / (0.5 + 255*tpot/1e3), Source: "made up", Date: "2026-11-24",
	}
}

// signed returns a signed file with one run.
func signed(t *testing.T, by ed25519.PrivateKey, m catalog.Measurement) string {
	t.Helper()
	f := calibration.File{SchemaVersion: calibration.SchemaVersion, Measurements: []catalog.Measurement{m}}
	if err := f.Sign(by); err != nil {
		t.Fatal(err)
	}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// world is a directory of calibration files, and the Files that read it.
type world struct {
	dir      string
	files    evidence.Files
	registry *prometheus.Registry
	// changes counts the calls of Changed. log has the entries since the last look.
	changes int
	log     bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	known, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	build := func(c *catalog.Catalog) *planner.Planner { return planner.New(c, planner.Settings{}) }
	w := &world{dir: filepath.Join(t.TempDir(), "calibration"), registry: prometheus.NewRegistry()}
	counts, err := evidence.NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.files = evidence.Files{
		Dir: w.dir, Keys: []ed25519.PublicKey{public('a')}, Base: known, Build: build,
		Planner: evidence.NewPlanner(build(known)), Metrics: counts, Changed: func(context.Context) { w.changes++ },
	}
	return w
}

// look calls Look.
func (w *world) look(t *testing.T) {
	t.Helper()
	w.log.Reset()
	w.files.Look(log.IntoContext(t.Context(), zap.New(zap.WriteTo(&w.log))))
}

// set replaces all files.
func (w *world) set(t *testing.T, files map[string]string) {
	t.Helper()
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// state is what users and administrators can see.
type state struct {
	Basis                  v1beta1.Basis
	Used, Refused, Changes float64
}

func (w *world) state(t *testing.T) state {
	t.Helper()
	known, err := w.files.Base.ResolveModel(model)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := w.files.Planner.Plan(planner.Request{Model: &known, Constraints: planner.Constraints{InstanceType: "Standard_NV36ads_A10_v5"}})
	if err != nil {
		t.Fatal(err)
	}
	out := state{Basis: plan.Performance.Basis, Changes: float64(w.changes)}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range families[0].GetMetric() {
		value := metric.GetGauge().GetValue()
		if metric.GetLabel()[0].GetValue() == "used" {
			out.Used = value
		} else {
			out.Refused = value
		}
	}
	return out
}

// TestLook goes through the life of a ConfigMap: each step follows the one before.
func TestLook(t *testing.T) {
	w := newWorld(t)
	good, stranger := signed(t, key('a'), run("mine")), signed(t, key('b'), run("theirs"))
	for _, step := range []struct {
		reason string
		files  map[string]string
		want   state
		log    []string
	}{
		{"there is no ConfigMap yet", nil, state{Basis: v1beta1.BasisEstimated}, nil},
		{
			"it comes",
			map[string]string{"a.yaml": good},
			state{Basis: v1beta1.BasisMeasured, Used: 1, Changes: 1},
			[]string{"plans use calibration files", `"files":"a.yaml"`},
		},
		{"nothing changed", map[string]string{"a.yaml": good}, state{Basis: v1beta1.BasisMeasured, Used: 1, Changes: 1}, nil},
		{
			"a bad file beside a good one",
			map[string]string{"a.yaml": good, "b.yaml": stranger, "c.yaml": "schemaVersion: 1\ncolour: red\n"},
			state{Basis: v1beta1.BasisMeasured, Used: 1, Refused: 2, Changes: 2},
			[]string{
				`calibration file \"b.yaml\": signature.key: ` + calibration.EncodeKey(public('b')) +
					" is not one of the trusted keys: if you trust the owner of this key, add the key to calibration.keys in the chart's values or to --calibration-key",
				`calibration file \"c.yaml\": error unmarshaling JSON: while decoding JSON: json: unknown field \"colour\"`,
			},
		},
		{
			"the good one is spoiled",
			map[string]string{"a.yaml": strings.Replace(good, "tpotMs: 32", "tpotMs: 31.9", 1)},
			state{Basis: v1beta1.BasisEstimated, Refused: 1, Changes: 3},
			[]string{"its content does not match its signature: restore the original file, or measure again"},
		},
		{"it is mended", map[string]string{"a.yaml": good}, state{Basis: v1beta1.BasisMeasured, Used: 1, Changes: 4}, nil},
		{"it is emptied", map[string]string{}, state{Basis: v1beta1.BasisEstimated, Changes: 5}, nil},
	} {
		if step.files != nil {
			w.set(t, step.files)
		}
		w.look(t)
		if diff := cmp.Diff(step.want, w.state(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", step.reason, diff, &w.log)
		}
		for _, part := range step.log {
			if !strings.Contains(w.log.String(), part) {
				t.Errorf("%s: the log lacks %q:\n%s", step.reason, part, &w.log)
			}
		}
	}
}

// TestUnreadableDirectory: if the directory cannot be read, the planner keeps its files.
func TestUnreadableDirectory(t *testing.T) {
	w := newWorld(t)
	w.set(t, map[string]string{"a.yaml": signed(t, key('a'), run("mine"))})
	w.look(t)
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.dir, nil, 0o600); err != nil { // a file in the place of the directory
		t.Fatal(err)
	}
	w.look(t)
	if diff := cmp.Diff(state{Basis: v1beta1.BasisMeasured, Used: 1, Changes: 1}, w.state(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(w.log.String(), "cannot read the calibration files: plans use the previous ones") {
		t.Errorf("log:\n%s", &w.log)
	}
}

// TestMountedConfigMap: the kubelet keeps the files in a separate directory, and links to them.
func TestMountedConfigMap(t *testing.T) {
	w := newWorld(t)
	data := filepath.Join(w.dir, "..2026_11_24")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "a.yaml"), []byte(signed(t, key('a'), run("mine"))), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"..data": "..2026_11_24", "a.yaml": "..data/a.yaml"} {
		if err := os.Symlink(to, filepath.Join(w.dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	w.look(t)
	if diff := cmp.Diff(state{Basis: v1beta1.BasisMeasured, Used: 1, Changes: 1}, w.state(t)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, &w.log)
	}
}
