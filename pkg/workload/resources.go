// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// engineResources requests the plan's resources, or the user's. GPUs and devices for RDMA have equal requests and
// limits, as device plugins require. Main memory is limited if the node also runs other pods.
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

// memoryLimit keeps an engine from taking the memory of other pods on its node; nil if the machine is the model's
// own. Shared memory counts as the container's.
func memoryLimit(in Input, requests corev1.ResourceList) *resource.Quantity {
	limit, isRequested := requests[corev1.ResourceMemory]
	if isOwn := len(in.Plan.NodeNames) == 0 && !in.Settings.SharedNodes; isOwn || !isRequested {
		return nil
	}
	limit = limit.DeepCopy()
	limit.Add(gibibytes(in.MemoryBurstGiB + sharedMemoryGiB(in)))
	return &limit
}

// shmPerGPU is the default shared memory in GiB for the exchange of tensors between an engine's processes.
const shmPerGPU = 1

func sharedMemoryGiB(in Input) int {
	if in.Engine.SharedMemoryGiB > 0 {
		return in.Engine.SharedMemoryGiB
	}
	return max(1, in.Plan.GPUsPerNode*shmPerGPU)
}

// weightsResources include the disk for weights and image, because the agent fills it. If it fetches weights, that
// is also the limit of the pod's volumes, logs and layers: the kubelet evicts a pod if its source is larger than
// planned. The node's images do not count, so their planned share is a reserve.
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

// archivesGiB is the disk for archives besides their unpacked contents; no plan counts it.
func archivesGiB(in Input) int {
	if source(in.Workspace).OCI == nil || in.Plan.Artifact == nil {
		return 0
	}
	return int((in.Plan.Artifact.Bytes() + 1<<30 - 1) >> 30)
}

func gibibytes(n int) resource.Quantity {
	return *resource.NewQuantity(int64(n)<<30, resource.BinarySI)
}
