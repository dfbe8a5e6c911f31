// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sku describes machines: a type's name, its GPUs, memory, disk and price.
//
// It decides nothing and must not know models, plans or Kubernetes.
package sku

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// GPU is one kind of accelerator.
type GPU struct {
	// Name of the part, for example A100-80-PCIe.
	Name string `json:"name"`
	// Class is the name in manifests and plans, for example A100-80. Parts of one class differ only in bandwidth and
	// links.
	Class string `json:"class"`
	// Aliases are other names for manifests.
	Aliases []string `json:"aliases,omitempty"`
	// Products are the names of the part in the label nvidia.com/gpu.product of GPU feature discovery.
	Products []string `json:"products,omitempty"`
	// MemoryGiB is the memory of an idle GPU that a program can use.
	MemoryGiB float64 `json:"memoryGiB"`
	// BandwidthGBs is the memory bandwidth in GB/s.
	BandwidthGBs float64 `json:"bandwidthGBs"`
	// ComputeCapability of an NVIDIA GPU, for example 8.0; empty for others.
	ComputeCapability string `json:"computeCapability,omitempty"`
	// PeakTFLOPs is the peak without sparsity by data type: fp16, bf16, fp8, fp4. The hardware does not support a
	// missing type.
	PeakTFLOPs map[string]float64 `json:"peakTFLOPs,omitempty"`
	// Link is the link between the GPUs of a machine, for example nvlink4 or pcie4. LinkGBs is its bandwidth in one
	// direction, in GB/s.
	Link    string  `json:"link,omitempty"`
	LinkGBs float64 `json:"linkGBs,omitempty"`
	// HostLink is the PCIe link between GPUs without a direct Link, for example pcie5. Empty means Link if Link is
	// PCIe, and otherwise pcie4.
	HostLink string `json:"hostLink,omitempty"`
	// MIG profiles, smallest first; empty if the GPU cannot be partitioned.
	MIG []MIGProfile `json:"mig,omitempty"`
	// SMs is the number of streaming multiprocessors; set if slices are planned for.
	SMs int `json:"sms,omitempty"`
	// Whole is the class of the whole GPU, if this one is a slice; empty otherwise.
	Whole string `json:"-"`
}

// MIGProfile is a size of a GPU's partitions.
type MIGProfile struct {
	// Name, for example 1g.10gb.
	Name string `json:"name"`
	// Count is the number of such partitions on a GPU.
	Count int `json:"count"`
	// MemoryGiB is the memory that a program can use, or the figure in the name if nothing better is known.
	MemoryGiB float64 `json:"memoryGiB"`
	// SMs is the number of multiprocessors of a partition, and Bandwidth its share of the memory bandwidth; 0 if
	// unknown.
	SMs       int     `json:"sms,omitempty"`
	Bandwidth float64 `json:"bandwidth,omitempty"`
}

// Kind returns the class of GPUs with the same kernels. For a slice, that is the class of the whole GPU.
func (g *GPU) Kind() string { return cmp.Or(g.Whole, g.Class) }

// Slice returns a partition as a separate GPU, with its shares of memory, bandwidth and multiprocessors. It has no
// link, because slices cannot reach each other. Slice returns false if the GPU has no such profile, or if its shares
// are unknown.
func (g *GPU) Slice(profile string) (GPU, bool) {
	at := slices.IndexFunc(g.MIG, func(p MIGProfile) bool { return strings.EqualFold(p.Name, profile) })
	if at < 0 || g.SMs == 0 || g.MIG[at].SMs == 0 || g.MIG[at].Bandwidth == 0 {
		return GPU{}, false
	}
	p := g.MIG[at]
	out := GPU{
		Name: g.Name + "-" + p.Name, Class: g.Class + "-" + p.Name, Whole: g.Class, MemoryGiB: p.MemoryGiB,
		BandwidthGBs: g.BandwidthGBs * p.Bandwidth, ComputeCapability: g.ComputeCapability, PeakTFLOPs: map[string]float64{}, SMs: p.SMs,
	}
	for dtype, peak := range g.PeakTFLOPs {
		out.PeakTFLOPs[dtype] = peak * float64(p.SMs) / float64(g.SMs)
	}
	return out, true
}

// SKU is one machine type of one cloud.
type SKU struct {
	// Name is the instance type, for example Standard_NC24ads_A100_v4.
	Name string `json:"name"`
	// Cloud of the type: azure, aws, gcp.
	Cloud string `json:"cloud,omitempty"`
	// GPU is the part's name; empty if the machine has no GPU.
	GPU string `json:"gpu,omitempty"`
	// GPUs is the number of GPUs.
	GPUs int `json:"gpus,omitempty"`
	// Resource is the device plugin's resource, for example nvidia.com/gpu.
	Resource string `json:"resource,omitempty"`
	// VCPUs and MemoryGiB of the machine.
	VCPUs     int     `json:"vcpus"`
	MemoryGiB float64 `json:"memoryGiB"`
	// LocalDiskGiB is the NVMe disk in addition to the OS disk.
	LocalDiskGiB float64 `json:"localDiskGiB,omitempty"`
	// LinkedGPUs is the number of GPUs that the GPU's own link connects: all, 2 for pairs with bridges, 0 for PCIe
	// only.
	LinkedGPUs int `json:"linkedGPUs,omitempty"`
	// NetworkGBs is the bandwidth per GPU between machines, in GB/s in one direction, over RDMA (InfiniBand, EFA or
	// RoCE); 0 without RDMA.
	NetworkGBs float64 `json:"networkGBs,omitempty"`
	// Arch of the CPUs: amd64 (also if empty) or arm64.
	Arch string `json:"arch,omitempty"`
	// QuotaFamily is the cloud's name of the quota for this type.
	QuotaFamily string `json:"quotaFamily,omitempty"`
	// Provisioners that can launch this type, for example karpenter and gpu-provisioner; empty means all.
	Provisioners []string `json:"provisioners,omitempty"`
	// Spot: the cloud sells this type as spot.
	Spot bool `json:"spot,omitempty"`
	// Reserved: the administrator has a reservation, so a machine costs nothing more.
	Reserved bool `json:"reserved,omitempty"`
	// Prices are on demand. Prices and SpotPrices are in USD per hour, by region.
	Prices     map[string]float64 `json:"prices,omitempty"`
	SpotPrices map[string]float64 `json:"spotPrices,omitempty"`
	// Unusable is the reason why the planner never chooses this type; empty otherwise.
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
