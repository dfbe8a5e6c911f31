// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package purchase

import (
	"iter"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// offers returns all offers of the catalogue in a zone, or in any zone if it is empty.
func (m *Market) offers(zone, nodeClass string) iter.Seq[refusal.Offering] {
	return func(yield func(refusal.Offering) bool) {
		for _, known := range m.skus() {
			for _, capacityType := range []v1beta1.CapacityType{
				v1beta1.CapacityOnDemand, v1beta1.CapacityReserved, v1beta1.CapacitySpot,
			} {
				offer := refusal.Offering{
					InstanceType: known.Name, Family: known.QuotaFamily, Zone: zone, CapacityType: capacityType, NodeClass: nodeClass,
				}
				if !yield(offer) {
					return
				}
			}
		}
	}
}

// Remember converts attempts of a Workspace for the memory of refusals.
func (m *Market) Remember(who refusal.Asker, attempts []v1beta1.Attempt) []refusal.Attempt {
	return acquire.Remember(who, attempts, func(a *v1beta1.Attempt) refusal.Offering {
		return m.Offering(a.InstanceType, a.Zone, a.CapacityType, a.NodeClassName)
	})
}

// Offering returns an attempt's request, with the cloud's quota family.
func (m *Market) Offering(instanceType, zone string, capacityType v1beta1.CapacityType, class string) refusal.Offering {
	out := refusal.Offering{InstanceType: instanceType, Zone: zone, CapacityType: capacityType, NodeClass: class}
	if known, err := m.Catalog.ResolveSKU(instanceType); err == nil {
		out.Family = known.QuotaFamily
	}
	return out
}

// ClassOf returns the node class of a plan's machines: the named one, or else the installation's default.
func (m *Market) ClassOf(named *v1beta1.NodeClassReference) v1beta1.NodeClassReference {
	switch {
	case named != nil:
		return *named
	case len(m.NodeClasses) > 0:
		return m.NodeClasses[0]
	default:
		return v1beta1.NodeClassReference{}
	}
}
