// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// engineResources requests the resources of the plan, unless the user sets them. GPUs and RDMA devices have equal
// requests and limits, as device plugins require. Main memory has a limit if other pods run on the node, too.
func engineResources(in Input, users *v1beta1.PodSpec) corev1.ResourceRequirements {
	requests := corev1.ResourceList{}
	if in.Plan.CPUs > 0 {
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(in.Plan.CPUs), resource.DecimalSI)
	}
	if in.Plan.MemoryGiB > 0 {
		requests[corev1.ResourceMemory] = gibibytes(in.Plan.MemoryGiB)
	}
	if users.CPU != nil {
		requests[corev1.ResourceCPU] = users.CPU.DeepCopy()
	}
	if users.Memory != nil {
		requests[corev1.ResourceMemory] = users.Memory.DeepCopy()
	}
	limits := corev1.ResourceList{}
	if in.Plan.GPUsPerNode > 0 {
		limits[corev1.ResourceName(in.Plan.GPUResource)] = *resource.NewQuantity(int64(in.Plan.GPUsPerNode), resource.DecimalSI)
	}
	if rdma := in.Settings.RDMA; in.Plan.GPUsPerNode > 0 && in.Settings.ServesRDMA(&in.Plan) {
		limits[corev1.ResourceName(rdma.Resource)] = *resource.NewQuantity(int64(rdma.Count), resource.DecimalSI)
	}
	maps.Copy(requests, limits)
	if limit := memoryLimit(in, requests); limit != nil {
		limits[corev1.ResourceMemory] = *limit
	}
	if len(limits) == 0 {
		return corev1.ResourceRequirements{Requests: requests}
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// memoryLimit returns the engine's memory limit, so that it does not take the memory of other pods on its node. It is
// nil if the machine serves only this model. Shared memory counts toward the limit.
func memoryLimit(in Input, requests corev1.ResourceList) *resource.Quantity {
	limit, isRequested := requests[corev1.ResourceMemory]
	if isOwn := len(in.Plan.NodeNames) == 0 && !in.Settings.SharedNodes; isOwn || !isRequested {
		return nil
	}
	limit = limit.DeepCopy()
	limit.Add(gibibytes(in.MemoryBurstGiB + sharedMemoryGiB(in)))
	return &limit
}

// shmPerGPU is the default shared memory per GPU in GiB, for the exchange of tensors between an engine's processes.
const shmPerGPU = 1

func sharedMemoryGiB(in Input) int {
	if in.Engine.SharedMemoryGiB > 0 {
		return in.Engine.SharedMemoryGiB
	}
	return max(1, in.Plan.GPUsPerNode*shmPerGPU)
}

// weightsResources includes the disk space for weights and image, because the agent fills it. If the agent fetches
// weights, there is also a limit for the pod's volumes, logs and writable layers: the kubelet evicts the pod if the
// source is larger than planned. Images do not count toward this limit, so their planned share is a reserve.
func weightsResources(in Input) corev1.ResourceRequirements {
	out := agentResources()
	if in.Plan.DiskGiB == 0 {
		return out
	}
	out.Requests[corev1.ResourceEphemeralStorage] = gibibytes(in.Plan.DiskGiB)
	if !in.Engine.NoWeights && !isMounted(in) {
		out.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: gibibytes(in.Plan.DiskGiB + archivesGiB(in))}
	}
	return out
}

func agentResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}}
}

// archivesGiB returns the disk space for archives in addition to their unpacked contents, in GiB. No plan includes it.
func archivesGiB(in Input) int {
	if source(in.Workspace).OCI == nil || in.Plan.Artifact == nil {
		return 0
	}
	return int((in.Plan.Artifact.Bytes() + 1<<30 - 1) >> 30)
}

func gibibytes(n int) resource.Quantity {
	return *resource.NewQuantity(int64(n)<<30, resource.BinarySI)
}
