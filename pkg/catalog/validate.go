// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"math"
)

// longestReason leaves room in a verdict, because the API limits verdicts to 256 characters.
const longestReason = 200

// check records the first problem of an entry.
type check struct{ err error }

// fail records a problem unless there is one already.
func (c *check) fail(field string, value any, must string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %v %s", field, value, must)
	}
}

// text records a problem if a text has the wrong form.
func (c *check) text(field, value string, form func(string) bool, must string) {
	if !form(value) {
		c.fail(field, fmt.Sprintf("%q", value), must)
	}
}

// within records a problem if a number is outside its bounds.
func (c *check) within(field string, value, least, most float64) {
	if math.IsNaN(value) || value < least || value > most {
		c.fail(field, value, fmt.Sprintf("must be from %v to %v", least, most))
	}
}

// positive records a problem if a number is not above 0 and at most the bound.
func (c *check) positive(field string, value, most float64) {
	if math.IsNaN(value) || value <= 0 || value > most {
		c.fail(field, value, fmt.Sprintf("must be above 0 and at most %v", most))
	}
}

// validateHeader checks a file's header. Overlays need no sources.
func validateHeader(doc document, sourced bool) error {
	var c check
	if sourced && doc.Source == "" {
		c.fail("source", `""`, "must name the source of the facts")
	}
	if sourced || doc.Date != "" {
		c.text("date", doc.Date, isDate, "must be a date such as 2026-01-31, in quotes")
	}
	if doc.Currency != "" && doc.Currency != "USD" {
		c.fail("currency", fmt.Sprintf("%q", doc.Currency), "must be USD: convert the prices")
	}
	if doc.Cloud != "" {
		c.text("cloud", doc.Cloud, isLowerName, "must be a lower-case name such as azure")
	}
	if doc.Region != "" {
		c.text("region", doc.Region, isLowerName, "must be a region such as eastus")
		if doc.Cloud == "" {
			c.fail("region", fmt.Sprintf("%q", doc.Region), "requires cloud")
		}
	}
	return c.err
}
