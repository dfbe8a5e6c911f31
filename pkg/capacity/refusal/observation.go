// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Provider is a provisioner of machines with known messages and behavior.
type Provider string

// The providers. UnknownProvider is any other: its claims are judged by age and disappearance alone.
const (
	UnknownProvider Provider = ""
	KarpenterAzure  Provider = "karpenter-azure"
	KarpenterAWS    Provider = "karpenter-aws"
	GPUProvisioner  Provider = "gpu-provisioner"
	// ClusterAutoscaler adds nodes for pending pods. Such a pod stands for a claim.
	ClusterAutoscaler Provider = "cluster-autoscaler"
)

// ProviderOf returns the provider for claims with a node class of that group and kind.
func ProviderOf(group, kind string) Provider {
	switch group + "/" + kind {
	case "karpenter.azure.com/AKSNodeClass":
		return KarpenterAzure
	case "karpenter.k8s.aws/EC2NodeClass", "eks.amazonaws.com/NodeClass": // the latter in EKS Auto Mode
		return KarpenterAWS
	case "kaito.sh/KaitoNodeClass":
		return GPUProvisioner
	}
	return UnknownProvider
}

// givesUp reports whether a provider deletes requests for machines on its own, as Karpenter does.
func (p Provider) givesUp() bool { return p != GPUProvisioner && p != ClusterAutoscaler }

// Status is the status of a condition.
type Status string

// The statuses; a missing condition is unknown.
const (
	StatusUnknown Status = "Unknown"
	StatusTrue    Status = "True"
	StatusFalse   Status = "False"
)

// Condition is one condition of a claim.
type Condition struct {
	Status  Status
	Reason  string
	Message string
	// Since is when the status changed. It stays the same if only the reason changes.
	Since time.Time
}

// Note is an earlier reason of the Launched condition. Karpenter overwrites a reason at the next try and deletes
// claims after a failure, so it has to be recorded.
type Note struct {
	Reason  string
	Message string
	At      time.Time
}

// Event is one event about a claim.
type Event struct {
	// UID of the claim. Events about other claims of the same name are ignored.
	UID     types.UID
	Reason  string
	Message string
	// At is when the event last occurred.
	At time.Time
}

// ClassState is the state of a claim's node class.
type ClassState string

// The states. An unseen class rules out nothing.
const (
	ClassNotSeen  ClassState = ""
	ClassReady    ClassState = "Ready"
	ClassNotReady ClassState = "NotReady"
	ClassMissing  ClassState = "Missing"
)

// Observation has all observed facts about one claim.
type Observation struct {
	Provider Provider
	Offering Offering
	// UID of the claim.
	UID types.UID
	// CreatedAt is the claim's own creation time.
	CreatedAt time.Time
	// GoneAt is the claim's deletion time, or when it was found missing; zero while it exists. Claims that we
	// deleted ourselves are not observed.
	GoneAt time.Time
	// Launched, Registered and Initialized are the claim's conditions as last seen.
	Launched    Condition
	Registered  Condition
	Initialized Condition
	// ProviderID is set once there is a machine, and NodeName once it is a node. They count even if a condition lags
	// behind.
	ProviderID string
	NodeName   string
	// GPUs is the number of allocatable GPUs of the node, and GPUsWanted the requested number.
	GPUs, GPUsWanted int
	// WasUsable is set if the machine was completely usable once. From then on it can only be lost: GPUs that disappear
	// later are not a failed start.
	WasUsable bool
	// Noted are earlier reasons of the Launched condition.
	Noted []Note
	// Events about the claim.
	Events []Event
	// Class is the state of the node class, and ClassMessage the message of its condition.
	Class        ClassState
	ClassMessage string
}

// Deadlines are how long each stage may take. A deadline of zero never passes.
type Deadlines struct {
	// Launched counts from creation. It is for gpu-provisioner, because it retries forever, and for a NodePool without
	// a claim, because Karpenter has no timeout there.
	Launched time.Duration
	// Registered counts from creation.
	Registered time.Duration
	// Initialized counts from registration. Karpenter itself never gives up here.
	Initialized time.Duration
}

func (o Observation) isLaunched() bool {
	return o.Launched.Status == StatusTrue || o.ProviderID != "" || o.isRegistered()
}

func (o Observation) isRegistered() bool {
	return o.Registered.Status == StatusTrue || o.NodeName != "" || o.Initialized.Status == StatusTrue || o.WasUsable
}

func (o Observation) isUsable() bool {
	return o.WasUsable || o.Initialized.Status == StatusTrue && o.GPUs >= o.GPUsWanted
}

func (o Observation) isSpot() bool { return o.Offering.CapacityType == v1beta1.CapacitySpot }

// ageAtEnd returns the claim's age when it vanished. It is never negative, even if a clock is behind.
func (o Observation) ageAtEnd() time.Duration {
	return max(o.GoneAt.Sub(o.CreatedAt), 0)
}

// after returns a moment after a start; no delay means never.
func after(start time.Time, delay time.Duration) time.Time {
	if delay <= 0 {
		return time.Time{}
	}
	return start.Add(delay)
}

// earlier returns the earlier of two times; zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// signal is one message about a claim.
type signal struct {
	reason  string
	message string
	at      time.Time
	isEvent bool
}

// Reasons why a NodePool has no claim for a requested machine. They take the place of the reason in a claim's
// condition.
const (
	// ReasonNoNodeClaim: Karpenter has created no claim, for an unknown reason.
	ReasonNoNodeClaim = "NoNodeClaim"
	// ReasonNodePoolNotReady: Karpenter creates no claims from a pool that is not ready.
	ReasonNodePoolNotReady = "NodePoolNotReady"
	// ReasonNoInstanceTypes and ReasonFailedScheduling are the reasons of Karpenter's events about such a pool, and
	// about a pod that needs its machine.
	ReasonNoInstanceTypes  = "NoCompatibleInstanceTypes"
	ReasonFailedScheduling = "FailedScheduling"
)

// hasNoClaim reports whether a reason explains the absence of a claim. Karpenter has no timeout in that case.
func hasNoClaim(reason string) bool {
	return slices.Contains([]string{ReasonNoNodeClaim, ReasonNodePoolNotReady, ReasonNoInstanceTypes, ReasonFailedScheduling}, reason)
}

// IsNeutral reports whether a reason of the Launched condition indicates no failure.
func IsNeutral(reason string) bool {
	return reason == "" || reason == "AwaitingReconciliation" || reason == ReasonNoNodeClaim || isRetraction(reason)
}

// isRetraction reports whether a reason withdraws earlier messages: cluster autoscaler had no node group to scale up,
// but has now triggered a scale-up.
func isRetraction(reason string) bool { return reason == v1beta1.ReasonTriggeredScaleUp }

// launchSignals returns the messages about the launch, newest first. A condition's time does not change with its
// reason, so the current reason is newer than all recorded ones. At the same time, an event comes before a condition,
// because a claim with such an event is about to vanish.
func (o Observation) launchSignals() []signal {
	var said []signal
	newest := o.Launched.Since
	for _, note := range o.Noted {
		if !IsNeutral(note.Reason) && !isRetraction(o.Launched.Reason) {
			said = append(said, signal{reason: note.Reason, message: note.Message, at: note.At})
		}
		if note.At.After(newest) {
			newest = note.At
		}
	}
	if o.Launched.Status != StatusTrue && !IsNeutral(o.Launched.Reason) {
		said = append(said, signal{reason: o.Launched.Reason, message: o.Launched.Message, at: newest})
	}
	slices.Reverse(said)
	return sortedSignals(append(o.eventSignals(time.Time{}), said...))
}

// eventSignals returns the claim's own events from a moment on, newest first.
func (o Observation) eventSignals(from time.Time) []signal {
	var said []signal
	for _, event := range o.Events {
		if event.UID == o.UID && !event.At.Before(from) {
			said = append(said, signal{reason: event.Reason, message: event.Message, at: event.At, isEvent: true})
		}
	}
	slices.SortFunc(said, func(a, b signal) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.reason, b.reason), cmp.Compare(a.message, b.message))
	})
	return said
}

func sortedSignals(said []signal) []signal {
	slices.SortStableFunc(said, func(a, b signal) int { return b.at.Compare(a.at) })
	return said
}
