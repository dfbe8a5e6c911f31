// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Finalizer keeps a Workspace until its machines are gone. The name is KAITO's: one controller can begin a deletion
// and the other can finish it.
const Finalizer = "workspace.finalizer.kaito.sh"

// Labels with the owner of machines and pods.
const (
	// LabelWorkspace is on the pods of a Workspace. It is never on NodeClaims for Karpenter: Azure's
	// gpu-provisioner acts on every claim with it.
	LabelWorkspace = "kaito.sh/workspace"
	// LabelWorkspaceNamespace goes with LabelWorkspace on machines of gpu-provisioner.
	LabelWorkspaceNamespace = "kaito.sh/workspacenamespace"
	// LabelMachineWorkspaceName is on NodeClaims and nodes.
	LabelMachineWorkspaceName = "karpenter.kaito.sh/workspace-name"
	// LabelMachineWorkspaceNamespace is on NodeClaims and nodes.
	LabelMachineWorkspaceNamespace = "karpenter.kaito.sh/workspace-namespace"
	// LabelWorkspaceUID is on NodeClaims and nodes, and on pods that wait for a machine from outside: the truth
	// about a machine's owner.
	LabelWorkspaceUID = "modelberth.dev/workspace-uid"
	// LabelMachineOrdinal counts the machines of a Workspace from 0.
	LabelMachineOrdinal = "modelberth.dev/machine-ordinal"
	// LabelMachineAttempt is the number of a machine's attempt. Pods that have moved from one attempt's machines to
	// another's select this label.
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
	// LabelGroupRole is on the pods of a group's workers, and selects them.
	LabelGroupRole = "modelberth.dev/group-role"
	// LabelPeers is on the pods of a group, with the UID of their Workspace. The NetworkPolicy admits pods with it
	// to all ports.
	LabelPeers = "modelberth.dev/peers"
	// LabelManagedBy and ManagedBy mark objects of Modelberth.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "modelberth"
)

// Annotations by users on a Workspace.
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
	// Annotations for model mirrors and streaming. This version stores them without effect.
	AnnotationModelMirrorStorageClass = "kaito.sh/model-mirror-storage-class"
	AnnotationStreamingServiceAccount = "kaito.sh/streaming-service-account"
	AnnotationStaticModelMirror       = "inference.kaito.sh/static-model-mirror"
	AnnotationStreamDatarefsURL       = "inference.kaito.sh/stream-datarefs-url"
	AnnotationStreamIdentityClientID  = "inference.kaito.sh/stream-identity-client-id"
	AnnotationStreamSourceType        = "inference.kaito.sh/stream-source-type"
)

// AnnotationRetryCapacity is set by a user whose refused machines may be available now, for example after a larger
// quota. With each new value, the next attempt ignores earlier refusals.
const AnnotationRetryCapacity = "modelberth.dev/retry-capacity"

// AnnotationWake is set by the router on an InferenceSet: the time of the latest request that waits for a replica, in
// RFC 3339. Autoscaling starts a replica for it. Nobody removes it: it counts until it is as old as idleAfter.
const AnnotationWake = "modelberth.dev/wake"

// AnnotationGPU is set by an administrator on a node whose labels do not identify its GPUs. Its value is a GPU's
// name in the catalogue, for example A100-80-SXM.
const AnnotationGPU = "modelberth.dev/gpu"

// AnnotationSpendingCeiling is set by an administrator on a namespace: the ceiling for the machines of all its
// Workspaces in USD per hour, for example "50", in place of the chart's spending.perNamespace.
const AnnotationSpendingCeiling = "modelberth.dev/spending-ceiling"

// AnnotationMonthlyBudget is set by an administrator on a namespace: the budget for the machines of all its Workspaces in
// a month (UTC), in USD, for example "500".
const AnnotationMonthlyBudget = "modelberth.dev/monthly-budget"

// AnnotationBudgetAction is set by an administrator beside AnnotationMonthlyBudget: BudgetStops, as without it, or
// BudgetAlerts.
const AnnotationBudgetAction = "modelberth.dev/budget-action"

// The values of AnnotationBudgetAction.
const (
	// BudgetStops buys nothing more once the budget is spent. Running machines stay.
	BudgetStops = "stop"
	// BudgetAlerts only changes the metrics.
	BudgetAlerts = "alert"
)

// AnnotationAdopted is set by kubectl berth adopt on a Workspace of KAITO's controller: the consent to take it over,
// with the Workspace's UID and the spec that the consent is for. It is removed once nothing of KAITO's is left.
const AnnotationAdopted = "modelberth.dev/adopted"

// The ConfigMaps with the cost of machines.
const (
	// LabelCost is on all of these ConfigMaps.
	LabelCost = "modelberth.dev/cost"
	// CostConfigMap is the copy in a namespace with Workspaces.
	CostConfigMap = "modelberth-cost"
	// CostLedgerKey is the key of the ledger in these ConfigMaps.
	CostLedgerKey = "ledger.json"
)

// Annotations that the controller writes.
const (
	// AnnotationHash is the hash of a revision's inputs.
	AnnotationHash = "workspace.kaito.io/hash"
	// AnnotationRevision is the revision of a rendered object.
	AnnotationRevision = "workspace.kaito.io/revision"
	// AnnotationUpgradeStartTime is when an upgrade in place began.
	AnnotationUpgradeStartTime = "kaito.sh/upgrade-start-time"
	// AnnotationContext is the hash of a revision's inputs other than the spec.
	AnnotationContext = "modelberth.dev/context-hash"
	// AnnotationGroup is on the pods of a model on several machines: the number of their group. Each replacement of
	// the group has a new number.
	AnnotationGroup = "modelberth.dev/group"
	// AnnotationGroupNotBefore is beside AnnotationGroup after several failures in a row: the earliest start of the
	// engines.
	AnnotationGroupNotBefore = "modelberth.dev/group-not-before"
	// AnnotationGroupFailures is how many groups failed in a row, AnnotationGroupFailure the reason of the last
	// failure. They are on the StatefulSet of the group's leader.
	AnnotationGroupFailures = "modelberth.dev/group-failures"
	AnnotationGroupFailure  = "modelberth.dev/group-failure"
	// AnnotationAdapters is on pods that change their adapters while the engine runs. Its value is the list of adapters.
	AnnotationAdapters = "modelberth.dev/adapters"
	// AnnotationIsolation is on the pods of a group. The engines wait while its value is IsolationRequired. The
	// controller changes the value once it has verified that other pods cannot reach the group.
	AnnotationIsolation = "modelberth.dev/isolation"
	// AnnotationAppliedHash is the hash of the object as it was last applied.
	AnnotationAppliedHash = "modelberth.dev/applied-hash"
	// AnnotationHourlyPrice is the planned price of a NodeClaim's machine in USD per hour.
	AnnotationHourlyPrice = "modelberth.dev/hourly-price"
	// AnnotationMachine is on pods that wait for a machine from outside: their request, and the number of the
	// attempt.
	AnnotationMachine = "modelberth.dev/machine"
	// AnnotationDoNotDisrupt keeps Karpenter from voluntary disruption.
	AnnotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
	// AnnotationSafeToEvict keeps cluster autoscaler from removing the node.
	AnnotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// AnnotationNodes is on revisions with existing nodes: their names, and the share of each.
	AnnotationNodes = "modelberth.dev/nodes"
)

// Values of AnnotationIsolation.
const (
	IsolationRequired = "Required"
	IsolationFound    = "Isolated"
	IsolationWaived   = "Waived"
)

// The taints of machines bought for a Workspace: one on all of them, and one with the UID of the Workspace, to keep
// other pods away.
const (
	TaintKey          = "sku"
	TaintValue        = "gpu"
	TaintKeyWorkspace = LabelWorkspaceUID
)

// Ports of a Workspace: the Service's, the engine's and the KV cache events'.
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

// ReservedSelectorKeys returns the label keys that are removed from a user's labelSelector: they name a machine's
// owner, and only the controller sets them.
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
