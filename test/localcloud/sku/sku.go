// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sku reads the catalogue of the local cloud's machine types. The catalogue is the product's own,
// presets/skus/*.yaml, so every machine type of the planner is for sale here. This package takes the fields a machine
// needs and must not interpret the others.
package sku

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podsPerMachine is a kubelet's default.
const podsPerMachine = "110"

// Capacity types of a machine.
const (
	OnDemand = "on-demand"
	Spot     = "spot"
)

// SKU is one machine type.
type SKU struct {
	Name      string   `json:"name"`
	Region    string   `json:"region"`
	Zones     []string `json:"zones"`
	VCPUs     int      `json:"vcpus"`
	MemoryGiB int      `json:"memoryGiB"`
	// DiskGiB is the disk shared by pods and images.
	DiskGiB int `json:"diskGiB"`
	GPUs    int `json:"gpus"`
	// Resource is the resource name of the GPUs.
	Resource string `json:"resource,omitempty"`
	// Product and MemoryMiB are a real GPU's own product name and memory; empty if unknown.
	Product   string `json:"product,omitempty"`
	MemoryMiB int    `json:"memoryMiB,omitempty"`
	// Prices are US dollars an hour by capacity type.
	Prices map[string]float64 `json:"prices"`
}

// Offers reports whether the type is sold in the zone under the capacity type.
func (s SKU) Offers(zone, capacityType string) bool {
	_, priced := s.Prices[capacityType]
	return priced && slices.Contains(s.Zones, zone)
}

// CapacityTypes returns the type's capacity types, sorted.
func (s SKU) CapacityTypes() []string { return slices.Sorted(maps.Keys(s.Prices)) }

// Capacity returns the resources of a node of the type.
func (s SKU) Capacity() corev1.ResourceList {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(s.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory:           gibibytes(s.MemoryGiB),
		corev1.ResourceEphemeralStorage: gibibytes(s.DiskGiB),
		corev1.ResourcePods:             resource.MustParse(podsPerMachine),
	}
	if s.GPUs > 0 {
		capacity[corev1.ResourceName(s.Resource)] = *resource.NewQuantity(int64(s.GPUs), resource.DecimalSI)
	}
	return capacity
}

func gibibytes(n int) resource.Quantity {
	return *resource.NewQuantity(int64(n)<<30, resource.BinarySI)
}

// Catalogue is machine types by name.
type Catalogue map[string]SKU

// Sorted lists the catalogue by name.
func (c Catalogue) Sorted() []SKU {
	out := make([]SKU, 0, len(c))
	for _, name := range slices.Sorted(maps.Keys(c)) {
		out = append(out, c[name])
	}
	return out
}
