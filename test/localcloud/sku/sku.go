// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sku reads the catalogue of machine types that the local cloud sells.
// The catalogue is the product's own, presets/skus/*.yaml, so that a machine
// type that can be planned for can be bought here. This package takes the fields
// that a machine needs and must not interpret the others.
package sku

import (
	"maps"
	"slices"
)

// Ways in which a machine is sold.
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
	// DiskGiB is the disk that pods and images share.
	DiskGiB int `json:"diskGiB"`
	GPUs    int `json:"gpus"`
	// Resource is what the GPUs are counted as.
	Resource string `json:"resource,omitempty"`
	// Product and MemoryMiB are what a real GPU of the type calls itself; empty
	// where that is not known.
	Product   string `json:"product,omitempty"`
	MemoryMiB int    `json:"memoryMiB,omitempty"`
	// Prices are US dollars an hour by capacity type.
	Prices map[string]float64 `json:"prices"`
}

// Offers says whether the type is sold in the zone under the capacity type.
func (s SKU) Offers(zone, capacityType string) bool {
	_, priced := s.Prices[capacityType]
	return priced && slices.Contains(s.Zones, zone)
}

// CapacityTypes lists the ways in which the type is sold.
func (s SKU) CapacityTypes() []string { return slices.Sorted(maps.Keys(s.Prices)) }

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
