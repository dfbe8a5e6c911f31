// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/model"
)

// Quantization returns the format of weights with the name or alias. It ignores case.
func (c *Catalog) Quantization(name string) (model.Quantization, bool) {
	q, ok := c.quantizations[strings.ToLower(name)]
	return q.Clone(), ok
}

// Quantizations returns all formats of weights by name.
func (c *Catalog) Quantizations() []model.Quantization {
	out := make([]model.Quantization, len(c.sortedQuantizations))
	for i, q := range c.sortedQuantizations {
		out[i] = q.Clone()
	}
	return out
}

// validateQuantization checks one format of weights.
func validateQuantization(q model.Quantization) error {
	var c check
	c.text("name", q.Name, isLowerName, "must be a lower-case name such as fp8")
	for i, alias := range q.Aliases {
		c.text(fmt.Sprintf("aliases[%d]", i), alias, isLowerName, "must be a lower-case name")
	}
	if q.Family != "" {
		c.text("family", q.Family, isLowerName, "must be a lower-case name such as int4")
	}
	c.positive("bytesPerParam", q.BytesPerParam, 8)
	scopes := []model.Scope{model.ScopeAll, model.ScopeLinears, model.ScopeExperts}
	if !slices.Contains(scopes, q.Scope) {
		c.fail("scope", fmt.Sprintf("%q", q.Scope), "must be all, linears or experts")
	}
	c.text("peak", q.Peak, isLowerName, "must be a data type such as fp8")
	c.within("block", float64(q.Block), 0, 1<<12)
	if q.LoadedFactor != 0 {
		c.within("loadedFactor", q.LoadedFactor, 1, 2)
	}
	if q.FormerFactor != 0 || q.FormerUntil != "" {
		c.within("formerFactor", q.FormerFactor, 1, 2)
		c.text("formerUntil", q.FormerUntil, isReleaseNumber, `must be a release such as "0.11", in quotes`)
	}
	if len(q.Consent) > longestReason || strings.ContainsAny(q.Consent, "\r\n") {
		c.fail("consent", fmt.Sprintf("%.40q…", q.Consent), fmt.Sprintf("must be one line of at most %d bytes", longestReason))
	}
	return c.err
}

func (m *merger) indexQuantizations(c *Catalog) error {
	for _, o := range m.quantizations.sorted() {
		for _, name := range append([]string{o.entry.Name}, o.entry.Aliases...) {
			if other, taken := c.quantizations[strings.ToLower(name)]; taken {
				return fmt.Errorf("catalogue file %q: quantization %q: the name %q already belongs to %q",
					o.file, o.entry.Name, name, other.Name)
			}
			c.quantizations[strings.ToLower(name)] = o.entry
		}
		c.sortedQuantizations = append(c.sortedQuantizations, o.entry)
	}
	return nil
}

// knownQuantization returns an error for an unknown format, or nil.
func (c *Catalog) knownQuantization(name string) error {
	if _, known := c.quantizations[strings.ToLower(name)]; known {
		return nil
	}
	return fmt.Errorf("%q is not the name of a quantization%s", name, suggestion(closest(name, sortedKeys(c.quantizations))))
}
