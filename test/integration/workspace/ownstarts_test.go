// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// onA10 is a Workspace on a machine with little room for its model.
func onA10(namespace, name string, suspend bool) *v1beta1.Workspace {
	ws := named(namespace, name, "Standard_NV36ads_A10_v5")
	ws.Inference.Preset.Name, ws.Suspend = "qwen3-8b", suspend
	return ws
}

// learning is a world in which plans use measurements of the Workspaces' own engines.
type learning struct {
	*world
	life *life
	// first serves. second, in the same namespace, and other, in another one, are not created yet.
	first, second, other *v1beta1.Workspace
}

// beginLearning starts a controller with these sources of measured figures, and waits until the first Workspace serves.
func beginLearning(t *testing.T, from options.Calibration) *learning {
	t.Helper()
	w := enter(t)
	o := w.options()
	o.Calibration = from
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	mine, theirs := w.namespace(t), w.namespace(t)
	first := onA10(mine, "first", false)
	w.create(t, first)
	w.untilServing(t, first)
	return &learning{world: w, life: life, first: first, second: onA10(mine, "second", true), other: onA10(theirs, "other", true)}
}

// report puts an engine's figures into the status of the first Workspace, as the controller does where engines run. The
// controller must then send nothing.
func (l *learning) report(t *testing.T, engine *v1beta1.EngineStatus) {
	t.Helper()
	before := l.first.DeepCopy()
	l.first.Status.Engine = engine
	if err := l.client.Status().Patch(t.Context(), l.first, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	during(t, "what serves", 2*time.Second, quiet(l.life))
}

// end removes all three Workspaces.
func (l *learning) end(t *testing.T) {
	t.Helper()
	for _, ws := range []*v1beta1.Workspace{l.first, l.second, l.other} {
		l.remove(t, ws)
	}
}

// TestPlansLearnFromStarts: an engine that started with less KV cache than planned lowers the next plans of its
// namespace, and no others. Accepted plans stay, and nothing is written for it.
func TestPlansLearnFromStarts(t *testing.T) {
	w := beginLearning(t, options.Calibration{OwnStarts: true})
	revision := w.first.Status.Plan.Revision
	object := &appsv1.ControllerRevision{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.first.Namespace, Name: revision}, object); err != nil {
		t.Fatal(err)
	}
	pinned, err := render.Decode(object)
	if err != nil {
		t.Fatal(err)
	}

	w.report(t, &v1beta1.EngineStatus{
		Revision: revision, KVCacheTokens: &v1beta1.EngineFigure{Actual: strconv.Itoa(pinned.Plan.KVCacheTokens * 9 / 10)},
	})

	for _, test := range []struct {
		ws    *v1beta1.Workspace
		want  float64
		basis v1beta1.Basis
	}{
		{w.second, pinned.Plan.Memory.KVCache * 0.9, v1beta1.BasisMeasured},
		{w.other, pinned.Plan.Memory.KVCache, pinned.Plan.Memory.Basis},
	} {
		w.create(t, test.ws)
		w.untilCondition(t, test.ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
		memory := test.ws.Status.Plan.Memory
		got, err := strconv.ParseFloat(memory.KVCache, 64)
		if err != nil || math.Abs(got-test.want) > 0.01 || memory.Basis != test.basis {
			t.Errorf("%s: KV cache %s GiB, %s, error %v; want %.2f, %s", test.ws.Name, memory.KVCache, memory.Basis, err, test.want, test.basis)
		}
	}
	w.read(t, w.first)
	if w.first.Status.Plan.Revision != revision {
		t.Errorf("the plan that serves was replaced: %s", w.first.Status.Plan.Revision)
	}
	w.end(t)
}

// TestPlansLearnFromSpeeds: an engine that served more slowly than predicted slows the next plans of its namespace, and
// no others. Nothing is written for that while the engine serves.
func TestPlansLearnFromSpeeds(t *testing.T) {
	w := beginLearning(t, options.Calibration{OwnSpeeds: true})
	planned := w.first.Status.Plan.Performance
	took, err := time.ParseDuration(planned.TimePerOutputToken)
	if err != nil {
		t.Fatal(err)
	}

	w.report(t, &v1beta1.EngineStatus{Revision: w.first.Status.Plan.Revision, Speed: &v1beta1.EngineSpeed{
		TimePerOutputToken: strconv.FormatFloat(1.3*float64(took)/1e6, 'f', 3, 64), Concurrency: planned.Concurrency,
		InputTokens: planned.InputTokens, OutputTokens: planned.OutputTokens, Requests: 100, Tokens: 10_000,
		Time: metav1.NewTime(time.Now().Truncate(time.Second)),
	}})

	for _, test := range []struct {
		ws       *v1beta1.Workspace
		slowdown float64
	}{{w.second, 1.3}, {w.other, 0}} {
		w.create(t, test.ws)
		w.untilCondition(t, test.ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
		got := test.ws.Status.Plan.Performance
		slowdown := 0.0
		if got.Slowdown != "" {
			if slowdown, err = strconv.ParseFloat(got.Slowdown, 64); err != nil {
				t.Fatal(err)
			}
		}
		if math.Abs(slowdown-test.slowdown) > 0.02 || got.Basis != planned.Basis {
			t.Errorf("%s: %+v; want %v times %s, %s", test.ws.Name, got, test.slowdown, planned.TimePerOutputToken, planned.Basis)
		}
	}
	w.end(t)
}
