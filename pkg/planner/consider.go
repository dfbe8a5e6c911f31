// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math"

	"github.com/modelberth/modelberth/pkg/wording"
)

// consider tries one machine type and records the result.
func (p *Planner) consider(d demand, c Constraints, m *machine, found *outcome) {
	reject := func(nodes int, price float64, reason string) Verdict {
		v := Verdict{InstanceType: m.Name, Nodes: nodes, HourlyPrice: total(price, nodes), Reason: wording.Clip(reason, longestVerdict)}
		found.rejected = append(found.rejected, v)
		return v
	}
	capacityType, reason := p.allowed(c, m)
	if nodes := d.fewest(); reason == "" && c.MaxNodes > 0 && nodes > c.MaxNodes {
		reason = fmt.Sprintf("needs %s, but the limit is %d (resource.count)", count(nodes, "machine"), c.MaxNodes)
	}
	price := m.priceAs(capacityType)
	if reason != "" {
		reject(d.fewest(), m.price, reason)
		return
	}
	found.tried++
	o, refused := d.place(m)
	if o != nil {
		refused = refusal{o.nodes, p.lacksDisk(o, m)}
	}
	if refused.reason != "" {
		found.misfits = append(found.misfits, reject(refused.nodes, price, refused.reason))
		return
	}
	o.machine, o.capacityType, o.price = m, capacityType, total(price, o.nodes)
	o.warnings = append(o.warnings, p.priceWarnings(m, capacityType)...)
	if o.price < 0 && c.MaxHourlyPrice <= 0 && !isNamed(c, m) {
		found.unpriced = append(found.unpriced, o)
		reject(o.nodes, price, unknownPrice(m))
		return
	}
	if reason := tooDear(c, m, o.price); reason != "" {
		reject(o.nodes, price, reason)
		found.tooDear = append(found.tooDear, o)
		return
	}
	found.options = append(found.options, o)
}

// lacksDisk explains why the machine's disk is too small for the weights and the image; "" if it is large enough.
func (mkt *market) lacksDisk(o *option, m *machine) string {
	if o.layout.form == nil || mkt.settings.OSDiskGiB == 0 {
		return ""
	}
	need, has := o.layout.diskGiB(), float64(mkt.settings.OSDiskGiB)
	if mkt.settings.LocalDisk {
		has = max(has, m.LocalDiskGiB)
	}
	if float64(need) <= has {
		return ""
	}
	return fmt.Sprintf("has a disk of %.0f GiB, but image and weights need %d GiB: have the administrator give its NodeClass a larger OS disk",
		math.Floor(has), need)
}
