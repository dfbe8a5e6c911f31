// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"testing"

	"github.com/modelberth/modelberth/pkg/planner"
)

// Users have reported that these models fit on these machines. They fit at the usual objectives, too.
func TestPresetsOnOneGPU(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{})
	for _, tc := range []struct{ model, machine string }{
		{"openai/gpt-oss-20b", "Standard_NV36ads_A10_v5"},
		{"openai/gpt-oss-120b", "Standard_NC24ads_A100_v4"},
		{"Qwen/Qwen2.5-Coder-32B-Instruct", "Standard_NC24ads_A100_v4"},
		{"openai/gpt-oss-120b", "a3-highgpu-1g"},
		{"Qwen/Qwen2.5-Coder-32B-Instruct", "a3-highgpu-1g"},
	} {
		m, err := c.ResolveModel(tc.model)
		if err != nil {
			t.Errorf("%s: %v", tc.model, err)
			continue
		}
		plan, err := p.Plan(planner.Request{Model: &m, Engine: "vllm", Constraints: planner.Constraints{InstanceTypes: []string{tc.machine}}})
		if err != nil {
			t.Errorf("%s: %v", tc.model, err)
			continue
		}
		if plan.Nodes != 1 || plan.GPUsPerNode != 1 || plan.MaxModelLen < 8192 || plan.Concurrency < 4 {
			t.Errorf("%s on %s: %s, %d tokens × %d", tc.model, tc.machine, plan.Summary(), plan.MaxModelLen, plan.Concurrency)
			continue
		}
		t.Logf("figure: %s fits %s: %d tokens × %d", tc.model, plan.Summary(), plan.MaxModelLen, plan.Concurrency)
	}
}
