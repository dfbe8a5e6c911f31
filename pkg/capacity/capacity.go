// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity has the types between the controller and the back ends for machines: requests, machines, and typed
// errors.
//
// It decides nothing. It must not depend on models, on how plans are computed, or on any provisioner's objects.
package capacity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Owner is the Workspace of a machine. The UID identifies it: a Workspace deleted and created again is another owner.
type Owner struct {
	Namespace string
	Name      string
	UID       types.UID
}

// Distinct returns the owners that have a UID, each once, sorted by UID.
func Distinct(owners []Owner) []Owner {
	owners = slices.DeleteFunc(owners, func(owner Owner) bool { return owner.UID == "" })
	slices.SortFunc(owners, func(a, b Owner) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return slices.Compact(owners)
}

// Request is a request for machines of one type.
type Request struct {
	Owner Owner
	// Attempt is the number of the attempt, from 1. It is part of the machines' names, so a new attempt never collides
	// with the remains of an old one.
	Attempt int32
	// InstanceType and Count are the type and the number of the machines.
	InstanceType string
	Count        int
	// GPUs is the number of GPUs that each machine must advertise as GPUResource before it counts as initialized.
	GPUResource string
	GPUs        int
	// DiskGiB is the ephemeral storage of each machine.
	DiskGiB int
	// CapacityType to buy, and the Zones to buy it in; empty means any.
	CapacityType v1beta1.CapacityType
	Zones        []string
	// AvoidZones are the zones that recently refused such a request; empty means none.
	AvoidZones []string
	// OneZone requires all machines in one zone: the zone of the first launched machine. The others are requested
	// after its launch.
	OneZone bool
	// NodeClass to buy with; nil means the installation's default.
	NodeClass *v1beta1.NodeClassReference
	// HourlyPrice of one machine in USD, as recorded on the machine; negative if unknown.
	HourlyPrice float64
	// Labels of the nodes in addition to the labels of the owner.
	Labels map[string]string
	// Dedicated reports whether the machines get the taint of their owner.
	Dedicated bool
	// Existed are the names of this attempt's machines that have existed. They are not requested again.
	Existed []string
	// Replaced are the UIDs of the lost machines of this attempt. They are released, and others with their names are
	// requested.
	Replaced []types.UID
	// Keep are the names of the serving machines of another attempt. They stay.
	Keep []string
	// MakePods creates the Workspace's pods, for the machines of this request. Only back ends that get machines for
	// pending pods call it.
	MakePods func(ctx context.Context) error
	// Confirm is called once before anything is created or released. Its error prevents both; nil confirms.
	Confirm func(ctx context.Context) error
}

// In returns the request with a decided zone in place of the allowed and the avoided zones.
func (r Request) In(zone string) Request {
	if zone != "" {
		r.Zones, r.AvoidZones = []string{zone}, nil
	}
	return r
}

// Machine is one machine of a Workspace, at any stage.
type Machine struct {
	// Name and UID of the machine's object.
	Name string
	UID  types.UID
	// Attempt is the number of the attempt that requested the machine; 0 if unknown.
	Attempt int32
	// Ordinal among the machines of its Workspace, from 0; -1 if unknown.
	Ordinal int
	// InstanceType, Zone and CapacityType as bought; Zone is empty until the machine is launched.
	InstanceType string
	Zone         string
	CapacityType v1beta1.CapacityType
	// NodeClass of its purchase.
	NodeClass v1beta1.NodeClassReference
	// Launched, Registered and Initialized are the stages, in order. Words has the provisioner's conditions for them.
	Launched    bool
	Registered  bool
	Initialized bool
	Words       Words
	// Reason and Message of the next stage, in the provisioner's own words.
	Reason  string
	Message string
	// Dedicated: the machine has the taint of its owner.
	Dedicated bool
	// Replacement reports whether the provisioner created the machine on its own in place of a lost one, without a
	// request.
	Replacement bool
	// Retired reports whether a retired back end manages the machine. Such a back end creates no more machines.
	Retired bool
	// Deleting reports that the machine has been terminating since DeletingSince.
	Deleting      bool
	DeletingSince time.Time
	// CreatedAt is the time of its request.
	CreatedAt time.Time
	// ProviderID is empty until the machine is launched, and NodeName until it is registered.
	ProviderID string
	NodeName   string
	// NodeReady is the node's Ready condition, and NodeSince the time of its last change (zero without a node). GPUs
	// is the number of allocatable GPUs.
	NodeReady bool
	NodeSince time.Time
	GPUs      int
	// HourlyPrice is the price on the machine's object, in USD; negative if unknown.
	HourlyPrice float64
	// Fault is the reported fault of the machine as a whole, and GPUFault of single GPUs. Shortage describes the GPUs
	// that the node cannot allocate; empty if it can allocate all, or if another program manages the node.
	Fault, GPUFault nodehealth.Fault
	Shortage        string
	// Withheld explains why the machine stays despite a fault; empty if there is no such fault, or if the machine is
	// replaced. Spared is the shortage of a machine that stays because no pod needs the missing GPUs; empty otherwise.
	Withheld, Spared string
}

// MachineNames returns the names of machines in the order of the machines.
func MachineNames(machines []Machine) []string {
	var names []string
	for i := range machines {
		names = append(names, machines[i].Name)
	}
	return names
}

// Words are the provisioner's conditions of a machine.
type Words struct {
	Launched, Registered, Initialized refusal.Condition
}

// Label is a label of nodes with its value.
type Label struct{ Key, Value string }

// SpotLabels returns the labels that mark spot nodes: on managed node groups of EKS, AKS and GKE, and on Karpenter's
// nodes.
func SpotLabels() []Label {
	return []Label{
		{"eks.amazonaws.com/capacityType", "SPOT"},
		{"kubernetes.azure.com/scalesetpriority", "spot"},
		{"cloud.google.com/gke-spot", "true"},
		{"karpenter.sh/capacity-type", "spot"},
	}
}

// MachineCost is the cost of one machine, with its owner, from its request until its deletion.
type MachineCost struct {
	Owner   Owner
	Machine string
	// UID of the machine's object, because several back ends may report the same machine; empty before the object
	// exists.
	UID types.UID
	// InstanceType of the machine, and its price per hour in USD; negative if unknown.
	InstanceType string
	HourlyPrice  float64
	// Launched reports whether the cloud charges for the machine, and Leaving whether it is being deleted.
	Launched bool
	Leaving  bool
	// LaunchedAt is the time of its launch, and CapacityType is how it is paid for; zero and empty if unknown.
	LaunchedAt   time.Time
	CapacityType v1beta1.CapacityType
}

// Created is a requested machine. It has no UID before its object exists.
type Created struct {
	Name string
	UID  types.UID
	// LostAt is when the machine was lost, if its attempt keeps the others; zero otherwise. The successor has the same
	// name.
	LostAt time.Time
}

// Replacing is how a back end replaces one machine of an attempt while the others stay.
type Replacing int

const (
	// ReplacesNone means that the machines of an attempt are only released together.
	ReplacesNone Replacing = iota
	// ReplacesAtOnce means that the provisioner buys another machine as soon as one is gone. It cannot wait.
	ReplacesAtOnce
	// ReplacesLater means that the provisioner buys another machine only at the controller's request.
	ReplacesLater
	// ReplacesPod means that the pod of a machine requests another machine once it has been deleted and created again.
	ReplacesPod
)

// Outcome is the effect of a request.
type Outcome struct {
	// Created are the requested machines, and Released the names of the released machines.
	Created  []Created
	Released []string
}

// NotInstalledError means that nothing can be bought in this cluster. It has the reason and the remedy.
type NotInstalledError struct{ Why, Fix string }

// Error names the missing part and the remedy.
func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("cannot buy machines: %s: %s", e.Why, e.Fix)
}

// TakenError means that an object with another owner has the name of a machine or of its pool.
type TakenError struct{ Kind, Name string }

// Error names the object and the remedy.
func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %q exists and has another owner; delete it, or create the Workspace under another name", e.Kind, e.Name)
}

// Absent is the back end of a cluster without a provisioner. It has no machines and buys none, and returns the reason.
type Absent struct{ Why, Fix string }

// Kind returns a general word for machines.
func (Absent) Kind(Owner) string { return "machine" }

// Observe returns nothing.
func (Absent) Observe(context.Context, Owner, []Created, string) ([]Machine, error) { return nil, nil }

// Held returns nothing.
func (Absent) Held(context.Context, Owner, []Created) ([]Machine, error) { return nil, nil }

// Names returns a *NotInstalledError.
func (a Absent) Names(Owner, int32, int) ([]string, error) {
	return nil, &NotInstalledError{Why: a.Why, Fix: a.Fix}
}

// Events returns nothing.
func (Absent) Events(context.Context, []types.UID) ([]refusal.Event, error) { return nil, nil }

// Class returns nothing.
func (Absent) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return refusal.ClassNotSeen, "", nil
}

// MachineCosts returns nothing.
func (Absent) MachineCosts(context.Context) ([]MachineCost, error) { return nil, nil }

// LiveMachineCosts returns nothing.
func (Absent) LiveMachineCosts(context.Context) ([]MachineCost, error) { return nil, nil }

// Ensure returns a *NotInstalledError.
func (a Absent) Ensure(context.Context, Request) (Outcome, error) {
	return Outcome{}, &NotInstalledError{Why: a.Why, Fix: a.Fix}
}

// PinPods leaves pods as they are.
func (Absent) PinPods(Request, *corev1.PodTemplateSpec) error { return nil }

// Release returns no machine.
func (Absent) Release(context.Context, Owner) ([]string, error) { return nil, nil }

// Owners returns no owners.
func (Absent) Owners(context.Context, string, string) ([]Owner, error) { return nil, nil }
