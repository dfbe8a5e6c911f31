// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/presets"
)

// loaded reads the catalogue once. The tests can share it, because it is immutable.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

func known(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func someModel(engines ...string) *model.Model {
	m := &model.Model{Name: "some-model"}
	for _, e := range engines {
		m.Artifacts = append(m.Artifacts, model.Artifact{Engine: e})
	}
	return m
}

func TestForModel(t *testing.T) {
	everything := preset("some-model", func(ws *v1beta1.Workspace) {
		ws.Resource = v1beta1.ResourceSpec{
			Count: new(3), InstanceType: "type",
			Placement: &v1beta1.PlacementSpec{
				InstanceTypes: []string{"a", "b"}, Accelerators: []string{"L4"}, Zones: []string{"z1"},
				CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot}, MaxHourlyPrice: "7.50",
			},
		}
		ws.Inference.Engine = &v1beta1.EngineSpec{
			Name: "vllm", AllowedQuantizations: []string{"awq"}, AllowedKVCacheTypes: []string{"fp8"},
			Args: map[string]v1beta1.EngineArg{"tensor-parallel-size": "4", "max_model_len": "4096"},
		}
		ws.Inference.Objectives = &v1beta1.ObjectivesSpec{
			MaxModelLen: new(int32(2048)), Concurrency: new(int32(5)), InputTokens: new(int32(100)), OutputTokens: new(int32(50)),
			TimeToFirstToken: &metav1.Duration{Duration: time.Second}, TimePerOutputToken: &metav1.Duration{Duration: time.Millisecond},
			OptimizeFor: v1beta1.OptimizeForLatency, RequestsPerSecond: "2.5",
		}
	})
	vllm := someModel("vllm")
	tests := []struct {
		reason string
		ws     *v1beta1.Workspace
		model  *model.Model
		config string
		want   planner.Request
	}{
		{
			reason: "a name alone leaves everything to the planner",
			ws:     preset("some-model"), model: vllm,
			want: planner.Request{NodeSource: v1beta1.NodeSourceAny, Model: vllm},
		},
		{
			reason: "a count of 1 is what the schema puts where nothing was given",
			ws:     preset("some-model", func(ws *v1beta1.Workspace) { ws.Resource.Count = new(1) }), model: vllm,
			want: planner.Request{NodeSource: v1beta1.NodeSourceAny, Model: vllm},
		},
		{
			reason: "every field; the Workspace's flags win over the ConfigMap's, by any spelling",
			ws:     everything, model: vllm,
			config: "vllm:\n  max-model-len: 1024\n  tp: 2\n  gpu-memory-utilization: 0.8\n  enforce-eager: true\n" +
				"  kv-cache-dtype: fp8\n  max-num-seqs: 64\n  pipeline-parallel-size: 2\n  data-parallel-size: 1\n  ep: true\n  dcp: 2\n",
			want: planner.Request{
				Model: vllm, Engine: "vllm", NodeSource: v1beta1.NodeSourceAny,
				Objectives: planner.Objectives{
					MaxModelLen: 2048, Concurrency: 5, InputTokens: 100, OutputTokens: 50,
					TimeToFirstToken: time.Second, TimePerOutputToken: time.Millisecond, OptimizeFor: v1beta1.OptimizeForLatency,
					RequestsPerSecond: 2.5,
				},
				Constraints: planner.Constraints{
					InstanceType: "type", InstanceTypes: []string{"a", "b"}, Accelerators: []string{"L4"}, Zones: []string{"z1"},
					CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacitySpot}, MaxHourlyPrice: 7.5, MaxNodes: 3,
					AllowedQuantizations: []string{"awq"}, AllowedKVCacheTypes: []string{"fp8"},
					Engine: planner.EngineSettings{
						MaxModelLen: 4096, TensorParallel: 4, PipelineParallel: 2, DataParallel: 1, ContextParallel: 2, MaxNumSeqs: 64,
						GPUMemoryUtilization: 0.8, Eager: true, KVCacheType: "fp8", ExpertParallel: new(true),
					},
				},
			},
		},
		{
			reason: "a word beside numbers leaves the choice to the planner",
			ws:     preset("some-model"), model: vllm, config: "vllm:\n  max-model-len: auto\n",
			want: planner.Request{NodeSource: v1beta1.NodeSourceAny, Model: vllm},
		},
		{
			reason: "limits of zero for images and videos leave text alone",
			ws:     preset("some-model"), model: vllm, config: "vllm:\n  limit-mm-per-prompt: '{\"image\": 0, \"video\": {\"count\": 0}}'\n",
			want: planner.Request{
				NodeSource: v1beta1.NodeSourceAny, Model: vllm,
				Constraints: planner.Constraints{Engine: planner.EngineSettings{Media: physics.Media{NoImages: true, NoVideos: true}}},
			},
		},
		{
			reason: "one image, and no video",
			ws:     preset("some-model"), model: vllm, config: "vllm:\n  limit-mm-per-prompt: '{\"image\": 1, \"video\": 0}'\n",
			want: planner.Request{
				NodeSource: v1beta1.NodeSourceAny, Model: vllm,
				Constraints: planner.Constraints{Engine: planner.EngineSettings{Media: physics.Media{Images: 1, NoVideos: true}}},
			},
		},
		{
			reason: "images of a size; kinds that the engine does not plan for change nothing",
			ws:     preset("some-model"), model: vllm,
			config: "vllm:\n  limit-mm-per-prompt: '{\"image\": {\"count\": 2, \"width\": 640, \"height\": 480}, \"audio\": {\"count\": 1, \"length\": 9}}'\n",
			want: planner.Request{
				NodeSource: v1beta1.NodeSourceAny, Model: vllm,
				Constraints: planner.Constraints{Engine: planner.EngineSettings{Media: physics.Media{Images: 2, Width: 640, Height: 480}}},
			},
		},
		{
			reason: "the engine's own switch does the same",
			ws:     preset("some-model"), model: vllm, config: "vllm:\n  language-model-only: true\n",
			want: planner.Request{
				NodeSource: v1beta1.NodeSourceAny, Model: vllm,
				Constraints: planner.Constraints{Engine: planner.EngineSettings{Media: physics.Media{TextOnly: true}}},
			},
		},
		{
			reason: "another engine's section is not for this one",
			ws:     preset("some-model"), model: someModel("llamacpp", "vllm"), config: "vllm:\n  max-model-len: 1024\n",
			want: planner.Request{NodeSource: v1beta1.NodeSourceAny, Model: someModel("llamacpp", "vllm")},
		},
		{
			reason: "an engine that nobody knows is for the planner to refuse",
			ws: preset("some-model", func(ws *v1beta1.Workspace) {
				ws.Inference.Engine = &v1beta1.EngineSpec{Name: "other", Args: map[string]v1beta1.EngineArg{"max-model-len": "x"}}
			}), model: vllm,
			want: planner.Request{NodeSource: v1beta1.NodeSourceAny, Model: vllm, Engine: "other"},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			config, err := engine.ParseConfig([]byte(test.config))
			if err != nil {
				t.Fatal(err)
			}
			got, err := request.ForModel(test.ws, test.model, config, known(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	for _, test := range []struct{ reason, config, want string }{
		{
			"a number that is none", "vllm: {max-model-len: much}",
			`SpecInvalid: section "vllm" of inference_config.yaml: flag "max-model-len" of engine vllm needs a whole number, as in 32768, 32k or 32K or one of auto, not "much"`,
		},
		{
			"limits in a list", "vllm: {limit-mm-per-prompt: '[1]'}",
			`SpecInvalid: flag "limit-mm-per-prompt" of engine vllm: needs an object with a limit for each kind, such as {"image": 2, "video": 0}`,
		},
		{
			"a limit that is no number", "vllm: {limit-mm-per-prompt: '{\"image\": \"two\"}'}",
			`SpecInvalid: flag "limit-mm-per-prompt" of engine vllm: image: needs a whole number or an object with count, width and height`,
		},
		{
			"a limit below none", "vllm: {limit-mm-per-prompt: '{\"video\": -1}'}",
			`SpecInvalid: flag "limit-mm-per-prompt" of engine vllm: video: a limit must not be negative`,
		},
		{
			"an option that images lack", "vllm: {limit-mm-per-prompt: '{\"image\": {\"size\": 5}}'}",
			`SpecInvalid: flag "limit-mm-per-prompt" of engine vllm: image: needs a whole number or an object with count, width and height`,
		},
		{
			"no GPUs", "vllm: {tensor-parallel-size: 0}",
			`SpecInvalid: flag "tensor-parallel-size" of engine vllm is 0: it must be at least 1`,
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			config, err := engine.ParseConfig([]byte(test.config))
			if err != nil {
				t.Fatal(err)
			}
			_, err = request.ForModel(preset("some-model"), someModel("vllm"), config, known(t))
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestForTemplate(t *testing.T) {
	ws := preset("", func(ws *v1beta1.Workspace) {
		limits := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
		container := corev1.Container{Resources: corev1.ResourceRequirements{Limits: limits}}
		ws.Resource.Count = new(3)
		ws.Inference.Preset = nil
		ws.Inference.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container, container}}}
	})
	want := planner.Request{
		NodeSource: v1beta1.NodeSourceAny, Constraints: planner.Constraints{MaxNodes: 3}, Template: &planner.TemplateDemand{Nodes: 3, GPUs: 4},
	}
	if diff := cmp.Diff(want, request.ForTemplate(ws)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
