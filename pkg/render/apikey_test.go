// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// keyed returns the input to render a model for an engine, on machines of a type.
func keyed(t *testing.T, name, engineName string, constraints planner.Constraints) render.Input {
	t.Helper()
	s := open(t)
	m, found := s.catalog.Model(name)
	if !found {
		t.Fatalf("no preset %s", name)
	}
	plan, err := s.planner.Plan(planner.Request{Model: &m, Engine: engineName, Constraints: constraints})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := s.catalog.Engine(plan.Engine)
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: name}, Engine: &v1beta1.EngineSpec{}}}
	ws.Namespace, ws.Name = "team-a", "chat"
	return render.Input{Workspace: ws, Model: m, Plan: plan, Data: data, Settings: render.Settings{
		Workload: workload.Settings{AgentImage: "modelberth-agent"},
	}}
}

// A key in the spec, in a ConfigMap or in arguments is not secret, so it is refused.
func TestPlainKeyIsRefused(t *testing.T) {
	const secret = "sk-very-secret"
	const wayOut = "put the key into a Secret under API_KEY, and name the Secret in inference.engine.apiKeySecret"
	const readable = " is refused, because any reader of pods can read arguments: " + wayOut
	for _, tc := range []struct {
		reason, engine string
		change         func(*render.Input)
		want           string
	}{
		{"vLLM's flag in args", vllm.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.Args = map[string]v1beta1.EngineArg{"api-key": secret}
		}, `inference.engine.args: "api-key"` + readable},
		{"another spelling of it", vllm.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.Args = map[string]v1beta1.EngineArg{"--api_key": secret}
		}, `inference.engine.args: "--api_key"` + readable},
		{"vLLM's flag in the ConfigMap", vllm.Name, func(in *render.Input) {
			in.Config = engine.Config{"vllm": {"api-key": secret}}
		}, `section "vllm" of inference_config.yaml: "api-key"` + readable},
		{"beside a Secret", vllm.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.APIKeySecret = "key"
			in.Workspace.Inference.Engine.Args = map[string]v1beta1.EngineArg{"api-key": secret}
		}, `inference.engine.args: "api-key"` + readable},
		{"llama.cpp's flag in args", llamacpp.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.Args = map[string]v1beta1.EngineArg{"api-key": secret}
		}, `inference.engine.args: "api-key"` + readable},
		{"a file of keys, which only a ConfigMap could be", llamacpp.Name, func(in *render.Input) {
			in.Config = engine.Config{"llamacpp": {"api-key-file": "/mnt/config/" + secret}}
		}, `section "llamacpp" of inference_config.yaml: "api-key-file"` + readable},
		{"vLLM's variable", vllm.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.Env = []v1beta1.EngineEnv{{Name: "VLLM_API_KEY", Value: secret}}
		}, "inference.engine.env: VLLM_API_KEY is refused, because every reader of Workspaces can read its value: " + wayOut},
		{"llama.cpp's variable", llamacpp.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.Env = []v1beta1.EngineEnv{{Name: "LLAMA_API_KEY", Value: secret}}
		}, "inference.engine.env: LLAMA_API_KEY is refused, because every reader of Workspaces can read its value: " + wayOut},
		{"an engine of an overlay that reads no key", vllm.Name, func(in *render.Input) {
			in.Workspace.Inference.Engine.APIKeySecret, in.Data.APIKeyVariable = "key", ""
		}, `inference.engine.apiKeySecret names Secret "key", but engine vllm cannot read a key from its environment: ` +
			"remove apiKeySecret, or choose another engine"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := keyed(t, "qwen2.5-0.5b-instruct", tc.engine, planner.Constraints{})
			tc.change(&in)
			_, _, err := render.Preset(in)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(got, secret) {
				t.Error("the error shows the key")
			}
		})
	}
}

// The key reaches the engine and its probes from the Secret.
func TestKeyReachesServerAndAgent(t *testing.T) {
	two := planner.Constraints{InstanceType: "Standard_ND96isr_H100_v5", MaxNodes: 2, Engine: planner.EngineSettings{
		TensorParallel: 8, PipelineParallel: 2,
	}}
	for _, tc := range []struct {
		reason, model, engine string
		constraints           planner.Constraints
		want                  map[string]string
	}{
		{"vLLM", "qwen2.5-0.5b-instruct", vllm.Name, planner.Constraints{}, map[string]string{"chat": "VLLM_API_KEY", "weights": "API_KEY"}},
		{"llama.cpp", "qwen2.5-0.5b-instruct", llamacpp.Name, planner.Constraints{}, map[string]string{"chat": "LLAMA_API_KEY", "weights": "API_KEY"}},
		{"workers of a group serve nobody", "llama-3.3-70b-instruct", vllm.Name, two, map[string]string{"chat": "VLLM_API_KEY", "weights": "API_KEY"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := keyed(t, tc.model, tc.engine, tc.constraints)
			in.Workspace.Inference.Engine.APIKeySecret = "key"
			rendered, _, err := render.Preset(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, keysOf(&rendered.Template)); diff != "" {
				t.Errorf("variables from the Secret by container (-want +got):\n%s", diff)
			}
			if rendered.Worker == nil {
				return
			}
			if diff := cmp.Diff(map[string]string{}, keysOf(rendered.Worker)); diff != "" {
				t.Errorf("variables of workers (-want +got):\n%s", diff)
			}
		})
	}
}

// keysOf returns the variables from the key of Secret "key", by container.
func keysOf(template *corev1.PodTemplateSpec) map[string]string {
	out := map[string]string{}
	for _, container := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		for _, variable := range container.Env {
			if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Name == "key" && from.SecretKeyRef.Key == "API_KEY" {
				out[container.Name] = variable.Name
			}
		}
	}
	return out
}
