// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sku

// Node describes an existing machine as Kubernetes reports it.
type Node struct {
	// Labels and Annotations of the node's metadata.
	Labels, Annotations map[string]string
	// GPUs is the number of the resource nvidia.com/gpu. GPUs, VCPUs and MemoryGiB are for all pods together.
	GPUs int
	// Slices is the number of the resources nvidia.com/mig-PROFILE, by MIG profile.
	Slices    map[string]int
	VCPUs     int
	MemoryGiB float64
}

// Machine is an existing machine, as far as it is known.
type Machine struct {
	// SKU has the machine's actual counts. Its name is the instance type, or else made up from the GPUs. It has no
	// price, because the machine is paid for already.
	SKU SKU
	// GPU of the machine. If only memory and compute capability are known, it has no bandwidth and no peaks, so its
	// speed cannot be predicted.
	GPU GPU
	// From is the label or annotation that identified the GPU.
	From string
}
