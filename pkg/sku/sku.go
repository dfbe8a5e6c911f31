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
	// Class is the name in manifests and plans, for example A100-80; parts of one class differ in bandwidth and links
	// only.
	Class string `json:"class"`
	// Aliases are further names for manifests.
	Aliases []string `json:"aliases,omitempty"`
	// Products are the part's own names in the label nvidia.com/gpu.product of GPU feature discovery.
	Products []string `json:"products,omitempty"`
	// MemoryGiB of an idle GPU, as a program sees it.
	MemoryGiB float64 `json:"memoryGiB"`
	// BandwidthGBs is the memory bandwidth in GB/s.
	BandwidthGBs float64 `json:"bandwidthGBs"`
	// ComputeCapability of NVIDIA GPUs, for example 8.0; empty for others.
	ComputeCapability string `json:"computeCapability,omitempty"`
	// PeakTFLOPs without sparsity by data type: fp16, bf16, fp8, fp4. An absent type has no hardware support.
	PeakTFLOPs map[string]float64 `json:"peakTFLOPs,omitempty"`
	// Link between the GPUs of a machine, for example nvlink4 or pcie4, and its bandwidth in one
	// direction in GB/s.
	Link    string  `json:"link,omitempty"`
	LinkGBs float64 `json:"linkGBs,omitempty"`
	// HostLink is the PCIe between GPUs without the Link; empty means PCIe 4, or Link if that is PCIe.
	HostLink string `json:"hostLink,omitempty"`
	// MIG profiles, smallest first; empty if the GPU cannot be partitioned.
	MIG []MIGProfile `json:"mig,omitempty"`
	// SMs are its streaming multiprocessors, where slices are planned for.
	SMs int `json:"sms,omitempty"`
	// Whole is the class of the GPU of which this one is a slice; empty otherwise.
	Whole string `json:"-"`
}

// MIGProfile is a size of a GPU's partitions.
type MIGProfile struct {
	// Name, for example 1g.10gb.
	Name string `json:"name"`
	// Count is how many of them a GPU holds.
	Count int `json:"count"`
	// MemoryGiB, as a program sees it; the marketing figure of the name if no better one is known.
	MemoryGiB float64 `json:"memoryGiB"`
	// SMs of it, and Bandwidth, its share of the memory's bandwidth; 0 if unknown.
	SMs       int     `json:"sms,omitempty"`
	Bandwidth float64 `json:"bandwidth,omitempty"`
}

// Kind is the class of GPUs with the same kernels: a slice's is that of the whole GPU.
func (g *GPU) Kind() string { return cmp.Or(g.Whole, g.Class) }

// Slice returns a partition as a separate GPU, with its shares of memory, bandwidth and multiprocessors, and without
// a link: slices do not reach each other. False if the GPU has no such profile, or its shares are unknown.
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
	// GPU on it, by the part's name; empty on machines without.
	GPU string `json:"gpu,omitempty"`
	// GPUs on it.
	GPUs int `json:"gpus,omitempty"`
	// Resource of the device plugin, for example nvidia.com/gpu.
	Resource string `json:"resource,omitempty"`
	// VCPUs and MemoryGiB of the machine.
	VCPUs     int     `json:"vcpus"`
	MemoryGiB float64 `json:"memoryGiB"`
	// LocalDiskGiB is NVMe in addition to the OS disk.
	LocalDiskGiB float64 `json:"localDiskGiB,omitempty"`
	// LinkedGPUs is the number of GPUs that the GPU's own link joins: all, 2 for pairs with bridges, 0 for PCIe
	// alone.
	LinkedGPUs int `json:"linkedGPUs,omitempty"`
	// NetworkGBs between machines for one GPU, in GB/s in one direction, over RDMA (InfiniBand, EFA or RoCE); 0
	// without RDMA.
	NetworkGBs float64 `json:"networkGBs,omitempty"`
	// Arch of its CPUs: amd64 (also if empty) or arm64.
	Arch string `json:"arch,omitempty"`
	// QuotaFamily of the cloud.
	QuotaFamily string `json:"quotaFamily,omitempty"`
	// Provisioners for it, for example karpenter and gpu-provisioner; empty means all.
	Provisioners []string `json:"provisioners,omitempty"`
	// Spot: it is sold as spot.
	Spot bool `json:"spot,omitempty"`
	// Reserved: the administrator holds a reservation, so it costs nothing more.
	Reserved bool `json:"reserved,omitempty"`
	// Prices on demand and SpotPrices in USD per hour, by region.
	Prices     map[string]float64 `json:"prices,omitempty"`
	SpotPrices map[string]float64 `json:"spotPrices,omitempty"`
	// Unusable is the reason for which this type is never chosen; empty otherwise.
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
