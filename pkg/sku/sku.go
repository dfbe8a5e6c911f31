// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sku holds what a machine is: its type's name, its GPUs, memory, disk and price.
//
// It decides nothing and must not know models, plans or Kubernetes.
package sku

import (
	"maps"
	"slices"
)

// GPU is one kind of accelerator.
type GPU struct {
	// Name of the part, for example A100-80-PCIe.
	Name string `json:"name"`
	// Class is the name that manifests and plans use, for example A100-80; parts of one class differ
	// in bandwidth and links only.
	Class string `json:"class"`
	// Aliases are further names that a manifest may use.
	Aliases []string `json:"aliases,omitempty"`
	// Products are what the part calls itself in the label nvidia.com/gpu.product of GPU feature discovery.
	Products []string `json:"products,omitempty"`
	// MemoryGiB that a program sees on an idle GPU.
	MemoryGiB float64 `json:"memoryGiB"`
	// BandwidthGBs is the memory bandwidth in GB/s.
	BandwidthGBs float64 `json:"bandwidthGBs"`
	// ComputeCapability of NVIDIA GPUs, for example 8.0; empty for others.
	ComputeCapability string `json:"computeCapability,omitempty"`
	// PeakTFLOPs without sparsity by data type: fp16, bf16, fp8, fp4. A type that is absent has no
	// hardware of its own.
	PeakTFLOPs map[string]float64 `json:"peakTFLOPs,omitempty"`
	// Link between the GPUs of a machine, for example nvlink4 or pcie4, and its bandwidth in one
	// direction in GB/s.
	Link    string  `json:"link,omitempty"`
	LinkGBs float64 `json:"linkGBs,omitempty"`
	// HostLink is the PCIe that joins GPUs which Link does not; empty means PCIe 4, or Link where that is PCIe.
	HostLink string `json:"hostLink,omitempty"`
	// MIG profiles, smallest first; empty where the GPU cannot be partitioned.
	MIG []MIGProfile `json:"mig,omitempty"`
}

// MIGProfile is a size of a GPU's partitions.
type MIGProfile struct {
	// Name, for example 1g.10gb.
	Name string `json:"name"`
	// Count is how many of them a GPU holds.
	Count int `json:"count"`
	// MemoryGiB that a program sees; the marketing figure of the name where nothing better is known.
	MemoryGiB float64 `json:"memoryGiB"`
}

// SKU is one machine type of one cloud.
type SKU struct {
	// Name is the instance type, for example Standard_NC24ads_A100_v4.
	Name string `json:"name"`
	// Cloud that sells it: azure, aws, gcp.
	Cloud string `json:"cloud,omitempty"`
	// GPU on it, by the part's name; empty on machines without.
	GPU string `json:"gpu,omitempty"`
	// GPUs on it.
	GPUs int `json:"gpus,omitempty"`
	// Resource that the device plugin announces, for example nvidia.com/gpu.
	Resource string `json:"resource,omitempty"`
	// VCPUs and MemoryGiB of the machine.
	VCPUs     int     `json:"vcpus"`
	MemoryGiB float64 `json:"memoryGiB"`
	// LocalDiskGiB is NVMe that is not the OS disk.
	LocalDiskGiB float64 `json:"localDiskGiB,omitempty"`
	// LinkedGPUs is how many of its GPUs the GPU's own link joins: all, 2 where bridges join pairs, 0
	// where they talk over PCIe.
	LinkedGPUs int `json:"linkedGPUs,omitempty"`
	// NetworkGBs between machines for one GPU, in GB/s in one direction, where it is RDMA (InfiniBand,
	// EFA or RoCE); 0 where it is not.
	NetworkGBs float64 `json:"networkGBs,omitempty"`
	// Arch of its CPUs: amd64 (also where empty) or arm64.
	Arch string `json:"arch,omitempty"`
	// QuotaFamily that the cloud counts it under.
	QuotaFamily string `json:"quotaFamily,omitempty"`
	// Provisioners that can launch it, for example karpenter and gpu-provisioner; empty means all.
	Provisioners []string `json:"provisioners,omitempty"`
	// Spot says that it is sold as spot.
	Spot bool `json:"spot,omitempty"`
	// Reserved says that the administrator holds a reservation for it: it costs nothing more.
	Reserved bool `json:"reserved,omitempty"`
	// Prices on demand and SpotPrices in USD per hour, by region.
	Prices     map[string]float64 `json:"prices,omitempty"`
	SpotPrices map[string]float64 `json:"spotPrices,omitempty"`
	// Unusable says why this machine type is never chosen; empty where it may be.
	Unusable string `json:"unusable,omitempty"`
}

// Clone returns a copy that shares no memory with the GPU.
func (g GPU) Clone() GPU {
	g.Aliases, g.MIG, g.PeakTFLOPs = slices.Clone(g.Aliases), slices.Clone(g.MIG), maps.Clone(g.PeakTFLOPs)
	g.Products = slices.Clone(g.Products)
	return g
}

// Clone returns a copy that shares no memory with the SKU.
func (s SKU) Clone() SKU {
	s.Prices, s.SpotPrices = maps.Clone(s.Prices), maps.Clone(s.SpotPrices)
	s.Provisioners = slices.Clone(s.Provisioners)
	return s
}
