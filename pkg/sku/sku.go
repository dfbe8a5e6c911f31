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
	// MemoryGiB that a program sees on an idle GPU.
	MemoryGiB float64 `json:"memoryGiB"`
	// BandwidthGBs is the memory bandwidth in GB/s.
	BandwidthGBs float64 `json:"bandwidthGBs"`
	// ComputeCapability of NVIDIA GPUs, for example 8.0; empty for others.
	ComputeCapability string `json:"computeCapability,omitempty"`
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
	// Spot says that it is sold as spot.
	Spot bool `json:"spot,omitempty"`
	// Prices on demand in USD per hour, by region.
	Prices map[string]float64 `json:"prices,omitempty"`
	// Unusable says why this machine type is never chosen; empty where it may be.
	Unusable string `json:"unusable,omitempty"`
}

// Clone returns a copy that shares no memory with the GPU.
func (g GPU) Clone() GPU {
	g.Aliases = slices.Clone(g.Aliases)
	return g
}

// Clone returns a copy that shares no memory with the SKU.
func (s SKU) Clone() SKU {
	s.Prices = maps.Clone(s.Prices)
	return s
}
