// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Finalizer keeps a Workspace until its machines are gone. The name is KAITO's, so that a deletion
// begun by one controller can be ended by the other.
const Finalizer = "workspace.finalizer.kaito.sh"

// Labels that name the owner of machines and pods.
const (
	// LabelWorkspace is on the pods of a Workspace. It is never put on NodeClaims meant for
	// Karpenter: Azure's gpu-provisioner acts on every claim that carries it.
	LabelWorkspace = "kaito.sh/workspace"
	// LabelWorkspaceNamespace goes with LabelWorkspace on machines of gpu-provisioner.
	LabelWorkspaceNamespace = "kaito.sh/workspacenamespace"
	// LabelMachineWorkspaceName is on NodeClaims and nodes.
	LabelMachineWorkspaceName = "karpenter.kaito.sh/workspace-name"
	// LabelMachineWorkspaceNamespace is on NodeClaims and nodes.
	LabelMachineWorkspaceNamespace = "karpenter.kaito.sh/workspace-namespace"
	// LabelWorkspaceUID is on NodeClaims and nodes, and on pods that wait for a machine which nobody buys for
	// them: the truth about who owns a machine.
	LabelWorkspaceUID = "modelberth.dev/workspace-uid"
	// LabelMachineOrdinal counts the machines of a Workspace from 0.
	LabelMachineOrdinal = "modelberth.dev/machine-ordinal"
	// LabelMachineAttempt is the number of the attempt that a machine was bought in. Pods that moved from the
	// machines of one attempt to those of another select it.
	LabelMachineAttempt = "modelberth.dev/machine-attempt"
	// LabelInferenceSet is on children of an InferenceSet.
	LabelInferenceSet = "inferenceset.kaito.sh/created-by"
	// LabelMultiRoleInference and LabelInferenceRole are on children of a MultiRoleInference.
	LabelMultiRoleInference = "multiroleinference.kaito.sh/created-by"
	LabelInferenceRole      = "kaito.sh/inference-role"
	// LabelUpgradeToVersion asks for an upgrade in place and stays as a record of it.
	LabelUpgradeToVersion = "kaito.sh/upgrade-to-version"
	// LabelRevisionOwner is on ControllerRevisions: the Workspace's name.
	LabelRevisionOwner = "workspace.kaito.io/name"
	// LabelGroupRole is on the pods, and selects them, of those machines of a group that serve nobody themselves.
	LabelGroupRole = "modelberth.dev/group-role"
	// LabelPeers is on the pods of a group and holds the UID of their Workspace. The NetworkPolicy admits by it who
	// may reach all of their ports.
	LabelPeers = "modelberth.dev/peers"
	// LabelManagedBy and ManagedBy mark what Modelberth wrote.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "modelberth"
)

// Annotations that users set on a Workspace.
const (
	AnnotationEnableLoadBalancer   = "kaito.sh/enablelb"
	AnnotationRuntime              = "kaito.sh/runtime"
	AnnotationBypassResourceChecks = "kaito.sh/bypass-resource-checks"
	AnnotationNodeImageFamily      = "kaito.sh/node-image-family"
	AnnotationNodeClassName        = "kaito.sh/node-class-name"
	AnnotationDisableBenchmark     = "kaito.sh/disable-benchmark"
	AnnotationPerformanceMode      = "kaito.sh/performance-mode"
	AnnotationUseLocalWeights      = "kaito.sh/use-local-weights"
	AnnotationModelStreaming       = "kaito.sh/model-streaming"
	// Of model mirrors and streaming, which this version stores and does not act on.
	AnnotationModelMirrorStorageClass = "kaito.sh/model-mirror-storage-class"
	AnnotationStreamingServiceAccount = "kaito.sh/streaming-service-account"
	AnnotationStaticModelMirror       = "inference.kaito.sh/static-model-mirror"
	AnnotationStreamDatarefsURL       = "inference.kaito.sh/stream-datarefs-url"
	AnnotationStreamIdentityClientID  = "inference.kaito.sh/stream-identity-client-id"
	AnnotationStreamSourceType        = "inference.kaito.sh/stream-source-type"
)

// AnnotationRetryCapacity is set by a user whose refused machines may be had by now, for example after a
// quota was raised. Each new value has the next attempt ask without regard to earlier refusals.
const AnnotationRetryCapacity = "modelberth.dev/retry-capacity"

// AnnotationGPU is set by an administrator on a node whose labels do not tell what its GPUs are. Its value
// is a GPU's name in the catalogue, for example A100-80-SXM.
const AnnotationGPU = "modelberth.dev/gpu"

// AnnotationSpendingCeiling is set by an administrator on a namespace: the most that the machines of all its
// Workspaces may cost in USD per hour, for example "50", in place of the chart's spending.perNamespace.
const AnnotationSpendingCeiling = "modelberth.dev/spending-ceiling"

// Annotations that Modelberth writes.
const (
	// AnnotationHash is the hash of what a revision was made from.
	AnnotationHash = "workspace.kaito.io/hash"
	// AnnotationRevision is the revision that an object was rendered from.
	AnnotationRevision = "workspace.kaito.io/revision"
	// AnnotationUpgradeStartTime is when an upgrade in place began.
	AnnotationUpgradeStartTime = "kaito.sh/upgrade-start-time"
	// AnnotationContext is the hash of what a revision was made from beside the spec.
	AnnotationContext = "modelberth.dev/context-hash"
	// AnnotationGroup is on the pods of a model that several machines serve together: the number of their group,
	// which is another one each time that the group is replaced.
	AnnotationGroup = "modelberth.dev/group"
	// AnnotationGroupNotBefore is beside it after failures in a row: when the engines may start at the earliest.
	AnnotationGroupNotBefore = "modelberth.dev/group-not-before"
	// AnnotationGroupFailures is how many groups failed in a row, AnnotationGroupFailure what the last one ended
	// with. They are on the StatefulSet of the group's leader.
	AnnotationGroupFailures = "modelberth.dev/group-failures"
	AnnotationGroupFailure  = "modelberth.dev/group-failure"
	// AnnotationIsolation is on the pods of a group. Their engines wait while it is IsolationRequired; the controller
	// replaces it once strangers are found not to reach them.
	AnnotationIsolation = "modelberth.dev/isolation"
	// AnnotationAppliedHash is the hash of the object as it was last applied.
	AnnotationAppliedHash = "modelberth.dev/applied-hash"
	// AnnotationHourlyPrice is what a NodeClaim's machine costs in USD per hour, as it was planned.
	AnnotationHourlyPrice = "modelberth.dev/hourly-price"
	// AnnotationMachine is on pods that wait for a machine which nobody buys for them: what they ask for, and
	// under the number of which attempt.
	AnnotationMachine = "modelberth.dev/machine"
	// AnnotationDoNotDisrupt keeps Karpenter from voluntary disruption.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	// AnnotationSafeToEvict keeps cluster autoscaler from it.
	AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// AnnotationNodes is on revisions that use nodes that are there: which, and how much of each.
	AnnotationNodes = "modelberth.dev/nodes"
)

// Values of AnnotationIsolation.
const (
	IsolationRequired = "Required"
	IsolationFound    = "Isolated"
	IsolationWaived   = "Waived"
)

// The taints on machines bought for a Workspace: one that all of them have, and one whose value is the UID of the
// Workspace, which keeps the pods of others away.
const (
	TaintKey          = "sku"
	TaintValue        = "gpu"
	TaintKeyWorkspace = LabelWorkspaceUID
)

// Ports of a Workspace: the Service's, the engine's and that of KV cache events.
const (
	ServicePort  = 80
	EnginePort   = 5000
	KVEventsPort = 5557
)

// Keys of users' ConfigMaps and Secrets.
const (
	InferenceConfigKey = "inference_config.yaml"
	TrainingConfigKey  = "training_config.yaml"
	HubTokenKey        = "HF_TOKEN"
	APIKeyKey          = "API_KEY"
)

// ReservedSelectorKeys returns the label keys that are removed from a user's labelSelector: they
// name the owner of a machine, which only the controller decides.
func ReservedSelectorKeys() []string {
	return []string{
		"kaito.sh/ragengine",
		"kaito.sh/ragenginenamespace",
		LabelWorkspace,
		LabelWorkspaceNamespace,
		"karpenter.kaito.sh/inferenceset",
		"karpenter.kaito.sh/inferenceset-namespace",
		LabelMachineWorkspaceName,
		LabelMachineWorkspaceNamespace,
	}
}
