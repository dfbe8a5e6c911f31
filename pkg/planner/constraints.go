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

// candidates returns the machine types to consider: the one that the manifest names, or else all. It warns of unknown
// names, and fails if every name is unknown.
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

// unknownTypes warns of unknown machine types. It also returns the catalogue's error for the first one, and whether all
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

// named returns the machine type that a manifest names. Case does not matter.
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

// unknownAccelerators warns of accelerator names that match no machine's GPU.
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

// isAccelerator reports whether a name means the machine's GPU. It may be the class, the part or an alias. A class
// without its size means all sizes: H100 is H100-80 and H100-94.
func isAccelerator(m *machine, name string) bool {
	if m.GPUs == 0 {
		return false
	}
	name = strings.ReplaceAll(name, " ", "-") // as the catalogue's lookup does
	same := func(other string) bool { return strings.EqualFold(name, other) }
	family, _, _ := strings.Cut(m.gpu.Class, "-")
	if m.gpu.Whole != "" {
		family = m.gpu.Class // H100 does not mean its MIG slices
	}
	return same(m.gpu.Class) || same(m.gpu.Name) || same(family) || slices.ContainsFunc(m.gpu.Aliases, same)
}

// allowed returns the capacity type for a machine, or the reason why the constraints exclude the machine. Other code
// checks the price limit and the number of machines later, because a lack of memory is the better reason.
func (mkt *market) allowed(c Constraints, m *machine) (v1beta1.CapacityType, string) {
	types, reason := mkt.payable(c, m)
	if reason != "" {
		return "", reason
	}
	return capacityType(types, m)
}

// payable returns the allowed capacity types of a machine, or the reason why the constraints exclude the machine.
func (mkt *market) payable(c Constraints, m *machine) ([]v1beta1.CapacityType, string) {
	same := func(name string) bool { return strings.EqualFold(name, m.Name) }
	launches := func() bool {
		return mkt.settings.Provisioner == "" || len(m.Provisioners) == 0 || slices.Contains(m.Provisioners, mkt.settings.Provisioner)
	}
	// The user's limits come first, because infeasible lists the machines within them that nobody can buy.
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

// notForSale is the beginning of the reason if nobody can buy a machine, and notAllowed if the user's limits exclude
// it.
const (
	notForSale = "cannot be bought: "
	notAllowed = "not among the allowed "
)

// notExcluded returns the capacity types of a machine without a cooldown, or the reason of the cooldown if none is
// left.
func notExcluded(c Constraints, m *machine) ([]v1beta1.CapacityType, string) {
	types := c.CapacityTypes
	if len(types) == 0 { // without a declared reservation, only the user may choose reserved
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
	// The cloud refused on-demand capacity. A reservation that the catalogue does not list cannot replace it.
	guessed := left == v1beta1.CapacityReserved && !m.Reserved && slices.Contains(asked, v1beta1.CapacityOnDemand)
	if reason != "" && (unsold != "" || guessed) {
		return nil, reason
	}
	return types, ""
}

// capacityType chooses the capacity type. A reservation comes first, because it is paid for already. Then comes spot,
// if the machine is sold so, unless on demand is allowed and cheaper. Then comes on demand. If only reserved is
// allowed, the cloud may have a reservation that the catalogue does not list.
func capacityType(allowed []v1beta1.CapacityType, m *machine) (v1beta1.CapacityType, string) {
	onDemand := slices.Contains(allowed, v1beta1.CapacityOnDemand)
	spotIsDearer := m.spotPrice > m.price && m.price >= 0 // by the catalogue's prices
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

// tooDear explains why the price limit excludes a machine; "" if it does not.
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

// maxHourlyPrice names the user's limit in messages.
const maxHourlyPrice = "resource.placement.maxHourlyPrice"

// limit returns the lower one of the user's price limit and the administrator's ceiling.
func (c Constraints) limit() Ceiling {
	own := Ceiling{HourlyPrice: c.MaxHourlyPrice, Name: maxHourlyPrice, Help: "raise the limit"}
	if own.HourlyPrice <= 0 || c.Ceiling.HourlyPrice > 0 && c.Ceiling.HourlyPrice < own.HourlyPrice {
		return c.Ceiling
	}
	return own
}
