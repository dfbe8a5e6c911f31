// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
)

// TestBringYourOwnNeverBuys tries every combination of KAITO's fields with a labelSelector and without an instanceType.
// Each plans only for existing nodes.
func TestBringYourOwnNeverBuys(t *testing.T) {
	count := 3
	fields := []func(*v1beta1.Workspace){
		func(ws *v1beta1.Workspace) { ws.Resource.Count = &count },
		func(ws *v1beta1.Workspace) { ws.Resource.PreferredNodes = []string{"node-1"} },
		func(ws *v1beta1.Workspace) {
			ws.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionAccelerator, Count: &count}
		},
		func(ws *v1beta1.Workspace) {
			ws.Inference.Preset = nil
			ws.Inference.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		},
		func(ws *v1beta1.Workspace) { ws.Inference.Config = "config" },
		func(ws *v1beta1.Workspace) {
			ws.Inference.Adapters = []v1beta1.AdapterSpec{{Source: &v1beta1.DataSource{Name: "a", Image: "i"}}}
		},
		func(ws *v1beta1.Workspace) {
			ws.Annotations = map[string]string{
				v1beta1.AnnotationNodeClassName: "gpu", v1beta1.AnnotationBypassResourceChecks: "",
				v1beta1.AnnotationEnableLoadBalancer: "True", v1beta1.AnnotationRuntime: "transformers",
			}
		},
		func(ws *v1beta1.Workspace) { ws.Labels = map[string]string{v1beta1.LabelInferenceSet: "set"} },
	}
	for set := range 1 << len(fields) {
		ws := preset("some-model")
		ws.Resource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}}
		for i, field := range fields {
			if set&(1<<i) != 0 {
				field(ws)
			}
		}
		if err := request.Check(ws); err != nil {
			t.Errorf("fields %b: %v", set, err)
		}
		asked := request.ForTemplate
		if ws.Inference.Template == nil {
			asked = func(ws *v1beta1.Workspace) planner.Request {
				out, err := request.ForModel(ws, someModel("vllm"), nil, known(t))
				if err != nil {
					t.Errorf("fields %b: %v", set, err)
				}
				return out
			}
		}
		if source := asked(ws).NodeSource; source != v1beta1.NodeSourceExisting {
			t.Errorf("fields %b: node source %q, want %s", set, source, v1beta1.NodeSourceExisting)
		}
	}
}

// preset returns a Workspace with a model's name.
func preset(name string, change ...func(*v1beta1.Workspace)) *v1beta1.Workspace {
	ws := &v1beta1.Workspace{}
	ws.Name, ws.Namespace = "chat", "team-a"
	ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: name}}
	for _, c := range change {
		c(ws)
	}
	return ws
}

func TestCheck(t *testing.T) {
	rate := func(text string) func(*v1beta1.Workspace) {
		return func(ws *v1beta1.Workspace) {
			ws.Inference.Objectives = &v1beta1.ObjectivesSpec{RequestsPerSecond: text}
		}
	}
	tests := []struct {
		reason string
		ws     *v1beta1.Workspace
		want   string
	}{
		{reason: "a model's name is enough", ws: preset("some-model")},
		{
			reason: "nothing is asked for",
			ws:     preset("", func(ws *v1beta1.Workspace) { ws.Inference = nil }),
			want:   "SpecInvalid: exactly one of inference and tuning must be set",
		},
		{
			reason: "tuning buys nothing",
			ws:     preset("", func(ws *v1beta1.Workspace) { ws.Inference, ws.Tuning = nil, &v1beta1.TuningSpec{} }),
			want: "TuningNotAvailable: this version does not support tuning, so nothing is bought: " +
				"delete this Workspace, or keep it until you install a version with tuning",
		},
		{
			reason: "a preset and a template",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Inference.Template = &corev1.PodTemplateSpec{}
			}),
			want: "SpecInvalid: exactly one of inference.preset and inference.template must be set",
		},
		{
			reason: "a template that is none",
			ws:     preset("some-model", func(ws *v1beta1.Workspace) { ws.Inference.TemplateError = "containers: 5" }),
			want:   "SpecInvalid: inference.template cannot be read: containers: 5",
		},
		{
			reason: "a template without containers",
			ws: preset("", func(ws *v1beta1.Workspace) {
				ws.Inference.Preset, ws.Inference.Template = nil, &corev1.PodTemplateSpec{}
			}),
			want: "SpecInvalid: inference.template.spec.containers is empty: name at least one container",
		},
		{
			reason: "a price that buys nothing",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "0"}
			}),
			want: `SpecInvalid: resource.placement.maxHourlyPrice is "0", which buys nothing: give a price above 0 in USD per hour, or set suspend: true`,
		},
		{
			reason: "a price that every price is below",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "Inf"}
			}),
			want: `SpecInvalid: resource.placement.maxHourlyPrice is "Inf", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
		{
			reason: "a price that no price is above",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "NaN"}
			}),
			want: `SpecInvalid: resource.placement.maxHourlyPrice is "NaN", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
		{
			reason: "a price beyond all numbers",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "1e999"}
			}),
			want: `SpecInvalid: resource.placement.maxHourlyPrice is "1e999", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
		{
			reason: "a rate of requests",
			ws:     preset("some-model", rate("2.5")),
		},
		{
			reason: "no requests",
			ws:     preset("some-model", rate("0")),
			want:   `SpecInvalid: inference.objectives.requestsPerSecond is "0", which is not a rate: give a number above 0 and below 1e+06, such as 2.5`,
		},
		{
			reason: "endless requests",
			ws:     preset("some-model", rate("Inf")),
			want:   `SpecInvalid: inference.objectives.requestsPerSecond is "Inf", which is not a rate: give a number above 0 and below 1e+06, such as 2.5`,
		},
		{
			reason: "requests that are not counted",
			ws:     preset("some-model", rate("NaN")),
			want:   `SpecInvalid: inference.objectives.requestsPerSecond is "NaN", which is not a rate: give a number above 0 and below 1e+06, such as 2.5`,
		},
		{
			reason: "a slice of a GPU of existing nodes",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionMIG, Profile: "1g.10gb"}
				ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceExisting}
			}),
		},
		{
			reason: "a slice of a GPU that would be bought",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionMIG, Profile: "1g.10gb"}
			}),
			want: "NotSupported: resource.partition takes some of the GPUs of existing nodes, but this Workspace may buy machines, so nothing " +
				"is bought for it: create it again without resource.partition, or with resource.placement.nodeSource Existing",
		},
		{
			reason: "a share of a machine that would be bought",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionAccelerator, Count: new(1)}
			}),
			want: "NotSupported: resource.partition takes some of the GPUs of existing nodes, but this Workspace may buy machines, so nothing " +
				"is bought for it: create it again without resource.partition, or with resource.placement.nodeSource Existing",
		},
		{
			reason: "no number",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "cheap"}
			}),
			want: `SpecInvalid: resource.placement.maxHourlyPrice is "cheap", which is not a price: give a number above 0 in USD per hour, such as 12.50`,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := ""
			if err := request.Check(test.ws); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
