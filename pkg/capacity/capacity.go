// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity holds the words in which the controller asks for machines and hears about them:
// what to get, what there is, and the typed errors of the back ends below it.
//
// It decides nothing. It must not know models, plans' physics or any provisioner's objects.
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

// Owner is the Workspace that machines belong to. The UID is what counts: a Workspace that was
// deleted and made again is another owner.
type Owner struct {
	Namespace string
	Name      string
	UID       types.UID
}

// Distinct are owners with a UID, each once, by UID.
func Distinct(owners []Owner) []Owner {
	owners = slices.DeleteFunc(owners, func(owner Owner) bool { return owner.UID == "" })
	slices.SortFunc(owners, func(a, b Owner) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return slices.Compact(owners)
}

// Request asks for machines of one type.
type Request struct {
	Owner Owner
	// Attempt is part of the machines' names, so that a new attempt never meets the remains of an
	// old one. Counted from 1.
	Attempt int32
	// InstanceType and Count of the machines.
	InstanceType string
	Count        int
	// GPUResource and GPUs that each machine must show before it counts as initialised.
	GPUResource string
	GPUs        int
	// DiskGiB of ephemeral storage that each machine must have.
	DiskGiB int
	// CapacityType to buy; Zones it may come from (empty means any).
	CapacityType v1beta1.CapacityType
	Zones        []string
	// AvoidZones are those where it was refused lately; empty means none.
	AvoidZones []string
	// OneZone says that the machines must be near each other: the zone of the first one that is launched is
	// that of all, and the others are not asked for before.
	OneZone bool
	// NodeClass to buy with; nil means the installation's.
	NodeClass *v1beta1.NodeClassReference
	// HourlyPrice of one machine in USD, which the machine carries; negative where it is not known.
	HourlyPrice float64
	// Labels that the nodes carry beside the owner's.
	Labels map[string]string
	// Dedicated says that the machines have the taint of their owner, which its pods tolerate and no others.
	Dedicated bool
	// Existed are the names of machines of this attempt that were there once: they are not asked for
	// again.
	Existed []string
	// Replaced are the UIDs of machines of this attempt that are lost: they are let go, and others asked for by their names.
	Replaced []types.UID
	// Keep are the names of machines of another attempt, which serve and are held beside those asked for.
	Keep []string
	// MakePods makes the Workspace's pods, for the machines of this request. Back ends whose machines come for waiting
	// pods call it; others do not.
	MakePods func(ctx context.Context) error
	// Confirm is asked once before anything is created or let go, neither of which happens if it returns
	// an error; nil confirms.
	Confirm func(ctx context.Context) error
}

// In is the request with the zone decided: whatever it allowed and avoided before.
func (r Request) In(zone string) Request {
	if zone != "" {
		r.Zones, r.AvoidZones = []string{zone}, nil
	}
	return r
}

// Machine is one machine that is held for a Workspace, on whatever stage.
type Machine struct {
	// Name of the object that stands for the machine, and its UID.
	Name string
	UID  types.UID
	// Attempt that it was asked for in; 0 where it cannot be told.
	Attempt int32
	// Ordinal among the machines of its Workspace, from 0; -1 where it cannot be told.
	Ordinal int
	// InstanceType, Zone and CapacityType as bought; Zone is empty until the machine is launched.
	InstanceType string
	Zone         string
	CapacityType v1beta1.CapacityType
	// NodeClass that it is bought with.
	NodeClass v1beta1.NodeClassReference
	// Launched, Registered and Initialized are the stages, in order, and Words what the provisioner
	// says about each of them.
	Launched    bool
	Registered  bool
	Initialized bool
	Words       Words
	// Reason and Message of the first stage that is not reached, in the provisioner's own words.
	Reason  string
	Message string
	// Dedicated says that it has the taint of its owner.
	Dedicated bool
	// Replacement says that the provisioner made it by itself in place of one that went: it is none of those
	// that were asked for.
	Replacement bool
	// Former says that a back end looks after it that gets no more machines: another one is set.
	Former bool
	// Deleting says that the machine is on its way out, since DeletingSince.
	Deleting      bool
	DeletingSince time.Time
	// CreatedAt is when it was asked for.
	CreatedAt time.Time
	// ProviderID is empty until the machine is launched, NodeName until it is registered.
	ProviderID string
	NodeName   string
	// NodeReady is the node's own word, NodeSince when it last changed (zero where there is no node),
	// GPUs what it can allocate.
	NodeReady bool
	NodeSince time.Time
	GPUs      int
	// HourlyPrice that it carries, in USD; negative where none is known.
	HourlyPrice float64
	// Trouble that the node reports of the machine.
	Trouble nodehealth.Trouble
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

// SpotLabels are how nodes say that they are spot: those of managed node groups of EKS, AKS and GKE, and those
// that Karpenter made.
func SpotLabels() []Label {
	return []Label{
		{"eks.amazonaws.com/capacityType", "SPOT"},
		{"kubernetes.azure.com/scalesetpriority", "spot"},
		{"cloud.google.com/gke-spot", "true"},
		{"karpenter.sh/capacity-type", "spot"},
	}
}

// Bill is what one machine costs for whom, from when it is asked for until it is gone.
type Bill struct {
	Owner   Owner
	Machine string
	// UID of the object that stands for the machine, by which several back ends may see it; empty where there is none
	// yet.
	UID types.UID
	// InstanceType that is paid for, and its price per hour in USD; negative where it is not known.
	InstanceType string
	HourlyPrice  float64
	// Launched says that the cloud has begun to charge for it, Leaving that it is on its way out.
	Launched bool
	Leaving  bool
	// LaunchedAt is when it was launched, and CapacityType how it is paid for; zero and empty if that is unknown.
	LaunchedAt   time.Time
	CapacityType v1beta1.CapacityType
}

// Created is a machine that was asked for. It has no UID while nobody has made the object that stands for it.
type Created struct {
	Name string
	UID  types.UID
	// LostAt is when a machine was lost whose attempt keeps the others: the next one has its name. Zero for all others.
	LostAt time.Time
}

// Replacing is how a back end replaces one machine of an attempt while the others go on.
type Replacing int

const (
	// ReplacesNone says that the machines of an attempt go together.
	ReplacesNone Replacing = iota
	// ReplacesAtOnce says that the provisioner buys another machine as soon as one is gone, and cannot wait.
	ReplacesAtOnce
	// ReplacesLater says that another machine is bought only once the controller asks for it.
	ReplacesLater
	// ReplacesPod says that the pod of a machine asks for another one, once it is deleted and made again.
	ReplacesPod
)

// Outcome is what a back end did about a request.
type Outcome struct {
	// Created are the machines that were asked for, Released the names of those that were let go.
	Created  []Created
	Released []string
}

// NotInstalledError says why nothing can be bought in this cluster, and the way out.
type NotInstalledError struct{ Why, Fix string }

// Error names what is missing and the way out.
func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("cannot buy machines: %s: %s", e.Why, e.Fix)
}

// TakenError says that the name of a machine, or of what makes machines, is taken by an object of somebody
// else.
type TakenError struct{ Kind, Name string }

// Error names the object and the way out.
func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %q exists and has another owner; delete or rename it", e.Kind, e.Name)
}

// Absent is the back end of a cluster without a provisioner: it holds nothing and gets nothing, and says why.
type Absent struct{ Why, Fix string }

// Kind returns a word for what is never there.
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

// Bills returns nothing.
func (Absent) Bills(context.Context) ([]Bill, error) { return nil, nil }

// LiveBills returns nothing.
func (Absent) LiveBills(context.Context) ([]Bill, error) { return nil, nil }

// Ensure returns a *NotInstalledError.
func (a Absent) Ensure(context.Context, Request) (Outcome, error) {
	return Outcome{}, &NotInstalledError{Why: a.Why, Fix: a.Fix}
}

// Aim leaves pods as they are.
func (Absent) Aim(Request, *corev1.PodTemplateSpec) error { return nil }

// Release returns that nothing is left.
func (Absent) Release(context.Context, Owner) ([]string, error) { return nil, nil }

// Owners returns nobody.
func (Absent) Owners(context.Context, string, string) ([]Owner, error) { return nil, nil }
