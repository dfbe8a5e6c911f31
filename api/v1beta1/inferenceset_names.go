// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// InferenceSetKind is the kind of an InferenceSet.
const InferenceSetKind = "InferenceSet"

// InferenceSetFinalizer keeps an InferenceSet until its Workspaces are gone. The name is KAITO's.
const InferenceSetFinalizer = "inferenceset.finalizer.kaito.sh"

// AnnotationTemplateMetadata is on a Workspace of an InferenceSet: a hash of the labels and annotations that the
// set gave it.
const AnnotationTemplateMetadata = "modelberth.dev/template-metadata"

// AnnotationZoneSpread is on a Workspace whose zones its InferenceSet chose (spec.zoneSpread): the zones that the set chose
// one after the other, separated by commas.
const AnnotationZoneSpread = "modelberth.dev/zone-spread"

// LabelTemplateHash is on the Workspaces of an InferenceSet with a rollback policy: the hash of their template.
const LabelTemplateHash = "modelberth.dev/template-hash"

// Suffixes of the objects for gateways. The names are KAITO's.
const (
	// SuffixInferencePool follows the set's name in the name of its InferencePool.
	SuffixInferencePool = "-inferencepool"
	// SuffixInferencePoolPicker follows the set's name in the name of the Service of its endpoint picker.
	SuffixInferencePoolPicker = SuffixInferencePool + "-epp"
)

// Condition types of an InferenceSet, beside Ready and Stalled.
const (
	// ConditionInferenceSetReady is KAITO's: it has the status of Ready.
	ConditionInferenceSetReady = "InferenceSetReady"
	// ConditionAvailable reports whether a replica answers.
	ConditionAvailable = "Available"
	// ConditionScalingLimited reports whether the set creates fewer replicas than the spec names.
	ConditionScalingLimited = "ScalingLimited"
	// ConditionZoneSpread reports how the replicas spread over zones. It is absent without spec.zoneSpread.
	ConditionZoneSpread = "ZoneSpread"
	// ConditionAutoUpgrade reports the effect of spec.autoUpgrade. It is absent if upgrades are not enabled.
	ConditionAutoUpgrade = "AutoUpgrade"
	// ConditionAutoscaling reports how autoscaling sets spec.replicas. It is absent without an autoscaling policy.
	ConditionAutoscaling = "Autoscaling"
	// ConditionInferenceSetDeleting is KAITO's: it reports the deletion of the set.
	ConditionInferenceSetDeleting = "InferenceSetDeleting"
)

// Reasons of an InferenceSet's conditions. InferenceSetReady has KAITO's.
const (
	ReasonInferenceSetReady    = "inferencesetReady"
	ReasonInferenceSetNotReady = "inferencesetNotReady"
	ReasonInferenceSetDeleted  = "inferencesetDeleted"

	// ReasonReplicasReady: as many replicas answer as the spec names, all with the current template.
	ReasonReplicasReady = "ReplicasReady"
	// ReasonReplicasNotReady: some replicas do not answer yet.
	ReasonReplicasNotReady = "ReplicasNotReady"
	// ReasonReplicaBlocked: a replica waits for a person.
	ReasonReplicaBlocked = "ReplicaBlocked"
	// ReasonReplicaRefused: the API server rejects a Workspace made from the template.
	ReasonReplicaRefused = "ReplicaRefused"
	// ReasonReplicaAvailable: at least one replica answers.
	ReasonReplicaAvailable = "ReplicaAvailable"
	// ReasonNoReplicaAvailable: no replica answers.
	ReasonNoReplicaAvailable = "NoReplicaAvailable"
	// ReasonScaledToZero: the spec names no replicas.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonScalingDown: the set has more replicas than the spec names.
	ReasonScalingDown = "ScalingDown"
	// ReasonRollingOut: replicas with a former template are being replaced.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutStopped: a replica with the current template does not become ready, and the replicas that the
	// rollout did not reach keep the previous template.
	ReasonRolloutStopped = "RolloutStopped"
	// ReasonRolledBack: the template in spec failed, and the replicas return, or have returned, to the previous
	// template.
	ReasonRolledBack = "RolledBack"
	// ReasonWithinLimits: no limit keeps the set from creating replicas.
	ReasonWithinLimits = "WithinLimits"
	// ReasonNodeCountLimit: spec.nodeCountLimit keeps the set from creating a replica.
	ReasonNodeCountLimit = "NodeCountLimit"
	// ReasonZonesEven: the numbers of replicas in two zones differ by at most maxSkew.
	ReasonZonesEven = "ZonesEven"
	// ReasonZonesUneven: they differ by more.
	ReasonZonesUneven = "ZonesUneven"
	// ReasonZoneRefused: a zone has no machine for a replica.
	ReasonZoneRefused = "ZoneRefused"

	// ReasonFollowsDemand: the controller sets spec.replicas by demand.
	ReasonFollowsDemand = "FollowsDemand"
	// ReasonAtZero: autoscaling keeps no replica until a request arrives.
	ReasonAtZero = "AtZero"
	// ReasonAtMaximum and ReasonAtPriceCap: a bound of the policy is below the demand.
	ReasonAtMaximum  = "AtMaximum"
	ReasonAtPriceCap = "AtPriceCap"
	// ReasonSignalsMissing: the load of a replica is unknown, so none is deleted.
	ReasonSignalsMissing = "SignalsMissing"
	// ReasonAnotherAutoscaler: a HorizontalPodAutoscaler or a ScaledObject of KEDA targets the set, and its policy has no
	// effect.
	ReasonAnotherAutoscaler = "AnotherAutoscaler"
	// ReasonScaleRefused: the API server refuses to change spec.replicas.
	ReasonScaleRefused = "ScaleRefused"
	// ReasonPolicyInvalid: the policy cannot be read.
	ReasonPolicyInvalid = "PolicyInvalid"

	// ReasonGatewayRefused is of an event: a gateway does not use the set's route or pool.
	ReasonGatewayRefused = "GatewayRefused"
	// ReasonGatewayObjectsFailed is of an event: an object for the gateway cannot be written.
	ReasonGatewayObjectsFailed = "GatewayObjectsFailed"
)
