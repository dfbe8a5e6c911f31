// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

func adapter(name string, change ...func(*v1beta1.AdapterSpec)) v1beta1.AdapterSpec {
	out := v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: name, Repository: "org/" + name}}
	for _, c := range change {
		c(&out)
	}
	return out
}

func private(secret string) func(*v1beta1.AdapterSpec) {
	return func(a *v1beta1.AdapterSpec) {
		a.Source.Repository, a.Source.Image, a.Source.ImagePullSecrets = "", "registry.example/a:1", []string{secret}
	}
}

func liveRevision(list ...v1beta1.AdapterSpec) *Revision {
	out := &Revision{}
	out.LiveAdapters, out.ServedNames, out.Plan.AdapterSlots = true, []string{"phi-4"}, 2
	out.Inputs = &render.Inputs{Inference: &v1beta1.InferenceSpec{Adapters: list}}
	return out
}

// TestChangesOnlyAdapters: every other change needs a new plan.
func TestChangesOnlyAdapters(t *testing.T) {
	base := liveRevision(adapter("a"))
	for _, tc := range []struct {
		reason string
		of     *Revision
		change func(*render.Inputs)
		want   bool
	}{
		{"nothing", base, func(*render.Inputs) {}, true},
		{"another adapter", base, func(in *render.Inputs) { in.Inference.Adapters = []v1beta1.AdapterSpec{adapter("b")} }, true},
		{"no adapter", base, func(in *render.Inputs) { in.Inference.Adapters = nil }, true},
		{"and the engine", base, func(in *render.Inputs) { in.Inference.Engine = &v1beta1.EngineSpec{} }, false},
		{"and the machine", base, func(in *render.Inputs) { in.Resource.InstanceType = "x" }, false},
		{"and the ConfigMap", base, func(in *render.Inputs) { in.Config = "x" }, false},
		{"and an annotation", base, func(in *render.Inputs) { in.Annotations = map[string]string{"a": "b"} }, false},
		{"the pods do not change adapters", &Revision{Revision: render.Revision{Inputs: base.Inputs}}, func(*render.Inputs) {}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := render.Inputs{Inference: base.Inputs.Inference.DeepCopy()}
			tc.change(&in)
			if got := tc.of.ChangesOnlyAdapters(in); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	if len(base.Inputs.Inference.Adapters) != 1 {
		t.Error("the comparison changes the inputs of the revision")
	}
	if unknown := (&Revision{Revision: render.Revision{Rendered: base.Rendered}}); unknown.ChangesOnlyAdapters(*base.Inputs) {
		t.Error("a revision without inputs cannot be compared")
	}
}

func TestAdapterObstacle(t *testing.T) {
	for _, tc := range []struct {
		reason string
		of     *Revision
		list   []v1beta1.AdapterSpec
		want   string
	}{
		{"as many as slots", liveRevision(), []v1beta1.AdapterSpec{adapter("a"), adapter("b")}, ""},
		{"more than slots", liveRevision(), []v1beta1.AdapterSpec{adapter("a"), adapter("b"), adapter("c")}, "3 adapters need as many slots, and the plan has memory for 2"},
		{"a volume", liveRevision(), []v1beta1.AdapterSpec{adapter("a", func(a *v1beta1.AdapterSpec) { a.Source.Volume = &corev1.VolumeSource{} })}, "the pod mounts the volume of adapter a when it starts"},
		{"trained strength", liveRevision(), []v1beta1.AdapterSpec{adapter("a", func(a *v1beta1.AdapterSpec) { a.Strength = new("1.0") })}, ""},
		{"another strength", liveRevision(), []v1beta1.AdapterSpec{adapter("a", func(a *v1beta1.AdapterSpec) { a.Strength = new("0.5") })}, "adapter a has a strength"},
		{"a name of the model", liveRevision(), []v1beta1.AdapterSpec{adapter("phi-4")}, "phi-4 is a name of the model"},
		{"the first Secret", liveRevision(), []v1beta1.AdapterSpec{adapter("a", private("pull"))}, "the pod mounts Secret pull when it starts"},
		{"the mounted Secret", liveRevision(adapter("a", private("pull"))), []v1beta1.AdapterSpec{adapter("b", private("pull"))}, ""},
		{"another Secret", liveRevision(adapter("a", private("pull"))), []v1beta1.AdapterSpec{adapter("b", private("other"))}, "the pod mounts Secret other when it starts"},
		{"no Secret any more", liveRevision(adapter("a", private("pull"))), []v1beta1.AdapterSpec{adapter("b")}, ""},
		{"no source", liveRevision(), []v1beta1.AdapterSpec{{}}, "an adapter has no source"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := tc.of.AdapterObstacle(tc.list)
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
