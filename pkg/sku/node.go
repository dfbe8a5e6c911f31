// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sku

// Node describes an existing machine in its own words.
type Node struct {
	// Labels and Annotations as in its metadata.
	Labels, Annotations map[string]string
	// GPUs of the resource nvidia.com/gpu, VCPUs and MemoryGiB for all pods together.
	GPUs int
	// Slices of GPUs by MIG profile, of the resources nvidia.com/mig-PROFILE.
	Slices    map[string]int
	VCPUs     int
	MemoryGiB float64
}

// Machine is an existing machine, as far as it is known.
type Machine struct {
	// SKU has the machine's own counts. Its name is the instance type, else one made of its GPUs. It has no price: it
	// is paid for already.
	SKU SKU
	// GPU of it. If only its memory and compute capability are known, it has no bandwidth and no peaks, and no speed
	// can be predicted.
	GPU GPU
	// From is the source of the GPU: a label or an annotation.
	From string
}
