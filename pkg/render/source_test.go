// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// For every source of weights, each engine loads from the agent's path.
func TestEnginesLoadFromTheSource(t *testing.T) {
	s := open(t)
	claim := v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "models"}, Path: "team/phi"}
	artifact := v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "registry.example/phi:1"}}
	for _, tc := range []struct {
		reason, engine string
		from           v1beta1.WeightsSource
		model          string
		fetch          []string
	}{
		{"vLLM loads a directory", vllm.Name, claim, "/models/team/phi", []string{
			"verify", "--dest", "/models", "--place", "PersistentVolumeClaim models", "--weights", "team/phi/*.safetensors",
		}},
		{"llama.cpp loads a file", llamacpp.Name, claim, "/models/team/phi/phi-4-bf16.gguf", []string{
			"verify", "--dest", "/models", "--place", "PersistentVolumeClaim models", "--file", "team/phi/phi-4-bf16.gguf",
		}},
		{"vLLM from an artifact", vllm.Name, artifact, "/models", []string{
			"fetch", "--dest", "/models", "--image", "registry.example/phi:1", "--weights", "*.safetensors",
		}},
		{"llama.cpp from an artifact", llamacpp.Name, artifact, "/models/phi-4-bf16.gguf", []string{
			"fetch", "--dest", "/models", "--image", "registry.example/phi:1", "--file", "phi-4-bf16.gguf",
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "phi-4"}, Weights: &tc.from}}
			ws.Namespace, ws.Name = "team-a", "chat"
			m, err := s.catalog.ResolveModel("phi-4")
			if err != nil {
				t.Fatal(err)
			}
			plan, err := s.planner.Plan(planner.Request{Model: &m, Engine: tc.engine})
			if err != nil {
				t.Fatal(err)
			}
			data, _ := s.catalog.Engine(plan.Engine)
			rendered, _, err := render.Preset(render.Input{Workspace: ws, Model: m, Plan: plan, Data: data, Settings: render.Settings{
				Workload: workload.Settings{AgentImage: "modelberth-agent"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			pod := rendered.Template.Spec
			if !slices.Contains(pod.Containers[0].Args, tc.model) {
				t.Errorf("the engine's arguments are %q, want %s among them", pod.Containers[0].Args, tc.model)
			}
			args := pod.InitContainers[len(pod.InitContainers)-1].Args
			at := slices.Index(args, tc.fetch[0])
			if diff := cmp.Diff(tc.fetch, args[max(0, at):min(len(args), at+len(tc.fetch))]); diff != "" {
				t.Errorf("what the agent does (-want +got):\n%s", diff)
			}
		})
	}
}
