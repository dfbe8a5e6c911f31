// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sku

// Node is what a machine that is there says of itself.
type Node struct {
	// Labels and Annotations as in its metadata.
	Labels, Annotations map[string]string
	// GPUs of the resource nvidia.com/gpu, VCPUs and MemoryGiB that it can give to pods in all.
	GPUs      int
	VCPUs     int
	MemoryGiB float64
}

// Machine is a machine that is there, as far as it is known.
type Machine struct {
	// SKU has the machine's own counts. Its name is the instance type, or one made of its GPUs where it has
	// none. It has no price: it is paid for already.
	SKU SKU
	// GPU of it. Where only its memory and compute capability are known, it has no bandwidth and no peaks,
	// and nothing can be said of its speed.
	GPU GPU
	// From is what told the GPU: a label or an annotation.
	From string
}
