// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSpec selects the machines of a Workspace.
type ResourceSpec struct {
	// count is the number of machines. If it is unset, the API server stores 1, and the planner decides. Above 1,
	// it is an upper bound for presets and the exact number for templates.
	// +kubebuilder:default=1
	// +optional
	Count *int `json:"count,omitempty"`
	// instanceType is the machine type to buy, for example Standard_NC24ads_A100_v4. If it is unset, the planner
	// picks the cheapest suitable one. Immutable once set.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// labelSelector selects the allowed existing nodes, and becomes labels of bought nodes. Only matchLabels and
	// single-valued In expressions are supported. Immutable.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// preferredNodes names nodes to prefer. Deprecated by KAITO; read as a preference by node name.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	PreferredNodes []string `json:"preferredNodes,omitempty"`
	// partition requests a share of a machine's accelerators. Immutable.
	// +optional
	Partition *PartitionSpec `json:"partition,omitempty"`
	// placement limits the machines and their price. Modelberth only.
	// +optional
	Placement *PlacementSpec `json:"placement,omitempty"`
}

// PartitionMode is a way to use only a share of a machine's accelerators.
//
// +kubebuilder:validation:Enum=mig;accelerator
type PartitionMode string

// The partition modes.
const (
	// PartitionMIG uses one MIG slice.
	PartitionMIG PartitionMode = "mig"
	// PartitionAccelerator uses a number of whole GPUs.
	PartitionAccelerator PartitionMode = "accelerator"
)

// PartitionSpec asks for a share of a machine's accelerators.
type PartitionSpec struct {
	// mode is mig (one MIG slice) or accelerator (a number of whole GPUs).
	Mode PartitionMode `json:"mode"`
	// profile is the MIG profile, for example 1g.10gb; for mode mig only.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Profile string `json:"profile,omitempty"`
	// count is the number of whole GPUs; for mode accelerator only.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	Count *int `json:"count,omitempty"`
}

// NodeSource is the allowed source of machines.
//
// +kubebuilder:validation:Enum=Any;Existing;Provisioned
type NodeSource string

// The node sources.
const (
	// NodeSourceAny uses existing nodes first, then buys.
	NodeSourceAny NodeSource = "Any"
	// NodeSourceExisting never buys.
	NodeSourceExisting NodeSource = "Existing"
	// NodeSourceProvisioned always buys.
	NodeSourceProvisioned NodeSource = "Provisioned"
)

// CapacityType is how a machine is paid for.
//
// +kubebuilder:validation:Enum=reserved;on-demand;spot
type CapacityType string

// The capacity types, as in Karpenter's label karpenter.sh/capacity-type.
const (
	CapacityReserved CapacityType = "reserved"
	CapacityOnDemand CapacityType = "on-demand"
	CapacitySpot     CapacityType = "spot"
)

// PlacementSpec limits the machines and their price.
type PlacementSpec struct {
	// nodeSource is Any (existing nodes first, then buy), Existing (never buy) or Provisioned (always
	// buy). Unset means Existing if there is a labelSelector and neither resource.instanceType, nor
	// instanceTypes or capacityTypes here; else Any. Limits such as maxHourlyPrice, accelerators and
	// zones never turn buying on.
	// +optional
	NodeSource NodeSource `json:"nodeSource,omitempty"`
	// instanceTypes are the allowed machine types; none means any. Not together with instanceType.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +optional
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// accelerators are the allowed GPU names, for example H100-80 or L40S; none means any.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Accelerators []string `json:"accelerators,omitempty"`
	// zones are the allowed zones; none means any.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	Zones []string `json:"zones,omitempty"`
	// capacityTypes are the allowed ways to pay; unset means reserved and on-demand.
	// +kubebuilder:validation:MaxItems=3
	// +listType=atomic
	// +optional
	CapacityTypes []CapacityType `json:"capacityTypes,omitempty"`
	// maxHourlyPrice is the maximum price of all machines of this Workspace together, in USD per hour, for
	// example "7.50". Lowering it never releases running machines.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MaxHourlyPrice string `json:"maxHourlyPrice,omitempty"`
	// nodeClassRef names the NodeClass to buy with; it must be on the administrator's allowlist.
	// +optional
	NodeClassRef *NodeClassReference `json:"nodeClassRef,omitempty"`
}

// NodeClassReference names a Karpenter NodeClass.
type NodeClassReference struct {
	// group is the API group, for example karpenter.azure.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// kind is the kind, for example AKSNodeClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// name is the name of the NodeClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// EffectiveNodeSource returns the source of machines, with the default for an unset nodeSource: a manifest that
// buys nothing under KAITO buys nothing here, whatever limits are added to it.
func (r *ResourceSpec) EffectiveNodeSource() NodeSource {
	if r.Placement != nil && r.Placement.NodeSource != "" {
		return r.Placement.NodeSource
	}
	if r.LabelSelector != nil && !r.namesPurchase() {
		return NodeSourceExisting
	}
	return NodeSourceAny
}

// namesPurchase reports whether a field selects a purchase, rather than limits it.
func (r *ResourceSpec) namesPurchase() bool {
	if r.InstanceType != "" {
		return true
	}
	return r.Placement != nil && (len(r.Placement.InstanceTypes) > 0 || len(r.Placement.CapacityTypes) > 0)
}
