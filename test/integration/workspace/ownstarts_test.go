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
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// onA10 is a Workspace on a machine that has little room for its model.
func onA10(namespace, name string, suspend bool) *v1beta1.Workspace {
	ws := named(namespace, name, "Standard_NV36ads_A10_v5")
	ws.Inference.Preset.Name, ws.Suspend = "qwen3-8b", suspend
	return ws
}

// TestPlansLearnFromStarts: an engine that started with less KV cache than planned lowers the next plans of its
// namespace, and no others. Accepted plans stay, and nothing is written for it.
func TestPlansLearnFromStarts(t *testing.T) {
	w := enter(t)
	o := w.options()
	o.Calibration.OwnStarts = true
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	mine, theirs := w.namespace(t), w.namespace(t)
	first := onA10(mine, "first", false)
	w.create(t, first)
	w.untilServing(t, first)
	revision := first.Status.Plan.Revision
	object := &appsv1.ControllerRevision{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: mine, Name: revision}, object); err != nil {
		t.Fatal(err)
	}
	pinned, err := render.Decode(object)
	if err != nil {
		t.Fatal(err)
	}

	// No engine runs here. The status gets what the controller reads from one.
	before := first.DeepCopy()
	first.Status.Engine = &v1beta1.EngineStatus{
		Revision: revision, KVCacheTokens: &v1beta1.EngineFigure{Actual: strconv.Itoa(pinned.Plan.KVCacheTokens * 9 / 10)},
	}
	if err := w.client.Status().Patch(t.Context(), first, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	during(t, "what serves", 2*time.Second, quiet(life))

	second, other := onA10(mine, "second", true), onA10(theirs, "other", true)
	for _, test := range []struct {
		ws    *v1beta1.Workspace
		want  float64
		basis v1beta1.Basis
	}{
		{second, pinned.Plan.Memory.KVCache * 0.9, v1beta1.BasisMeasured},
		{other, pinned.Plan.Memory.KVCache, pinned.Plan.Memory.Basis},
	} {
		w.create(t, test.ws)
		w.untilCondition(t, test.ws, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
		memory := test.ws.Status.Plan.Memory
		got, err := strconv.ParseFloat(memory.KVCache, 64)
		if err != nil || math.Abs(got-test.want) > 0.01 || memory.Basis != test.basis {
			t.Errorf("%s: KV cache %s GiB, %s, error %v; want %.2f, %s", test.ws.Name, memory.KVCache, memory.Basis, err, test.want, test.basis)
		}
	}
	w.read(t, first)
	if first.Status.Plan.Revision != revision {
		t.Errorf("the plan that serves was replaced: %s", first.Status.Plan.Revision)
	}
	for _, ws := range []*v1beta1.Workspace{first, second, other} {
		w.remove(t, ws)
	}
}
