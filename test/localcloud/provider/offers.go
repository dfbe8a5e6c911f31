// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// reservedMemory is a machine's own share: a request for all of the memory on the size page does not fit, as on a
// real one.
const reservedMemory = "1Gi"

// instanceType describes a machine type to Karpenter.
func instanceType(s sku.SKU) *cloudprovider.InstanceType {
	it := &cloudprovider.InstanceType{
		Name: s.Name,
		Requirements: scheduling.NewRequirements(
			in(corev1.LabelInstanceTypeStable, s.Name),
			in(corev1.LabelArchStable, karpv1.ArchitectureAmd64),
			in(corev1.LabelOSStable, string(corev1.Linux)),
			in(corev1.LabelTopologyRegion, s.Region),
			in(corev1.LabelTopologyZone, s.Zones...),
			in(karpv1.CapacityTypeLabelKey, s.CapacityTypes()...),
		),
		Capacity: s.Capacity(),
		Overhead: &cloudprovider.InstanceTypeOverhead{
			KubeReserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(reservedMemory)},
		},
	}
	for _, capacityType := range s.CapacityTypes() {
		for _, zone := range s.Zones {
			it.Offerings = append(it.Offerings, &cloudprovider.Offering{
				Requirements: scheduling.NewRequirements(
					in(karpv1.CapacityTypeLabelKey, capacityType),
					in(corev1.LabelTopologyZone, zone),
				),
				Price:     s.Prices[capacityType],
				Available: true,
			})
		}
	}
	return it
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

// offer is one way to meet a claim.
type offer struct {
	sku          string
	zone         string
	capacityType string
	price        float64
}

// offersFor returns the offers for the claim, the cheapest first. With none, the error names the unmet demands.
func offersFor(types []*cloudprovider.InstanceType, claim *karpv1.NodeClaim) ([]offer, error) {
	demands := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var offers []offer
	var reasons []string
	for _, it := range types {
		if !demands.Get(corev1.LabelInstanceTypeStable).Has(it.Name) {
			continue
		}
		found, reason := offersOf(it, demands, claim.Spec.Resources.Requests)
		if reason != "" {
			reasons = append(reasons, it.Name+": "+reason)
		}
		offers = append(offers, found...)
	}
	if len(offers) == 0 {
		if len(reasons) == 0 {
			reasons = []string{"none of the machine types asked for is in the catalogue"}
		}
		return nil, fmt.Errorf("all requested instance types were unavailable during launch: %s", strings.Join(reasons, "; "))
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.sku, b.sku), cmp.Compare(a.zone, b.zone), cmp.Compare(a.capacityType, b.capacityType))
	})
	return offers, nil
}

// offersOf returns one machine type's offers for the demands, or the reason for their absence.
func offersOf(it *cloudprovider.InstanceType, demands scheduling.Requirements, requests corev1.ResourceList) ([]offer, string) {
	// Asked from the claim's side: its own labels, unknown to every machine type, are for the node to carry, not for
	// the type to meet.
	if err := demands.Compatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels); err != nil {
		return nil, err.Error()
	}
	if !resources.Fits(requests, it.Allocatable()) {
		return nil, "it is too small for " + tooMuch(requests, it.Allocatable())
	}
	var found []offer
	for _, o := range it.Offerings.Available().Compatible(demands) {
		found = append(found, offer{sku: it.Name, zone: o.Zone(), capacityType: o.CapacityType(), price: o.Price})
	}
	if len(found) == 0 {
		return nil, "it is not sold in the zones and capacity types asked for"
	}
	return found, ""
}

// tooMuch names the requests above the allocatable amount.
func tooMuch(requests, allocatable corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		want, have := requests[name], allocatable[name]
		if want.Cmp(have) > 0 {
			out = append(out, fmt.Sprintf("%s %s of %s", want.String(), name, have.String()))
		}
	}
	return strings.Join(out, ", ")
}

// requestFor returns a request for a machine. Its node registers with everything from the claim, and with Karpenter's
// taint for nodes not yet seen.
func requestFor(claim *karpv1.NodeClaim, o offer) cloud.Request {
	labels := map[string]string{}
	for _, r := range claim.Spec.Requirements {
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			labels[r.Key] = r.Values[0]
		}
	}
	maps.Copy(labels, claim.Labels)
	taints := slices.Concat(claim.Spec.Taints, claim.Spec.StartupTaints, []corev1.Taint{karpv1.UnregisteredNoExecuteTaint})
	return cloud.Request{
		Name: claim.Name, SKU: o.sku, Zone: o.zone, CapacityType: o.capacityType, Labels: labels, Taints: taints,
		Claim: string(claim.UID),
	}
}

// claimOf describes a machine in Karpenter's form.
func (p *Provider) claimOf(m cloud.Machine) *karpv1.NodeClaim {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              m.Name,
			CreationTimestamp: metav1.NewTime(m.Created),
			Labels: map[string]string{
				corev1.LabelInstanceTypeStable: m.SKU,
				corev1.LabelTopologyZone:       m.Zone,
				karpv1.CapacityTypeLabelKey:    m.CapacityType,
				corev1.LabelArchStable:         karpv1.ArchitectureAmd64,
				corev1.LabelOSStable:           string(corev1.Linux),
			},
		},
		Status: karpv1.NodeClaimStatus{ProviderID: m.ProviderID, ImageID: "local"},
	}
	if m.State == cloud.Stopping {
		now := metav1.NewTime(m.Created)
		claim.DeletionTimestamp = &now
	}
	s, known := p.skus[m.SKU]
	if !known {
		return claim
	}
	claim.Labels[corev1.LabelTopologyRegion] = s.Region
	it := instanceType(s)
	claim.Status.Capacity, claim.Status.Allocatable = it.Capacity, it.Allocatable()
	return claim
}
