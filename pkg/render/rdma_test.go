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

// Pods of a group get the plan's RDMA device. Without a device, NCCL does not search for one.
func TestRDMA(t *testing.T) {
	const device = "rdma/hca_shared_devices_a"
	for _, tc := range []struct {
		reason   string
		noRDMA   bool
		settings workload.RDMA
		nodes    int
		machine  string
		tensor   int
		requests int64
		disabled bool
	}{
		{reason: "the plan counts on it", settings: workload.RDMA{Resource: device, Count: 2}, nodes: 2, machine: "Standard_ND96isr_H100_v5", tensor: 8, requests: 2},
		{reason: "the installation has none", noRDMA: true, nodes: 2, machine: "Standard_ND96isr_H100_v5", tensor: 8, disabled: true},
		{
			reason: "the installation has it since, the plan was made without", noRDMA: true,
			settings: workload.RDMA{Resource: device, Count: 1}, nodes: 2, machine: "Standard_ND96isr_H100_v5", tensor: 8, disabled: true,
		},
		{
			reason: "the machines have none", settings: workload.RDMA{Resource: device, Count: 1},
			nodes: 2, machine: "Standard_NC96ads_A100_v4", tensor: 4, disabled: true,
		},
		{reason: "one machine needs none", settings: workload.RDMA{Resource: device, Count: 1}, nodes: 1, machine: "Standard_ND96isr_H100_v5", tensor: 8},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s, ws := open(t), &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "llama-3.3-70b-instruct"}}}
			ws.Namespace, ws.Name = "team-a", "chat"
			m, _ := s.catalog.Model(ws.Inference.Preset.Name)
			plan, err := planner.New(s.catalog, planner.Settings{Engines: render.Engines(), NoRDMA: tc.noRDMA}).Plan(planner.Request{
				Model: &m, Engine: vllm.Name, Constraints: planner.Constraints{
					InstanceType: tc.machine, MaxNodes: tc.nodes,
					Engine: planner.EngineSettings{TensorParallel: tc.tensor, PipelineParallel: tc.nodes},
				},
			})
			if err != nil || plan.Nodes != tc.nodes {
				t.Fatalf("%d machines, %v", plan.Nodes, err)
			}
			data, _ := s.catalog.Engine(plan.Engine)
			rendered, _, err := render.Preset(render.Input{
				Workspace: ws, Model: m, Plan: plan, Data: data, Settings: render.Settings{Workload: workload.Settings{RDMA: tc.settings}},
			})
			if err != nil {
				t.Fatal(err)
			}
			templates := []*corev1.PodTemplateSpec{&rendered.Template}
			if rendered.Worker != nil {
				templates = append(templates, rendered.Worker)
			}
			for _, template := range templates {
				container := template.Spec.Containers[0]
				if got := container.Resources.Limits[device]; got.Value() != tc.requests {
					t.Errorf("it is limited to %v of %s, want %d", &got, device, tc.requests)
				}
				if diff := cmp.Diff(container.Resources.Limits[device], container.Resources.Requests[device]); diff != "" {
					t.Errorf("requests differ from limits: %s", diff)
				}
				off := corev1.EnvVar{Name: "NCCL_IB_DISABLE", Value: "1"}
				if got := slices.Contains(container.Env, off); got != tc.disabled {
					t.Errorf("NCCL is told to leave InfiniBand alone: %t, want %t", got, tc.disabled)
				}
			}
		})
	}
}
