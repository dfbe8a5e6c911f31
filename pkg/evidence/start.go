// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/sku"
)

// setUpOf returns the set-up of a Workspace's engine. It returns false if the engine says nothing about plans of other
// Workspaces: the user set its image, variables or flags, or it has several GPUs without the link that runs have.
func setUpOf(pinned *render.Revision, machine *sku.SKU) (catalog.Measurement, bool) {
	plan := &pinned.Plan
	if plan.TensorParallel > 1 && machine.LinkedGPUs < plan.TensorParallel {
		return catalog.Measurement{}, false
	}
	if machine.GPU == "" || !isOrdinary(plan) || !leavesEngineAlone(pinned.Inputs) {
		return catalog.Measurement{}, false
	}
	return catalog.Measurement{
		Engine: plan.Engine, Version: versionOf(pinned), Model: plan.Artifact.Repo, Quantization: plan.Artifact.Quantization,
		KVType: plan.KVCacheType, GPU: machine.GPU, TensorParallel: max(plan.TensorParallel, 1), WholeExperts: plan.ExpertParallel,
	}, true
}

// memoryOf returns the memory of an engine's start, from the engine's own count of tokens and the plan's. It is zero if
// the engine reported none.
func memoryOf(found *v1beta1.EngineStatus, plan *planner.Plan) catalog.MeasuredMemory {
	if found.KVCacheTokens == nil {
		return catalog.MeasuredMemory{}
	}
	tokens, err := strconv.ParseInt(found.KVCacheTokens.Actual, 10, 64)
	if err != nil || tokens <= 0 {
		return catalog.MeasuredMemory{}
	}
	return catalog.MeasuredMemory{
		KVCacheGiB:  plan.Memory.KVCache * float64(tokens) / float64(plan.KVCacheTokens),
		MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens,
		Utilization: plan.GPUMemoryUtilization,
	}
}

// wholeGPU is the resource of whole GPUs that are not shared.
const wholeGPU = "nvidia.com/gpu"

// isOrdinary reports whether the number of tokens in a plan follows from the memory of one whole GPU.
func isOrdinary(plan *planner.Plan) bool {
	alone := plan.Nodes <= 1 && plan.PipelineParallel <= 1 && plan.ContextParallel <= 1 && plan.AdapterSlots == 0
	return alone && plan.Engine == vllm.Name && plan.GPUResource == wholeGPU && plan.Artifact != nil &&
		plan.Memory != nil && plan.Memory.KVCache > 0 && plan.KVCacheTokens > 0
}

// leavesEngineAlone reports whether the plan alone decided the engine's settings.
func leavesEngineAlone(in *render.Inputs) bool {
	if in == nil || in.Inference == nil || in.Config != "" || in.Annotations[v1beta1.AnnotationPerformanceMode] != "" {
		return false
	}
	engine := in.Inference.Engine
	return engine == nil || engine.Image == "" && len(engine.Args) == 0 && len(engine.Env) == 0
}

// versionOf returns the release in the tag of the engine's image; empty if the image has no tag.
func versionOf(pinned *render.Revision) string {
	containers := pinned.Template.Spec.Containers
	if len(containers) == 0 {
		return ""
	}
	image, _, _ := strings.Cut(containers[0].Image, "@") // the first container is the engine
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return strings.TrimPrefix(image[colon+1:], "v")
	}
	return ""
}
