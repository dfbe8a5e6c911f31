// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Condition types of a Workspace. The first group is KAITO's; Planned, Ready and Stalled are ours.
const (
	// ConditionNodeClaimReady reports whether all requested machines have been launched, registered and
	// initialised. Absent if nothing is bought.
	ConditionNodeClaimReady = "NodeClaimReady"
	// ConditionNodesReady reports whether the nodes are Ready and advertise their GPUs.
	ConditionNodesReady = "NodesReady"
	// ConditionResourceReady summarises NodeClaimReady and NodesReady.
	ConditionResourceReady = "ResourceReady"
	// ConditionInferenceReady reports whether the inference server answers.
	ConditionInferenceReady = "InferenceReady"
	// ConditionModelMirrorReady reports whether the mirror of the model's weights is complete.
	ConditionModelMirrorReady = "ModelMirrorReady"
	// ConditionBenchmarkCompleted reports whether the benchmark after the start has a result.
	ConditionBenchmarkCompleted = "BenchmarkCompleted"
	// ConditionJobStarted reports whether the tuning job has started.
	ConditionJobStarted = "JobStarted"
	// ConditionWorkspaceSucceeded reports whether the Workspace serves its purpose.
	ConditionWorkspaceSucceeded = "WorkspaceSucceeded"
	// ConditionWorkspaceDeleting reports the deletion of the Workspace.
	ConditionWorkspaceDeleting = "WorkspaceDeleting"

	// ConditionPlanned reports whether there is a plan for the current spec.
	ConditionPlanned = "Planned"
	// ConditionReady reports whether the endpoint answers for the current spec.
	ConditionReady = "Ready"
	// ConditionStalled is True if nothing more will happen until the user acts.
	ConditionStalled = "Stalled"
)

// Reasons of Planned.
const (
	ReasonPlanAccepted         = "PlanAccepted"
	ReasonTuningNotAvailable   = "TuningNotAvailable"
	ReasonUnknownPreset        = "UnknownPreset"
	ReasonModelNotDescribed    = "ModelNotDescribed"
	ReasonWeightsNotVerified   = "WeightsNotVerified"
	ReasonUnknownInstanceType  = "UnknownInstanceType"
	ReasonInstanceTypeUnusable = "InstanceTypeUnusable"
	ReasonDoesNotFit           = "DoesNotFit"
	ReasonNoMachineAllowed     = "NoMachineAllowed"
	ReasonEngineUnknown        = "EngineUnknown"
	ReasonConfigNotFound       = "ConfigNotFound"
	ReasonConfigInvalid        = "ConfigInvalid"
	ReasonSecretNotFound       = "SecretNotFound"
	ReasonClaimNotFound        = "ClaimNotFound"
	ReasonSpecInvalid          = "SpecInvalid"
	ReasonNotSupported         = "NotSupported"
	// ReasonAPIPruned: the API server drops fields of Workspaces or InferenceSets.
	ReasonAPIPruned = "APIPruned"
	// ReasonServedByKAITO: KAITO's controller serves the Workspace, and Modelberth does not change it.
	ReasonServedByKAITO = "ServedByKAITO"
	// ReasonFrozen: the Workspace was taken over from KAITO's controller, and runs unchanged until its spec
	// changes.
	ReasonFrozen = "Frozen"
)

// Reasons of NodeClaimReady, NodesReady and ResourceReady.
const (
	ReasonNodeClaimsReady         = "NodeClaimsReady"
	ReasonNodeClaimNotReady       = "NodeClaimNotReady"
	ReasonNodesReady              = "NodesReady"
	ReasonNodeNotReady            = "NodeNotReady"
	ReasonNodePluginsNotReady     = "NodePluginsNotReady"
	ReasonFaultRepeats            = "FaultRepeats"
	ReasonResourceSuccess         = "workspaceResourceStatusSuccess"
	ReasonResourceNotReady        = "workspaceResourceStatusNotReady"
	ReasonProvisionerNotInstalled = "ProvisionerNotInstalled"
	ReasonSpendingCeiling         = "SpendingCeiling"
	ReasonSpendingCeilingInvalid  = "SpendingCeilingInvalid"
	ReasonMonthlyBudget           = "MonthlyBudget"
	ReasonMonthlyBudgetInvalid    = "MonthlyBudgetInvalid"
	ReasonMonthlyBudgetUnknown    = "MonthlyBudgetUnknown"
	// Rules of the namespace that would refuse the pods. Therefore no machine is bought.
	ReasonResourceQuotaExceeded = "ResourceQuotaExceeded"
	ReasonLimitRangeViolation   = "LimitRangeViolation"
	ReasonPodSecurityViolation  = "PodSecurityViolation"
	// A DaemonSet does not tolerate the taint of a new machine. Therefore none is bought.
	ReasonTaintNotTolerated = "TaintNotTolerated"
	// Cluster autoscaler's reactions to a waiting pod.
	ReasonTriggeredScaleUp  = "TriggeredScaleUp"
	ReasonNotTriggerScaleUp = "NotTriggerScaleUp"
)

// Reasons of NodeClaimReady and ResourceReady after a refusal, and of Stalled: why the machines of
// the latest attempt could not be acquired.
const (
	ReasonNoCapacity       = "NoCapacity"
	ReasonQuota            = "Quota"
	ReasonNotOffered       = "NotOffered"
	ReasonMisconfigured    = "Misconfigured"
	ReasonTimedOut         = "TimedOut"
	ReasonNeverRegistered  = "NeverRegistered"
	ReasonNeverInitialized = "NeverInitialized"
	ReasonLost             = "Lost"
	ReasonUnknown          = "Unknown"
	// ReasonCannotServe: the machines launched, and were released because their pods failed permanently, or because none
	// was ready within the idle deadline.
	ReasonCannotServe = "CannotServe"
)

// Reasons of InferenceReady.
const (
	ReasonInferenceSuccess      = "WorkspaceInferenceStatusSuccess"
	ReasonInferencePending      = "WorkspaceInferenceStatusPending"
	ReasonGroupReplaced         = "GroupReplaced"
	ReasonGroupNotIsolated      = "GroupNotIsolated"
	ReasonContainerOOMKilled    = "ContainerOOMKilled"
	ReasonImagePullError        = "ImagePullError"
	ReasonContainerStartError   = "ContainerStartError"
	ReasonContainerCrashLoop    = "ContainerCrashLoopBackOff"
	ReasonNodeDiskPressure      = "NodeDiskPressure"
	ReasonNodeMemoryPressure    = "NodeMemoryPressure"
	ReasonPodEvicted            = "PodEvicted"
	ReasonUnschedulable         = "Unschedulable"
	ReasonVolumeNotMounted      = "VolumeNotMounted"
	ReasonPodSandboxFailed      = "PodSandboxFailed"
	ReasonPodRefused            = "PodRefused"
	ReasonWeightsFetchFailed    = "WeightsFetchFailed"
	ReasonWeightsHubUnreachable = "HubUnreachable"
	ReasonWeightsUnauthorized   = "Unauthorized"
	ReasonWeightsNotFound       = "WeightsNotFound"
	ReasonWeightsChecksum       = "ChecksumMismatch"
	ReasonWeightsDiskFull       = "DiskFull"
	ReasonNameTaken             = "NameTaken"
	// Reports of the engine or its agent about a failure.
	ReasonGPUOutOfMemory    = "GPUOutOfMemory"
	ReasonKVCacheTooSmall   = "KVCacheTooSmall"
	ReasonGPUUnusable       = "GPUUnusable"
	ReasonWrongArchitecture = "WrongArchitecture"
	ReasonEngineArgsRefused = "EngineArgsRefused"
	ReasonModelRefused      = "ModelRefused"
	ReasonStartupTimeout    = "StartupTimeout"
	ReasonMemberLost        = "MemberLost"
)

// Reasons of WorkspaceSucceeded, WorkspaceDeleting, Ready and Stalled.
const (
	ReasonWorkspaceSucceeded = "workspaceSucceeded"
	ReasonWorkspacePending   = "workspacePending"
	ReasonWorkspaceFailed    = "workspaceFailed"
	ReasonWorkspaceDeleted   = "workspaceDeleted"
	ReasonSuspended          = "Suspended"
	ReasonProgressing        = "Progressing"
	ReasonServing            = "Serving"
	ReasonNoEndpoint         = "NoEndpoint"
	ReasonReconcileFailed    = "ReconcileFailed"

	// ReasonBenchmarkCompleted is the reason of BenchmarkCompleted.
	ReasonBenchmarkCompleted = "BenchmarkCompleted"
)

// Stages of status.startup, in order.
const (
	// StagePlanned ends when a plan is accepted.
	StagePlanned = "Planned"
	// StageMachine ends when all machines are usable.
	StageMachine = "Machine"
	// StageWeights ends when every file of the model is on all machines. It includes the scheduling of the pods and the
	// start of the agent.
	StageWeights = "Weights"
	// StageImage ends when the engine's image is there and its containers run.
	StageImage = "Image"
	// StageEngine ends when all pods are ready: the engine has loaded the model.
	StageEngine = "Engine"
	// StageReady ends when the endpoint answers.
	StageReady = "Ready"
)
