// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestTakesAdapters: a set updates a Workspace in place, without another machine, only if its pod surely stays.
func TestTakesAdapters(t *testing.T) {
	adapter := func(name, source string) v1beta1.AdapterSpec {
		return v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: name, Repository: source}}
	}
	for _, tc := range []struct {
		reason string
		change func(ws, desired *v1beta1.Workspace)
		want   bool
	}{
		{"one more", func(_, desired *v1beta1.Workspace) {
			desired.Inference.Adapters = append(desired.Inference.Adapters, adapter("b", "org/b"))
		}, true},
		{"none", func(_, desired *v1beta1.Workspace) { desired.Inference.Adapters = nil }, true},
		{"more than slots", func(ws, desired *v1beta1.Workspace) {
			ws.Status.Endpoint.AdapterSlots = 1
			desired.Inference.Adapters = append(desired.Inference.Adapters, adapter("b", "org/b"))
		}, false},
		{"pods that cannot", func(ws, _ *v1beta1.Workspace) { ws.Status.Endpoint.AdapterSlots = 0 }, false},
		{"pods that cannot, and no adapters afterwards", func(ws, desired *v1beta1.Workspace) {
			ws.Status.Endpoint.AdapterSlots, desired.Inference.Adapters = 0, nil
		}, false},
		{"a status of another spec", func(ws, _ *v1beta1.Workspace) { ws.Status.ObservedGeneration = 1 }, false},
		{"no endpoint yet", func(ws, _ *v1beta1.Workspace) { ws.Status.Endpoint = nil }, false},
		{"other files under a name", func(_, desired *v1beta1.Workspace) {
			desired.Inference.Adapters = []v1beta1.AdapterSpec{adapter("a", "org/other")}
		}, false},
		{"a name that comes back", func(ws, desired *v1beta1.Workspace) {
			ws.Status.Adapters = []v1beta1.AdapterStatus{{Name: "b", State: v1beta1.AdapterUnloaded}}
			desired.Inference.Adapters = append(desired.Inference.Adapters, adapter("b", "org/b"))
		}, false},
		{"perhaps a name that comes back", func(ws, desired *v1beta1.Workspace) {
			ws.Status.Adapters = make([]v1beta1.AdapterStatus, mostKnown)
			desired.Inference.Adapters = append(desired.Inference.Adapters, adapter("b", "org/b"))
		}, false},
		{"a volume", func(_, desired *v1beta1.Workspace) {
			desired.Inference.Adapters[0].Source = &v1beta1.DataSource{Name: "c", Volume: &corev1.VolumeSource{}}
		}, false},
		{"another Secret", func(_, desired *v1beta1.Workspace) {
			desired.Inference.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Name: "c", Image: "r.example/c:1", ImagePullSecrets: []string{"pull"}}}}
		}, false},
		{"and the engine", func(_, desired *v1beta1.Workspace) { desired.Inference.Engine = &v1beta1.EngineSpec{Name: "vllm"} }, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{
				AdapterUpdates: v1beta1.AdapterUpdatesLive, Adapters: []v1beta1.AdapterSpec{adapter("a", "org/a")},
			}}
			ws.Generation, ws.Status.ObservedGeneration = 2, 2
			ws.Status.Endpoint = &v1beta1.Endpoint{AdapterSlots: 4}
			desired := ws.DeepCopy()
			tc.change(ws, desired)
			if got := TakesAdapters(ws, desired.Inference); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
