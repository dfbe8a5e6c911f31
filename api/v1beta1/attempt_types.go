// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReasonReleased ends an attempt whose machines the controller released. No condition has it. All other attempts end with
// the reason of a refusal.
const ReasonReleased = "Released"

// Attempt is one attempt to acquire machines.
type Attempt struct {
	// number of the attempt, counted from 1.
	Number int32 `json:"number"`
	// instanceType is the requested machine type.
	InstanceType string `json:"instanceType"`
	// nodeClaims are the requested NodeClaims, named before they are created. An attempt that has ended lists the
	// first 64.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	NodeClaims []string `json:"nodeClaims,omitempty"`
	// zone is the requested zone; empty means any.
	// +optional
	Zone string `json:"zone,omitempty"`
	// capacityType is the requested capacity type.
	// +optional
	CapacityType CapacityType `json:"capacityType,omitempty"`
	// nodeClassName names the NodeClass of the request; empty means the installation's.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeClassName string `json:"nodeClassName,omitempty"`
	// retry is the value of the annotation modelberth.dev/retry-capacity when the attempt began, shortened.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Retry string `json:"retry,omitempty"`
	// startTime of the attempt.
	StartTime metav1.Time `json:"startTime"`
	// revision names the ControllerRevision with the plan of the request.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// generation of the Workspace when the attempt ended.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// claims have the recorded state of created machines.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Claims []AttemptClaim `json:"claims,omitempty"`
	// faults are the faults of nodes for which the machines of this attempt are replaced, oldest first. All attempts
	// together allow two in 24 hours.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Faults []AttemptFault `json:"faults,omitempty"`
	// readyTime is when all machines were usable; unset if they never were.
	// +optional
	ReadyTime *metav1.Time `json:"readyTime,omitempty"`
	// failingTime is when the pods on the machines began to fail permanently; unset while they do not fail.
	// +optional
	FailingTime *metav1.Time `json:"failingTime,omitempty"`
	// answeredTime is when a pod was first seen ready on the machines; unset if none ever was.
	// +optional
	AnsweredTime *metav1.Time `json:"answeredTime,omitempty"`
	// idleTime is when usable machines began to wait for their first ready pod; unset while weights are being fetched,
	// and once a pod has been ready. An edit sets it to the time of the edit.
	// +optional
	IdleTime *metav1.Time `json:"idleTime,omitempty"`
	// endTime is when the machines were refused, lost or released; unset while the attempt continues or
	// its machines are held.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// reason for the end of the attempt; empty while it is open.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`
	// message about the end of the attempt; for a refusal, in the cloud's own words if it gave any.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// fix is the remedy for users.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Fix string `json:"fix,omitempty"`
	// scope is the set of offers that the refusal excludes, as breadth/name/zone/capacityType, with the name of the
	// NodeClass at the end if it concerns only that class.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Scope string `json:"scope,omitempty"`
	// cooldown is how long the scope is excluded after a first refusal; it grows with every further refusal.
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// guessed is true if the request itself may be the cause. Other Workspaces of the namespace then avoid the
	// offer only after a second Workspace got the same refusal, and Workspaces of other namespaces never do.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
	// mendedBy names the object whose state shows the repair: nodeClass.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	MendedBy string `json:"mendedBy,omitempty"`
	// nodeClass is the state of the NodeClass at the end of the attempt: Missing, NotReady or Ready; empty if unknown.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NodeClass string `json:"nodeClass,omitempty"`
}

// AttemptClaim is the recorded state of one machine of an attempt, for the time after it has vanished.
type AttemptClaim struct {
	// name of the NodeClaim.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the NodeClaim; empty from the loss of a machine until its replacement has been requested.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// creationTime of the NodeClaim.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// stage of the machine: Launched or Registered; empty before. A replacement that was requested after the readyTime
	// of the attempt becomes Usable once it has had all its GPUs.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Stage string `json:"stage,omitempty"`
	// heard has the latest messages about the launch of the machine, newest last.
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Heard []AttemptWords `json:"heard,omitempty"`
	// gpusMissingSince is when the node began to lack allocatable GPUs that the plan needs, although it has them; absent
	// while it lacks none.
	// +optional
	GPUsMissingSince *metav1.Time `json:"gpusMissingSince,omitempty"`
	// gpusSparedSince is when GPUs of the node became unallocatable while the remaining ones were still enough for the plan;
	// absent if there are no such GPUs.
	// +optional
	GPUsSparedSince *metav1.Time `json:"gpusSparedSince,omitempty"`
	// lost is the previous machine of this name, which was lost or refused; another machine replaces it.
	// +optional
	Lost *LostClaim `json:"lost,omitempty"`
}

// AttemptFault is a fault of a node for which its machine is replaced.
type AttemptFault struct {
	// uid of the NodeClaim.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// node is the name of the node.
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// time from which the fault counts.
	Time metav1.Time `json:"time"`
	// message of the fault.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
	// healthySince is when the node began to report no fault; absent while it reports one. After seven minutes, the fault is
	// gone.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`
	// replacedTime is when another machine was launched for the fault, or the machine itself was given up; absent before. A
	// fault that is gone before that no longer counts.
	// +optional
	ReplacedTime *metav1.Time `json:"replacedTime,omitempty"`
}

// LostClaim is a lost or refused machine of an attempt that keeps its other machines.
type LostClaim struct {
	// uid of the NodeClaim.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// creationTime is the time of the request; absent if unknown.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// time when the machine was found lost or refused.
	Time metav1.Time `json:"time"`
	// reason of the loss: one of the values of an attempt's reason.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// message about the loss; for a refusal, in the cloud's own words if it gave any.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// scope is the set of offers that the refusal excludes, in the form of the attempt's scope.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Scope string `json:"scope,omitempty"`
	// cooldown is how long the scope is excluded after a first refusal.
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// guessed is true if the cause is a guess.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
}

// AttemptWords is a message about a machine that has not launched.
type AttemptWords struct {
	// reason of the condition.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// message of the condition.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// time when it was seen.
	Time metav1.Time `json:"time"`
}
