// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// adapted returns a Workspace with a model on two machines. It has adapters from the hub and from a volume, flags and
// variables.
func adapted() *v1beta1.Workspace {
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{
		Preset: &v1beta1.PresetSpec{Name: "llama-3.3-70b-instruct"},
		Adapters: []v1beta1.AdapterSpec{
			{Source: &v1beta1.DataSource{Name: "from-hub", Repository: "org/adapter@0123abc"}},
			{Source: &v1beta1.DataSource{Name: "from-volume", Volume: &corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "adapters"},
			}}},
		},
		Engine: &v1beta1.EngineSpec{
			Args: map[string]v1beta1.EngineArg{"api-server-count": "2", "enforce-eager": "", "seed": "7"},
			Env:  []v1beta1.EngineEnv{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: workload.PodIndex, Value: "9"}},
		},
	}}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "6a3c9b1e-0000-4000-8000-000000000001"
	return ws
}

// without removes flags, each with the given number of values.
func without(args []string, flags map[string]int) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		if values, left := flags[args[i]]; left {
			i += values
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// All ranks compute the same from the same files. A rank with other settings would block the others, or produce
// nonsense.
func TestMembersDifferInTheirRankOnly(t *testing.T) {
	s, ws := open(t), adapted()
	m, found := s.catalog.Model(ws.Inference.Preset.Name)
	if !found {
		t.Fatalf("no preset %s", ws.Inference.Preset.Name)
	}
	plan, err := s.planner.Plan(planner.Request{
		Model: &m, Engine: vllm.Name, Adapters: planner.Adapters{Count: 2, Ranks: []int{16, 32}},
		Constraints: planner.Constraints{InstanceType: "Standard_ND96isr_H100_v5", MaxNodes: 2, Engine: planner.EngineSettings{
			TensorParallel: 8, PipelineParallel: 2,
		}},
	})
	if err != nil || plan.Nodes != 2 {
		t.Fatalf("%d machines, %v", plan.Nodes, err)
	}
	data, _ := s.catalog.Engine(plan.Engine)
	rendered, warnings, err := render.Preset(render.Input{Workspace: ws, Model: m, Plan: plan, Data: data, Settings: render.Settings{
		AllowRemoteCode: true, Workload: workload.Settings{AgentImage: "modelberth-agent"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const dropped = "inference.engine.env: POD_INDEX is ignored, because it holds the machine's rank in its group"
	if !slices.Contains(warnings, dropped) {
		t.Errorf("warnings %q, want %q among them", warnings, dropped)
	}
	leader, worker := rendered.Template.Spec, rendered.Worker.Spec

	own := map[string]int{"--node-rank": 1, "--headless": 0, "--api-server-count": 1}
	served, headless := leader.Containers[0], worker.Containers[0]
	if !slices.Contains(headless.Args, "--headless") || slices.Contains(served.Args, "--headless") {
		t.Errorf("the leader serves, and nobody else: %q, %q", served.Args, headless.Args)
	}
	if diff := cmp.Diff(without(served.Args, own), without(headless.Args, own)); diff != "" {
		t.Errorf("arguments: -leader +worker:\n%s", diff)
	}
	fetch := func(args []string) []string {
		return without(args, map[string]int{"--drain-metrics": 1, "--drain-busy": 1, "--drain-leader": 1})
	}
	agent := len(leader.InitContainers) - 1
	if diff := cmp.Diff(fetch(leader.InitContainers[agent].Args), fetch(worker.InitContainers[agent].Args)); diff != "" {
		t.Errorf("what the agents do: -leader +worker:\n%s", diff)
	}
	// Only serving pods have these parts.
	for _, container := range []*corev1.Container{&served, &headless, &leader.InitContainers[agent], &worker.InitContainers[agent]} {
		container.Args, container.Ports = nil, nil
		container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = nil, nil, nil
	}
	leader.Containers[0], worker.Containers[0] = served, headless
	if diff := cmp.Diff(leader, worker); diff != "" {
		t.Errorf("pods: -leader +worker:\n%s", diff)
	}
}
