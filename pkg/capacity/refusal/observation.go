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

// Provider is who answers requests for machines, as far as its words and habits are known.
type Provider string

// The providers. UnknownProvider is anybody else, judged by age and disappearance alone.
const (
	UnknownProvider Provider = ""
	KarpenterAzure  Provider = "karpenter-azure"
	KarpenterAWS    Provider = "karpenter-aws"
	GPUProvisioner  Provider = "gpu-provisioner"
	// ClusterAutoscaler brings nodes for pods that wait. A claim is such a pod.
	ClusterAutoscaler Provider = "cluster-autoscaler"
)

// ProviderOf returns the provider that acts on claims with a node class of this group and kind.
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

// givesUp says whether a provider deletes by itself what asks for a machine, as Karpenter does.
func (p Provider) givesUp() bool { return p != GPUProvisioner && p != ClusterAutoscaler }

// Status of a condition.
type Status string

// The statuses; a condition that is not there is unknown.
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
	// Since is when the status changed; it does not move when only the reason changes.
	Since time.Time
}

// Note is a reason of the Launched condition as it was once seen. Karpenter overwrites a reason
// with the next try's and deletes claims that it gives up: who does not write it down loses it.
type Note struct {
	Reason  string
	Message string
	At      time.Time
}

// Event is one event about a claim.
type Event struct {
	// UID of the claim; events about others of the same name are passed over.
	UID     types.UID
	Reason  string
	Message string
	// At is when it was last seen.
	At time.Time
}

// ClassState is what the node class of a claim says about itself.
type ClassState string

// The states. A class that nobody looked at rules out nothing.
const (
	ClassNotSeen  ClassState = ""
	ClassReady    ClassState = "Ready"
	ClassNotReady ClassState = "NotReady"
	ClassMissing  ClassState = "Missing"
)

// Observation is everything that was seen of one claim.
type Observation struct {
	Provider Provider
	Offering Offering
	// UID of the claim.
	UID types.UID
	// CreatedAt is the claim's own creation time.
	CreatedAt time.Time
	// GoneAt is the claim's deletion time, or when it was found missing; zero while it stands. A claim
	// that we deleted ourselves is not to be asked about.
	GoneAt time.Time
	// Launched, Registered and Initialized are the claim's conditions as last seen.
	Launched    Condition
	Registered  Condition
	Initialized Condition
	// ProviderID and NodeName are set once there is a machine, and once it is a node. They count even
	// where a condition lags behind.
	ProviderID string
	NodeName   string
	// GPUs that the node can allocate, and GPUsWanted.
	GPUs, GPUsWanted int
	// WasUsable says that the machine once was all that was asked for. From then on it can only be
	// lost: GPUs that go away later are no failure to start.
	WasUsable bool
	// Noted are reasons of the Launched condition that were seen earlier.
	Noted []Note
	// Events about the claim.
	Events []Event
	// Class is the state of the node class, and ClassMessage its own words.
	Class        ClassState
	ClassMessage string
}

// Deadlines are how long each stage may take. A deadline of zero never passes.
type Deadlines struct {
	// Launched is for gpu-provisioner, which itself never gives up, and for a NodePool without a claim, which
	// nobody times out; counted from creation.
	Launched time.Duration
	// Registered is counted from creation.
	Registered time.Duration
	// Initialized is counted from registration. Karpenter itself never gives up here.
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

// age is the claim's age when it went; a clock that runs behind makes nobody younger than nothing.
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

// earlier returns the earlier of two moments, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// signal is something that was said about a claim.
type signal struct {
	reason  string
	message string
	at      time.Time
	isEvent bool
}

// Reasons why a NodePool has no claim for a machine that is asked for, where a claim would have a condition.
const (
	// ReasonNoNodeClaim: Karpenter has made none, and nobody knows why.
	ReasonNoNodeClaim = "NoNodeClaim"
	// ReasonNodePoolNotReady: it makes none of a pool like this.
	ReasonNodePoolNotReady = "NodePoolNotReady"
	// ReasonNoInstanceTypes and ReasonFailedScheduling are those of Karpenter's events about such a pool, and about
	// a pod for which it is to make a machine.
	ReasonNoInstanceTypes  = "NoCompatibleInstanceTypes"
	ReasonFailedScheduling = "FailedScheduling"
)

// hasNoClaim says that a reason tells why there is nothing yet that Karpenter would time out.
func hasNoClaim(reason string) bool {
	return slices.Contains([]string{ReasonNoNodeClaim, ReasonNodePoolNotReady, ReasonNoInstanceTypes, ReasonFailedScheduling}, reason)
}

// IsNeutral says that a reason of the Launched condition blames nobody.
func IsNeutral(reason string) bool {
	return reason == "" || reason == "AwaitingReconciliation" || reason == ReasonNoNodeClaim || isRetraction(reason)
}

// isRetraction says that a reason takes back what was said before: cluster autoscaler had nothing to ask for
// then, and has asked since.
func isRetraction(reason string) bool { return reason == v1beta1.ReasonTriggeredScaleUp }

// launchSignals returns what was said about the launch, newest first. A condition's time does not
// move with its reason, so the current reason is newer than any that was noted, and what an event
// says at an equal time goes before a condition: a claim with such an event is about to go.
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
