// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/calibration"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// hurried is a Workspace with a floor that the machine reaches only with a measured speed: the law's 37 ms are within
// the margin of an estimate. Its plan is made, and nothing is bought.
func hurried(namespace, name string) *v1beta1.Workspace {
	ws := plannerForm(namespace, name)
	ws.Suspend = true
	ws.Inference.Preset.Name = "qwen3-8b"
	ws.Inference.Objectives = &v1beta1.ObjectivesSpec{TimePerOutputToken: &metav1.Duration{Duration: 42 * time.Millisecond}}
	ws.Resource.Placement = &v1beta1.PlacementSpec{Accelerators: []string{"A10"}, MaxHourlyPrice: "3.5"}
	return ws
}

// calibrationFile is a run on the Workspace's machine, signed.
func calibrationFile(t *testing.T, key ed25519.PrivateKey, tpot float64) string {
	t.Helper()
	f := calibration.File{SchemaVersion: calibration.SchemaVersion, Measurements: []catalog.Measurement{{
		Name: "a10", Engine: "vllm", Version: "0.31.0", Model: "Qwen/Qwen3-8B", Quantization: "bf16", GPU: "A10", TensorParallel: 1,
		InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TTFTMillis: 300, TPOTMillis: tpot,
		OutputTokensPerSecond: 4 * 256 / (0.3 + 255*tpot/1e3), Source: "made up", Date: "2026-11-24",
	}}}
	if err := f.Sign(key); err != nil {
		t.Fatal(err)
	}
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCalibrationFilesReachPlans: a new file at run time makes a plan possible, and a deleted one changes no existing
// plan.
func TestCalibrationFilesReachPlans(t *testing.T) {
	w := enter(t)
	mine, theirs := ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed([]byte(strings.Repeat("b", 32)))
	o := w.options()
	o.Clouds = []string{"azure"}
	o.Calibration = options.Calibration{Files: t.TempDir(), Keys: []ed25519.PublicKey{ed25519.PublicKey(mine[ed25519.SeedSize:])}}
	// The first is not by a key of the administrator's. With its run, a token would take 30 ms.
	files := map[string]string{"0.yaml": calibrationFile(t, theirs, 30), "1.yaml": calibrationFile(t, mine, 38)}
	write := func() {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(o.Calibration.Files, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	isMeasured := func(ws *v1beta1.Workspace) {
		w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
		got := ws.Status.Plan.Performance
		if got.Basis != v1beta1.BasisMeasured || got.TimePerOutputToken != "38ms" {
			t.Errorf("%s: time per output token %s, %s; want 38ms, measured", ws.Name, got.TimePerOutputToken, got.Basis)
		}
	}

	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	namespace := w.namespace(t)
	first := hurried(namespace, "first")
	w.create(t, first)
	w.untilCondition(t, first, v1beta1.ConditionPlanned, metav1.ConditionFalse, "")
	write()
	isMeasured(first)

	for name := range files {
		if err := os.Remove(filepath.Join(o.Calibration.Files, name)); err != nil {
			t.Fatal(err)
		}
	}
	during(t, "the plan that is made, past the next look", 12*time.Second, quiet(life))
	isMeasured(first)
	second := hurried(namespace, "second")
	w.create(t, second)
	w.untilCondition(t, second, v1beta1.ConditionPlanned, metav1.ConditionFalse, "")

	// A new leader reads the files before its first plan.
	life.end(t)
	write()
	third := hurried(namespace, "third")
	w.create(t, third)
	w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	isMeasured(third)
	isMeasured(second)
	for _, ws := range []*v1beta1.Workspace{first, second, third} {
		w.remove(t, ws)
	}
}
