// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/wording"
)

// candidates returns the machines to consider: the manifest's type, else all. It warns of unknown names, and refuses
// a request whose names are all unknown.
func (mkt *market) candidates(c Constraints) ([]machine, []string, error) {
	if c.InstanceType != "" {
		m, err := mkt.named(c.InstanceType)
		if err != nil {
			return nil, nil, err
		}
		return []machine{m}, mkt.unknownAccelerators(c), nil
	}
	unknown, all, err := mkt.unknownTypes(c.InstanceTypes)
	if err != nil && all {
		return nil, nil, &InfeasibleError{
			Reason:  v1beta1.ReasonUnknownInstanceType,
			Message: "none of resource.placement.instanceTypes is known: " + err.Error(),
		}
	}
	return mkt.machines, append(unknown, mkt.unknownAccelerators(c)...), nil
}

// unknownTypes warns of unknown instance types, and returns the catalogue's error for the first one and whether all
// are unknown.
func (mkt *market) unknownTypes(names []string) (warnings []string, all bool, first error) {
	var unknown []string
	for _, name := range distinct(names) {
		if _, err := mkt.catalog.ResolveSKU(name); err != nil {
			unknown = append(unknown, name)
			first = cmp.Or(first, err)
		}
	}
	if first == nil {
		return nil, false, nil
	}
	warning := fmt.Sprintf("resource.placement.instanceTypes: %s", first)
	if len(unknown) > 1 {
		warning += fmt.Sprintf("; also unknown: %s", strings.Join(unknown[1:], ", "))
	}
	return []string{wording.Clip(warning, longestWarning)}, len(unknown) == len(distinct(names)), first
}

// named returns a manifest's machine type, in any case.
func (mkt *market) named(name string) (machine, error) {
	s, err := mkt.catalog.ResolveSKU(name)
	if err != nil {
		return machine{}, &InfeasibleError{
			Reason: v1beta1.ReasonUnknownInstanceType, Message: "resource.instanceType: " + err.Error(),
		}
	}
	if len(mkt.settings.Clouds) > 0 && !slices.Contains(mkt.settings.Clouds, s.Cloud) {
		return machine{}, &InfeasibleError{
			Reason: v1beta1.ReasonInstanceTypeUnusable,
			Message: fmt.Sprintf("resource.instanceType: %s is a machine type of %s, but this installation buys from %s: "+
				"name one of its machine types, or leave instanceType out", s.Name, s.Cloud, strings.Join(mkt.settings.Clouds, ", ")),
		}
	}
	if s.Unusable != "" {
		return machine{}, &InfeasibleError{
			Reason: v1beta1.ReasonInstanceTypeUnusable,
			Message: fmt.Sprintf("resource.instanceType: %s cannot be used: %s; name another machine type, or leave "+
				"instanceType out", s.Name, s.Unusable),
		}
	}
	return mkt.machine(s), nil
}

// unknownAccelerators warns of names without a machine's GPU.
func (mkt *market) unknownAccelerators(c Constraints) []string {
	unknown := slices.DeleteFunc(distinct(c.Accelerators), func(name string) bool {
		return slices.ContainsFunc(mkt.machines, func(m machine) bool { return isAccelerator(&m, name) })
	})
	if len(unknown) == 0 {
		return nil
	}
	warning := "resource.placement.accelerators: no machine has a GPU named " + strings.Join(unknown, ", ")
	if similar := mkt.catalog.SimilarGPUs(unknown[0]); len(similar) > 0 {
		warning += ": did you mean " + strings.Join(similar, " or ") + "?"
	}
	return []string{wording.Clip(warning, longestWarning)}
}

// isNamed reports whether the user named a machine type, alone or in a list.
func isNamed(c Constraints, m *machine) bool {
	return c.InstanceType != "" || slices.ContainsFunc(c.InstanceTypes, func(name string) bool { return strings.EqualFold(name, m.Name) })
}

// isAccelerator reports whether a name means the machine's GPU: by class, part or alias, or by the class without its
// size, for all sizes: H100 is H100-80 and H100-94.
func isAccelerator(m *machine, name string) bool {
	if m.GPUs == 0 {
		return false
	}
	name = strings.ReplaceAll(name, " ", "-") // as the catalogue's lookup does
	same := func(other string) bool { return strings.EqualFold(name, other) }
	family, _, _ := strings.Cut(m.gpu.Class, "-")
	if m.gpu.Whole != "" {
		family = m.gpu.Class // a slice is no whole GPU
	}
	return same(m.gpu.Class) || same(m.gpu.Name) || same(family) || slices.ContainsFunc(m.gpu.Aliases, same)
}

// allowed returns the capacity type of a machine, or why it may not be used. Price limit and number of machines are
// checked later, so that a lack of memory is reported as such.
func (mkt *market) allowed(c Constraints, m *machine) (v1beta1.CapacityType, string) {
	types, reason := mkt.payable(c, m)
	if reason != "" {
		return "", reason
	}
	return capacityType(types, m)
}

// payable returns the allowed capacity types of a machine, or why it may not be used.
func (mkt *market) payable(c Constraints, m *machine) ([]v1beta1.CapacityType, string) {
	same := func(name string) bool { return strings.EqualFold(name, m.Name) }
	launches := func() bool {
		return mkt.settings.Provisioner == "" || len(m.Provisioners) == 0 || slices.Contains(m.Provisioners, mkt.settings.Provisioner)
	}
	// The user's limits come first: a refusal then names the machines within them that cannot be bought.
	switch {
	case len(c.InstanceTypes) > 0 && !slices.ContainsFunc(c.InstanceTypes, same):
		return nil, notAllowed + "instance types"
	case len(c.Accelerators) > 0 && !slices.ContainsFunc(c.Accelerators, func(a string) bool { return isAccelerator(m, a) }):
		return nil, notAllowed + "accelerators"
	case m.Unusable != "":
		return nil, notForSale + m.Unusable
	case !launches():
		return nil, fmt.Sprintf("%s%s does not launch it", notForSale, mkt.settings.Provisioner)
	case c.GPUs > m.GPUs:
		return nil, fmt.Sprintf("has %s, but %d are requested", count(m.GPUs, "GPU"), c.GPUs)
	}
	return notExcluded(c, m)
}

// notForSale begins the reasons against machines that nobody can buy, and notAllowed those of the user's limits.
const (
	notForSale = "cannot be bought: "
	notAllowed = "not among the allowed "
)

// notExcluded returns the capacity types of a machine outside the cooldowns, or why none is left.
func notExcluded(c Constraints, m *machine) ([]v1beta1.CapacityType, string) {
	types := c.CapacityTypes
	if len(types) == 0 { // an unknown reservation is used only at the user's request
		types = []v1beta1.CapacityType{v1beta1.CapacityOnDemand}
		if m.Reserved {
			types = append(types, v1beta1.CapacityReserved)
		}
	}
	asked, reason := types, ""
	for _, e := range c.Excluded {
		if !strings.EqualFold(e.InstanceType, m.Name) {
			continue
		}
		if e.CapacityType == "" {
			return nil, e.Reason
		}
		types = slices.DeleteFunc(slices.Clone(types), func(t v1beta1.CapacityType) bool { return t == e.CapacityType })
		reason = e.Reason
	}
	left, unsold := capacityType(types, m)
	// An unknown reservation does not replace capacity that the cloud has refused on demand.
	guessed := left == v1beta1.CapacityReserved && !m.Reserved && slices.Contains(asked, v1beta1.CapacityOnDemand)
	if reason != "" && (unsold != "" || guessed) {
		return nil, reason
	}
	return types, ""
}

// capacityType chooses how to pay: from a reservation, as it is paid for already, then spot if it is allowed, sold
// and not dearer, then on demand. If nothing but reserved is allowed, the cloud may hold a reservation outside the
// catalogue.
func capacityType(allowed []v1beta1.CapacityType, m *machine) (v1beta1.CapacityType, string) {
	onDemand := slices.Contains(allowed, v1beta1.CapacityOnDemand)
	spotIsDearer := m.spotPrice > m.price && m.price >= 0 // so its administrator says
	switch {
	case m.Reserved && slices.Contains(allowed, v1beta1.CapacityReserved):
		return v1beta1.CapacityReserved, ""
	case m.Spot && slices.Contains(allowed, v1beta1.CapacitySpot) && (!onDemand || !spotIsDearer):
		return v1beta1.CapacitySpot, ""
	case onDemand:
		return v1beta1.CapacityOnDemand, ""
	case slices.Contains(allowed, v1beta1.CapacityReserved):
		return v1beta1.CapacityReserved, ""
	default:
		return "", "not known to be sold as spot"
	}
}

// tooDear says why the price limit forbids a machine.
func tooDear(c Constraints, m *machine, price float64) string {
	most := c.limit().HourlyPrice
	switch {
	case most <= 0:
		return ""
	case price < 0:
		return fmt.Sprintf("no price known in %s%s, so the limit of %s could be exceeded", m.regionName(), m.soldElsewhere(), usd.PerHour(most))
	case price > most:
		limit, actual := usd.Apart(most, price)
		return fmt.Sprintf("costs %s, above the limit of %s", actual, limit)
	default:
		return ""
	}
}

// maxHourlyPrice is the user's limit, for messages.
const maxHourlyPrice = "resource.placement.maxHourlyPrice"

// limit returns the lower of the user's price limit and that of others.
func (c Constraints) limit() Ceiling {
	own := Ceiling{HourlyPrice: c.MaxHourlyPrice, Name: maxHourlyPrice, Help: "raise the limit"}
	if own.HourlyPrice <= 0 || c.Ceiling.HourlyPrice > 0 && c.Ceiling.HourlyPrice < own.HourlyPrice {
		return c.Ceiling
	}
	return own
}
