// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
)

func TestStatus(t *testing.T) {
	plan := &planner.Plan{
		InstanceType: "type", Nodes: 2, Accelerator: "L4", GPUResource: "nvidia.com/gpu", GPUsPerNode: 4, MachineGPUs: 8,
		CapacityType: v1beta1.CapacitySpot, Engine: "vllm", TensorParallel: 4, PipelineParallel: 2, DataParallel: 1,
		MaxModelLen: 8192, Concurrency: 4, HourlyPrice: 3.67305,
		MaxNumSeqs: 256, GPUMemoryUtilization: 0.93, KVCacheType: "fp8",
		Performance: &planner.Performance{
			InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TTFTMillis: 419, TPOTMillis: 31.4, OutputTokensPerSecond: 120,
			RequestsPerSecond: 0.47, LongestTTFTMillis: 91500, PricePerMillion: 8.5, Basis: v1beta1.BasisEstimated,
		},
		Memory: &planner.Memory{Total: 22, Weights: 14.956, KVCache: 4, Overhead: 1.5, Basis: v1beta1.BasisMeasured},
	}
	for range 10 {
		plan.Alternatives = append(plan.Alternatives, planner.Verdict{
			InstanceType: "other", Nodes: 1, HourlyPrice: -1, Reason: strings.Repeat("é", 200),
		})
	}
	plan.Alternatives[1].TensorParallel, plan.Alternatives[1].PipelineParallel, plan.Alternatives[1].DataParallel = 2, 1, 3
	plan.Alternatives[1].Performance = &planner.Performance{
		TTFTMillis: 80.5, TPOTMillis: 7, OutputTokensPerSecond: 900, PricePerMillion: 2.25, Basis: v1beta1.BasisEstimated,
	}
	for range 20 {
		plan.Warnings = append(plan.Warnings, "look out")
		plan.Advice = append(plan.Advice, strings.Repeat("x", 600))
		plan.Rejected = append(plan.Rejected, planner.Verdict{InstanceType: "small"})
	}
	got := request.Status(plan, "chat-1")
	want := &v1beta1.PlanStatus{
		Revision: "chat-1", Summary: "2 × type (4 of 8 × L4)", InstanceType: "type", Nodes: 2, Accelerator: "L4",
		AcceleratorsPerNode: 4, CapacityType: v1beta1.CapacitySpot, Engine: "vllm", TensorParallel: 4, PipelineParallel: 2,
		DataParallel: 1, MaxModelLen: 8192, Concurrency: 4, HourlyPrice: "3.6731",
		MaxNumSeqs: 256, GPUMemoryUtilization: "0.93", KVCacheType: "fp8",
		Performance: &v1beta1.PlanPerformance{
			InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TimeToFirstToken: "419ms", TimePerOutputToken: "31.4ms",
			RequestsPerSecond: "0.47", LongestTimeToFirstToken: "91500ms",
			OutputTokensPerSecond: "120", PricePerMillionOutputTokens: "8.5", Basis: v1beta1.BasisEstimated,
		},
		Memory: &v1beta1.PlanMemory{
			Total: "22.00", Weights: "14.96", KVCache: "4.00", Overhead: "1.50", Free: "1.54", Basis: v1beta1.BasisMeasured,
		},
		Rejected: 22,
	}
	for range 8 {
		want.Alternatives = append(want.Alternatives, v1beta1.PlanAlternative{
			InstanceType: "other", Nodes: 1, Reason: strings.Repeat("é", 126) + "…",
		})
	}
	works := &want.Alternatives[1]
	works.TensorParallel, works.PipelineParallel, works.DataParallel = 2, 1, 3
	works.TimeToFirstToken, works.TimePerOutputToken = "80.5ms", "7ms"
	works.OutputTokensPerSecond, works.PricePerMillionOutputTokens = "900", "2.25"
	for range 16 {
		want.Warnings = append(want.Warnings, "look out")
	}
	for range 8 { // more than there are kinds of advice
		want.Advice = append(want.Advice, strings.Repeat("x", 509)+"…")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	abridged := plan.Abridged()
	abridged = abridged.Abridged() // a second time, which must not count anything twice
	if diff := cmp.Diff(want, request.Status(&abridged, "chat-1")); diff != "" || abridged.Rejected != nil {
		t.Errorf("abridged, it still lists %d options (-want +got):\n%s", len(abridged.Rejected), diff)
	}
	if len(plan.Rejected) != 20 {
		t.Error("what was abridged has lost its options")
	}
}

// Kubelets and clouds quote signed URLs, which are secret.
func TestStatusTextHasNoSignature(t *testing.T) {
	text := `failed to pull: Get "https://u:s3cret@store.example/blob?X-Amz-Signature=s3cret": EOF`
	for _, tc := range []struct {
		reason string
		limit  int
		want   string
	}{
		{"with room for all of it", 1000, `failed to pull: Get "https://…@store.example/blob?…": EOF`},
		{"cut off after it was redacted", 40, `failed to pull: Get "https://…@stor…`},
	} {
		if got := request.Shorten(text, tc.limit); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
