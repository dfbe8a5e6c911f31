// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// calibrations are files of measured runs.
type calibrations struct {
	dir string
	// valid are the files that the controller uses, and key signs them.
	valid []string
	key   ed25519.PublicKey
}

// signKey makes a key from a number.
func signKey(number byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = number
	return ed25519.NewKeyFromSeed(seed)
}

// calibrate writes files of random runs: some near the law, some far from it, some under a name that another file has,
// some under another key, and some damaged.
func calibrate(t *testing.T, random *rand.Rand, s shelf) *calibrations {
	t.Helper()
	mine, theirs := signKey(1), signKey(2)
	out := &calibrations{dir: t.TempDir(), key: ed25519.PublicKey(mine[ed25519.SeedSize:])}
	plans := planner.New(s.catalog, planner.Settings{Engines: render.Engines()})
	var runs [6][]catalog.Measurement
	for i, name := range s.models {
		if run, ok := drawRun(t, random, s.catalog, plans, name); ok {
			number := i % len(runs)
			run.Name = fmt.Sprintf("run-%d-%d", number/2, len(runs[number]))
			runs[number] = append(runs[number], run)
		}
	}
	for number := range runs {
		f := calibration.File{SchemaVersion: calibration.SchemaVersion, Measurements: runs[number]}
		key := mine
		if number == 4 {
			key = theirs
		}
		if err := f.Sign(key); err != nil {
			t.Fatal(err)
		}
		data, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(out.dir, fmt.Sprintf("%d.yaml", number))
		if number == 5 {
			data = []byte(strings.Replace(string(data), "concurrency: ", "concurrency: 1", 1))
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if number < 4 {
			out.valid = append([]string{file}, out.valid...) // the order of the flags must not matter
		}
	}
	return out
}

// drawRun makes up a run of a model on the machine of its plan.
func drawRun(t *testing.T, random *rand.Rand, c *catalog.Catalog, plans *planner.Planner, name string) (catalog.Measurement, bool) {
	t.Helper()
	known, err := c.ResolveModel(name)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := plans.Plan(planner.Request{Model: &known})
	if impossible := (*planner.InfeasibleError)(nil); errors.As(err, &impossible) {
		return catalog.Measurement{}, false
	} else if err != nil {
		t.Fatal(err)
	}
	machine, err := c.ResolveSKU(plan.InstanceType)
	if err != nil || plan.Nodes > 1 || plan.Performance == nil || plan.Memory == nil || plan.Engine != "vllm" {
		return catalog.Measurement{}, false
	}
	engine, _ := c.Engine(plan.Engine)
	speed, noise := plan.Performance, 0.6+random.Float64()
	run := catalog.Measurement{
		Engine: plan.Engine, Version: engine.Version, Model: plan.Artifact.Repo, Quantization: plan.Artifact.Quantization,
		KVType: plan.KVCacheType, GPU: machine.GPU, TensorParallel: max(plan.TensorParallel, 1), PipelineParallel: plan.PipelineParallel,
		WholeExperts: plan.ExpertParallel, InputTokens: speed.InputTokens, OutputTokens: speed.OutputTokens,
		Concurrency: max(speed.Concurrency/max(plan.DataParallel, 1), 1), TTFTMillis: speed.TTFTMillis * noise, TPOTMillis: speed.TPOTMillis * noise,
		Source: "made up", Date: "2026-11-24",
		Memory: catalog.MeasuredMemory{
			KVCacheGiB:  max(plan.Memory.KVCache-4*random.Float64(), 0.1),
			MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens, Utilization: plan.GPUMemoryUtilization,
		},
	}
	each := run.TTFTMillis + float64(run.OutputTokens-1)*run.TPOTMillis
	run.OutputTokensPerSecond = float64(run.Concurrency*run.OutputTokens) / each * 1e3
	return run, true
}

// planner returns the controller's planner of a case.
func (c *testCase) controllersPlanner(t *testing.T) *evidence.Planner {
	t.Helper()
	build := func(known *catalog.Catalog) *planner.Planner { return planner.New(known, c.planner) }
	out := evidence.NewPlanner(build(c.shelf.catalog))
	if c.shelf.measured == nil {
		return out
	}
	counts, err := evidence.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	files := evidence.Files{
		Dir: c.shelf.measured.dir, Keys: []ed25519.PublicKey{c.shelf.measured.key}, Base: c.shelf.catalog, Build: build, Planner: out,
		Metrics: counts, Changed: func(context.Context) {},
	}
	files.Look(t.Context())
	return out
}

// flags name the files for the command line, which refuses to go on without one of them.
func (m *calibrations) flags() []string {
	if m == nil {
		return nil
	}
	out := []string{"--calibration-key", calibration.EncodeKey(m.key)}
	for _, file := range m.valid {
		out = append(out, "--calibration", file)
	}
	return out
}
