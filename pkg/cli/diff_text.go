// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
)

// hoursPerMonth is the clouds' convention.
const hoursPerMonth = 730

// describeDifferences explains the change of each Workspace.
func describeDifferences(out page, found []difference) {
	for i := range found {
		if i > 0 {
			out.line("")
		}
		describeDifference(out, &found[i])
	}
}

func describeDifference(out page, d *difference) {
	ws := v1beta1.Workspace{}
	ws.Namespace, ws.Name = d.Namespace, d.Name
	code := yellow
	switch d.Effect {
	case effectNothing:
		code = green
	case effectRefused, effectRecreate:
		code = red
	}
	out.line("%s %s", out.paint(bold, key(&ws)+":"), out.paint(code, d.Summary))
	for _, change := range d.Fields {
		for _, line := range folded(fieldText(&change), pageWidth-4) {
			out.line("  %s", line)
		}
	}
	out.fact("machines", fmt.Sprintf("%s → %s", d.Old.machines(), d.New.machines()))
	out.fact("price", fmt.Sprintf("%s → %s%s", d.Old.price(), d.New.price(), monthly(d)))
	if d.New == nil {
		return
	}
	for _, warning := range d.New.Warnings {
		out.point(out.paint(yellow, "!"), warning)
	}
}

func fieldText(c *fieldChange) string {
	if c.Field == configField {
		return "the ConfigMap's text changes"
	}
	return fmt.Sprintf("%s: %s → %s", c.Field, value(c.Old), value(c.New))
}

func value(text string) string {
	if text == "" {
		return "nothing"
	}
	return shorten(text)
}

// machines describes the machines of a plan.
func (s *side) machines() string {
	switch {
	case s == nil:
		return "none"
	case s.err != nil:
		return "no plan"
	case !s.buys:
		return fmt.Sprintf("none (suspended; planned: %s)", s.Machines)
	default:
		return s.Machines
	}
}

// hourly returns the price of the machines per hour; false if unknown.
func (s *side) hourly() (float64, bool) {
	switch {
	case s == nil, s.err == nil && !s.buys:
		return 0, true
	case s.err != nil || s.HourlyPrice == nil:
		return 0, false
	default:
		return *s.HourlyPrice, true
	}
}

func (s *side) price() string {
	price, known := s.hourly()
	if !known {
		return "not known"
	}
	return hourly(price)
}

// monthly describes a change's effect on the cost per month.
func monthly(d *difference) string {
	before, known := d.Old.hourly()
	after, alsoKnown := d.New.hourly()
	if !known || !alsoKnown || before == after {
		return ""
	}
	sign := "+"
	if after < before {
		sign = "−"
	}
	return fmt.Sprintf(" (%s%s, about %s%s a month)", sign, usd.PerHour(abs(after-before)), sign, usd.Significant(abs(after-before)*hoursPerMonth))
}

func abs(value float64) float64 { return max(value, -value) }
