// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func set(change ...func(*v1beta1.InferenceSet)) *v1beta1.InferenceSet {
	out := &v1beta1.InferenceSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "chat", UID: "uid", Generation: 1}}
	out.Spec.Replicas = new(int32(2))
	out.Spec.Template.Metadata = v1beta1.TemplateMetadata{Labels: map[string]string{"team": "a"}}
	out.Spec.Template.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "m"}}
	for _, c := range change {
		c(out)
	}
	return out
}

func childOf(t *testing.T, set *v1beta1.InferenceSet) *v1beta1.Workspace {
	t.Helper()
	template, err := templateOf(set)
	if err != nil {
		t.Fatal(err)
	}
	return template.child(set, "chat-abcde")
}

func TestChild(t *testing.T) {
	got := childOf(t, set(func(s *v1beta1.InferenceSet) {
		s.Annotations = map[string]string{v1beta1.AnnotationRuntime: "vllm", "note": "not inherited"}
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"apps": "chat"}}
		s.Spec.Template.Metadata.Labels[v1beta1.LabelInferenceSet] = "of another set"
		s.Spec.Template.Resource.InstanceType = "t"
	}))
	want := &v1beta1.Workspace{
		TypeMeta: metav1.TypeMeta{APIVersion: "kaito.sh/v1beta1", Kind: "Workspace"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "chat-abcde",
			Labels:      map[string]string{"team": "a", "inferenceset.kaito.sh/created-by": "chat"},
			Annotations: map[string]string{"kaito.sh/runtime": "vllm", v1beta1.AnnotationTemplateMetadata: got.Annotations[v1beta1.AnnotationTemplateMetadata]},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "kaito.sh/v1beta1", Kind: "InferenceSet", Name: "chat", UID: "uid", Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Resource: v1beta1.ResourceSpec{
			InstanceType: "t", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"apps": "chat"}},
		},
		Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "m"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("child (-want +got):\n%s", diff)
	}
}

func TestCurrentAndUpdatable(t *testing.T) {
	tests := []struct {
		reason string
		// before changes the Workspace, and edit the template since then.
		before             func(*v1beta1.Workspace)
		edit               func(*v1beta1.InferenceSet)
		isCurrent, canEdit bool
	}{
		{"nothing changed", nil, nil, true, true},
		{"a count, which the template has not", func(ws *v1beta1.Workspace) { ws.Resource.Count = new(1) }, nil, true, true},
		{"a Workspace that KAITO's controller created", func(ws *v1beta1.Workspace) { ws.Annotations = nil }, nil, true, true},
		{"one that lost its label", func(ws *v1beta1.Workspace) { delete(ws.Labels, v1beta1.LabelInferenceSet) }, nil, false, true},
		{"one that a user changed", func(ws *v1beta1.Workspace) { ws.Inference.Config = "other" }, nil, false, true},
		{"a label of the user's own", func(ws *v1beta1.Workspace) { ws.Labels["note"] = "mine" }, nil, true, true},
		{"another label", nil, func(s *v1beta1.InferenceSet) { s.Spec.Template.Metadata.Labels["team"] = "b" }, false, true},
		{"a label that is taken out", nil, func(s *v1beta1.InferenceSet) { s.Spec.Template.Metadata.Labels = nil }, false, true},
		{"a ConfigMap", nil, func(s *v1beta1.InferenceSet) { s.Spec.Template.Inference.Config = "c" }, false, true},
		{"a limit of the price", nil, func(s *v1beta1.InferenceSet) {
			s.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "5"}
		}, false, true},
		{"a machine type, for the first time", nil, func(s *v1beta1.InferenceSet) { s.Spec.Template.Resource.InstanceType = "t" }, false, true},
		{"another machine type", func(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "u" }, func(s *v1beta1.InferenceSet) { s.Spec.Template.Resource.InstanceType = "t" }, false, false},
		{"no machine type any more", func(ws *v1beta1.Workspace) { ws.Resource.InstanceType = "u" }, nil, false, true},
		{"another model", nil, func(s *v1beta1.InferenceSet) { s.Spec.Template.Inference.Preset.Name = "n" }, false, false},
		{"a Secret, for the first time", nil, func(s *v1beta1.InferenceSet) {
			s.Spec.Template.Inference.Preset.PresetOptions.ModelAccessSecret = "hf"
		}, false, true},
		{"another Secret", func(ws *v1beta1.Workspace) { ws.Inference.Preset.PresetOptions.ModelAccessSecret = "old" }, nil, false, false},
		{"a selector", nil, func(s *v1beta1.InferenceSet) { s.Spec.Selector = &metav1.LabelSelector{} }, false, false},
		{"a share", nil, func(s *v1beta1.InferenceSet) {
			s.Spec.Template.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionMIG}
		}, false, false},
		{"a Workspace for tuning", func(ws *v1beta1.Workspace) { ws.Tuning, ws.Inference = &v1beta1.TuningSpec{}, nil }, nil, false, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws, edited := childOf(t, set()), set()
			if test.before != nil {
				test.before(ws)
			}
			if test.edit != nil {
				test.edit(edited)
			}
			desired := childOf(t, edited)
			if got := isCurrent(ws, desired); got != test.isCurrent {
				t.Errorf("isCurrent: %v, want %v", got, test.isCurrent)
			}
			if got := canUpdate(ws, desired); got != test.canEdit {
				t.Errorf("canUpdate: %v, want %v", got, test.canEdit)
			}
		})
	}
}
