// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/sku"
)

// Override contains the administrator's changes to facts about a machine type. An absent field changes nothing.
type Override struct {
	// Name of the instance type, in any case.
	Name string `json:"name"`
	// Prices (on demand) and SpotPrices are in USD per hour, by region. Prices in other regions stay. A machine type
	// with a spot price may be bought as spot.
	Prices     map[string]float64 `json:"prices,omitempty"`
	SpotPrices map[string]float64 `json:"spotPrices,omitempty"`
	// Reserved is set if there is a reservation, so that the machine costs nothing more.
	Reserved *bool `json:"reserved,omitempty"`
	// Unusable is the reason why no plan uses the machine type. An empty text makes the type usable.
	Unusable *string `json:"unusable,omitempty"`
}

// patchedBy returns the SKU with the override's changes.
func patchedBy(s sku.SKU, o Override) sku.SKU {
	s = s.Clone()
	s.Prices, s.SpotPrices = merged(s.Prices, o.Prices), merged(s.SpotPrices, o.SpotPrices)
	s.Spot = s.Spot || len(o.SpotPrices) > 0
	if o.Reserved != nil {
		s.Reserved = *o.Reserved
	}
	if o.Unusable != nil {
		s.Unusable = *o.Unusable
	}
	return s
}

// merged returns the prices of both maps. The later prices take precedence.
func merged(prices, later map[string]float64) map[string]float64 {
	if len(later) == 0 {
		return prices
	}
	out := maps.Clone(prices)
	if out == nil {
		out = map[string]float64{}
	}
	maps.Copy(out, later)
	return out
}

// validateOverride checks one override.
func validateOverride(o Override) error {
	var c check
	c.text("name", o.Name, isName, "must be an instance type such as Standard_NC24ads_A100_v4")
	if len(o.Prices) == 0 && len(o.SpotPrices) == 0 && o.Reserved == nil && o.Unusable == nil {
		return errors.New("it has no effect: set prices, spotPrices, reserved or unusable")
	}
	c.prices("prices", o.Prices)
	c.prices("spotPrices", o.SpotPrices)
	if o.Unusable != nil {
		c.reason("unusable", *o.Unusable)
	}
	return c.err
}

// override applies a layer's overrides to the SKUs of that layer and of earlier ones. A later layer's SKU of the same
// name replaces the changed SKU.
func (m *merger) override(overrides entries[Override]) error {
	// In the order of the files, so that the error names the first mistake.
	ordered := overrides.sorted()
	slices.SortStableFunc(ordered, func(a, b origin[Override]) int { return cmp.Compare(a.file, b.file) })
	for _, o := range ordered {
		key := strings.ToLower(o.entry.Name)
		known, ok := m.skus[key]
		if !ok {
			return fmt.Errorf("catalogue file %q: overrides: %w", o.file, &UnknownError{
				Kind: KindInstanceType, Name: o.entry.Name, Suggestions: closest(o.entry.Name, m.skuNames()),
			})
		}
		known.entry = patchedBy(known.entry, o.entry)
		m.skus[key] = known
	}
	return nil
}

// skuNames returns the names of the SKUs so far.
func (m *merger) skuNames() []string {
	var names []string
	for _, o := range m.skus.sorted() {
		names = append(names, o.entry.Name)
	}
	return names
}
