// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/usd"
)

// market holds the machine types for sale, and their prices.
type market struct {
	catalog  *catalog.Catalog
	settings Settings
	// machines are those of the allowed clouds, by cloud and name.
	machines []machine
}

// machine is a machine type with its GPU and its price in the region.
type machine struct {
	sku.SKU
	gpu sku.GPU
	// price and spotPrice are in USD per hour; negative if the region has no price.
	price, spotPrice float64
	region           string
	// there has the existing nodes of this kind in the order of use; nil for machines to buy. fullGPUs is the number of
	// GPUs of each node. SKU.GPUs is then the number of free ones.
	there    []Node
	fullGPUs int
}

// unpriced stands for a missing price.
const unpriced = -1

// machine joins the facts about one machine type.
func (mkt *market) machine(s sku.SKU) machine {
	m := machine{SKU: s, price: unpriced, spotPrice: unpriced, region: mkt.settings.Region}
	if m.region == "" {
		m.region = mkt.catalog.ReferenceRegion(s.Cloud)
	}
	if price, known := s.Prices[m.region]; known {
		m.price = price
	}
	if price, known := s.SpotPrices[m.region]; known {
		m.spotPrice = price
	}
	m.gpu, _ = mkt.catalog.GPU(s.GPU) // the catalogue has checked the name; a machine without GPUs has none
	return m
}

// perMillion returns the price of a million tokens in USD from a price per hour and a speed in tokens per second;
// negative if either is unknown.
func perMillion(price, speed float64) float64 {
	if price < 0 || speed <= 0 {
		return unpriced
	}
	return price / 3600 / speed * 1e6
}

// priceAs returns the price per hour of one machine for a capacity type; negative if unknown.
func (m *machine) priceAs(t v1beta1.CapacityType) float64 {
	switch {
	case t == v1beta1.CapacityReserved && m.Reserved:
		return 0
	case t == v1beta1.CapacitySpot && m.spotPrice >= 0:
		return m.spotPrice
	default:
		return m.price
	}
}

// MachinePrice returns the price per hour of one machine in USD; negative if unknown.
func (p *Planner) MachinePrice(instanceType string, t v1beta1.CapacityType) float64 {
	at := slices.IndexFunc(p.machines, func(m machine) bool { return m.Name == instanceType })
	if at < 0 {
		return unpriced
	}
	return p.machines[at].priceAs(t)
}

// priceWarnings warns if the bill may differ from the quoted price.
func (mkt *market) priceWarnings(m *machine, t v1beta1.CapacityType) []string {
	var out []string
	switch {
	case t == v1beta1.CapacitySpot && m.spotPrice < 0:
		out = append(out, "the price shown is the on-demand price, because the catalogue has no spot price; spot machines usually cost less")
	case t == v1beta1.CapacityReserved && !m.Reserved:
		out = append(out, "the price shown is the on-demand price, although the reservation is already paid for")
	}
	if m.priceAs(t) < 0 { // the other regions' prices take long to compare
		if elsewhere := m.soldElsewhere(); elsewhere != "" {
			out = append(out, fmt.Sprintf("%s has no known price in %s%s: have the administrator set the region or add prices",
				m.Name, m.regionName(), elsewhere))
		}
	}
	if mkt.settings.RegionUnknown != "" && m.priceAs(t) >= 0 {
		out = append(out, fmt.Sprintf("the price is for %s, because this cluster's region is unknown (%s): "+
			"have the administrator set the chart's region", m.regionName(), mkt.settings.RegionUnknown))
	}
	return out
}

// soldElsewhere names the cheapest region with a price for the machine; empty if no region has one.
func (m *machine) soldElsewhere() string {
	best := m.cheapestRegion()
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (%s in %s)", usd.PerHour(m.Prices[best]), best)
}

// soldFor names the machine with its price in another region, as an example; empty if no region has one.
func (m *machine) soldFor() string {
	if elsewhere := m.soldElsewhere(); elsewhere != "" {
		return " of " + m.Name + elsewhere
	}
	return ""
}

// cheapestRegion returns the region with the lowest price of the machine; empty if no region has a price.
func (m *machine) cheapestRegion() string {
	best := ""
	for _, region := range slices.Sorted(maps.Keys(m.Prices)) {
		if best == "" || m.Prices[region] < m.Prices[best] {
			best = region
		}
	}
	return best
}

// regionName returns the region for a message.
func (m *machine) regionName() string {
	if m.region == "" {
		return "the region"
	}
	return m.region
}

// elsewhere says how to get a purchased machine in place of the requested one.
func (m *machine) elsewhere() string {
	if m.there != nil {
		return "set resource.placement.nodeSource: Any"
	}
	return "leave resource.instanceType out"
}
