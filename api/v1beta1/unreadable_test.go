// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestUnreadableParts(t *testing.T) {
	pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	disk := &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory"}}
	tests := []struct {
		reason string
		json   string
		want   Workspace
	}{
		{
			reason: "what can be read is read",
			json: `{"inference": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}},
				"adapters": [{"source": {"name": "a", "volumeSource": {"emptyDir": {"medium": "Memory"}}}, "strength": "1"}]}}`,
			want: Workspace{Inference: &InferenceSpec{
				Template: pod,
				Adapters: []AdapterSpec{{Source: &DataSource{Name: "a", Volume: disk}, Strength: new("1")}},
			}},
		},
		{
			reason: "an absent template stays absent, a null one is absent",
			json:   `{"inference": {"template": null, "config": "c"}}`,
			want:   Workspace{Inference: &InferenceSpec{Config: "c"}},
		},
		{
			reason: "a template of the wrong shape leaves the rest readable",
			json:   `{"inference": {"config": "c", "template": {"spec": {"containers": 5}}}, "suspend": true}`,
			want: Workspace{
				Inference: &InferenceSpec{
					Config:        "c",
					Template:      &corev1.PodTemplateSpec{},
					TemplateError: "json: cannot unmarshal number into Go struct field PodSpec.spec.containers of type []v1.Container",
				},
				Suspend: true,
			},
		},
		{
			reason: "a volume of the wrong shape, where data comes from and where it goes",
			json:   `{"tuning": {"method": "lora", "input": {"name": "a", "volumeSource": 5}, "output": {"image": "b", "volumeSource": {"emptyDir": []}}}}`,
			want: Workspace{Tuning: &TuningSpec{
				Method: "lora",
				Input: &DataSource{
					Name: "a", Volume: &corev1.VolumeSource{},
					VolumeError: "json: cannot unmarshal number into Go value of type v1.VolumeSource",
				},
				Output: &DataDestination{
					Image: "b", Volume: &corev1.VolumeSource{},
					VolumeError: "json: cannot unmarshal array into Go struct field VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
				},
			}},
		},
		{
			reason: "names are case-sensitive, as for the API server",
			json:   `{"inference": {"Template": {"spec": {}}, "CONFIG": "c"}}`,
			want:   Workspace{Inference: &InferenceSpec{}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			content := map[string]any{}
			if err := json.Unmarshal([]byte(tt.json), &content); err != nil {
				t.Fatal(err)
			}
			var converted Workspace
			object := &unstructured.Unstructured{Object: content}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &converted); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, converted); diff != "" {
				t.Errorf("converted (-want +got):\n%s", diff)
			}
			var read Workspace
			if err := json.Unmarshal([]byte(tt.json), &read); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, read); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

// Reading into an object that was used before must not leave the old template behind.
func TestReadingAgain(t *testing.T) {
	used := InferenceSpec{Template: &corev1.PodTemplateSpec{}, TemplateError: "old"}
	if err := json.Unmarshal([]byte(`{"preset": {"name": "m"}}`), &used); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(InferenceSpec{Preset: &PresetSpec{Name: "m"}}, used); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
