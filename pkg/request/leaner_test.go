// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
)

func TestLeaner(t *testing.T) {
	form := func(change func(*v1beta1.Workspace)) *v1beta1.Workspace {
		ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "m"}}}
		if change != nil {
			change(ws)
		}
		return ws
	}
	rate := func(ws *v1beta1.Workspace) {
		ws.Inference.Objectives = &v1beta1.ObjectivesSpec{RequestsPerSecond: "0.35"}
	}
	const set = `set inference.objectives.requestsPerSecond to "0.35"`
	tests := []struct {
		reason    string
		from      *v1beta1.Workspace
		want      *v1beta1.Workspace
		wantEdits []string
	}{
		{"a model alone", form(nil), form(rate), []string{set}},
		{
			"machines are free to choose", form(func(ws *v1beta1.Workspace) {
				ws.Resource.InstanceType, ws.Resource.Count = "big", new(2)
				ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{"big"}, Accelerators: []string{"A100"}, Zones: []string{"z"}, MaxHourlyPrice: "9"}
				ws.Inference.Objectives = &v1beta1.ObjectivesSpec{
					Concurrency: new(int32(64)), MaxModelLen: new(int32(4096)), TimeToFirstToken: &metav1.Duration{Duration: time.Second},
				}
			}),
			form(func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{Zones: []string{"z"}, MaxHourlyPrice: "9"}
				ws.Inference.Objectives = &v1beta1.ObjectivesSpec{
					RequestsPerSecond: "0.35", MaxModelLen: new(int32(4096)), TimeToFirstToken: &metav1.Duration{Duration: time.Second},
				}
			}),
			[]string{
				"remove resource.instanceType", "remove resource.count", "remove resource.placement.instanceTypes",
				"remove resource.placement.accelerators", "remove inference.objectives.concurrency", set,
			},
		},
		{"one machine is the default", form(func(ws *v1beta1.Workspace) { ws.Resource.Count = new(1) }), form(rate), []string{set}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			before := test.from.DeepCopy()
			got, edits := request.Leaner(test.from, 0.35)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantEdits, edits); diff != "" {
				t.Errorf("edits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.from); diff != "" {
				t.Errorf("the original changed (-before +after):\n%s", diff)
			}
		})
	}
}
