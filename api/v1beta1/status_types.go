// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkspaceState summarises a Workspace in a word.
type WorkspaceState string

// The states of a Workspace: Pending for every one, then those of inference or those of tuning.
const (
	// StatePending means that the Workspace has not answered yet.
	StatePending WorkspaceState = "Pending"
	// StateReady means that the endpoint answers.
	StateReady WorkspaceState = "Ready"
	// StateNotReady means that the endpoint answered once and does not now.
	StateNotReady WorkspaceState = "NotReady"
	// StateRunning means that the tuning job runs.
	StateRunning WorkspaceState = "Running"
	// StateSucceeded means that the tuning job has ended well.
	StateSucceeded WorkspaceState = "Succeeded"
	// StateFailed means that the tuning job has failed.
	StateFailed WorkspaceState = "Failed"
)

// WorkspaceStatus is what Modelberth observed.
type WorkspaceStatus struct {
	// observedGeneration is the generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// workerNodes are the names of the nodes in use, sorted.
	// +optional
	WorkerNodes []string `json:"workerNodes,omitempty"`
	// state summarises the conditions in a word.
	// +optional
	State WorkspaceState `json:"state,omitempty"`
	// conditions tell what is true, what is not, and what to do about it.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// targetNodeCount is the number of nodes that the plan uses.
	// +optional
	TargetNodeCount int32 `json:"targetNodeCount,omitempty"`
	// performance holds benchmark results.
	// +optional
	Performance *Performance `json:"performance,omitempty"`
	// plan is the accepted plan, frozen when it was made.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// attempts are the latest tries to get machines, newest last.
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Attempts []Attempt `json:"attempts,omitempty"`
	// startup lists the stages from plan to ready, with start and end.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=stage
	// +optional
	Startup []StartupStage `json:"startup,omitempty"`
	// endpoint is where the model answers.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// latestReadyRevision is the name of the ControllerRevision that answered last.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	LatestReadyRevision string `json:"latestReadyRevision,omitempty"`
	// engine is what the engine said of itself when it answered first, beside what the plan counted on.
	// +optional
	Engine *EngineStatus `json:"engine,omitempty"`
}

// Performance holds benchmark results by name, for example peakTokensPerMinute.
type Performance struct {
	// metrics by name.
	// +optional
	Metrics map[string]Metric `json:"metrics,omitempty"`
}

// Metric is one benchmark result.
type Metric struct {
	// description of the metric.
	Description string `json:"description"`
	// value of the metric.
	Value string `json:"value"`
	// unit of the value.
	// +optional
	Unit string `json:"unit,omitempty"`
	// config is what the benchmark ran with.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// Basis says how a number came to be.
//
// +kubebuilder:validation:Enum=exact;measured;estimated
type Basis string

// The bases, from best to worst.
const (
	BasisExact     Basis = "exact"
	BasisMeasured  Basis = "measured"
	BasisEstimated Basis = "estimated"
)

// PlanStatus is the accepted plan. Memory is in GiB per GPU, prices in USD, all as decimal strings.
type PlanStatus struct {
	// revision names the ControllerRevision that holds the plan and the rendered pods.
	Revision string `json:"revision"`
	// summary is the plan in one line, for example "1 × Standard_NC24ads_A100_v4 (1 × A100-80)".
	Summary string `json:"summary"`
	// instanceType is the machine type; empty where existing nodes are used.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// nodes is the number of machines.
	Nodes int32 `json:"nodes"`
	// accelerator is the GPU's name; empty on machines without.
	// +optional
	Accelerator string `json:"accelerator,omitempty"`
	// acceleratorsPerNode is the number of GPUs that the model uses on each machine.
	// +optional
	AcceleratorsPerNode int32 `json:"acceleratorsPerNode,omitempty"`
	// capacityType is how the machines are paid for.
	// +optional
	CapacityType CapacityType `json:"capacityType,omitempty"`
	// engine is the inference server.
	// +optional
	Engine string `json:"engine,omitempty"`
	// tensorParallel is the number of GPUs that share each layer.
	// +optional
	TensorParallel int32 `json:"tensorParallel,omitempty"`
	// pipelineParallel is the number of stages that the layers are split into.
	// +optional
	PipelineParallel int32 `json:"pipelineParallel,omitempty"`
	// dataParallel is the number of replicas of the model.
	// +optional
	DataParallel int32 `json:"dataParallel,omitempty"`
	// expertParallel says that a mixture's experts are spread whole over the GPUs of all replicas.
	// +optional
	ExpertParallel bool `json:"expertParallel,omitempty"`
	// maxModelLen is the context that every sequence may use, in tokens.
	// +optional
	MaxModelLen int32 `json:"maxModelLen,omitempty"`
	// concurrency is the number of sequences of maxModelLen that fit at once.
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
	// maxNumSeqs is the number of sequences that each replica works on at once.
	// +optional
	MaxNumSeqs int32 `json:"maxNumSeqs,omitempty"`
	// gpuMemoryUtilization is the share of a GPU's memory that the engine may use.
	// +optional
	GPUMemoryUtilization string `json:"gpuMemoryUtilization,omitempty"`
	// kvCacheType is the type of the KV cache's elements; empty means the model's own.
	// +optional
	KVCacheType string `json:"kvCacheType,omitempty"`
	// memory is the budget of one GPU.
	// +optional
	Memory *PlanMemory `json:"memory,omitempty"`
	// performance is what to expect of the plan.
	// +optional
	Performance *PlanPerformance `json:"performance,omitempty"`
	// hourlyPrice of all machines, in USD per hour; empty where no price is known.
	// +optional
	HourlyPrice string `json:"hourlyPrice,omitempty"`
	// alternatives are the next best plans in order, at most 8.
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Alternatives []PlanAlternative `json:"alternatives,omitempty"`
	// rejected is the number of options that were considered and are not listed.
	// +optional
	Rejected int32 `json:"rejected,omitempty"`
	// warnings name what was asked for and replaced, ignored or doubtful.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Warnings []string `json:"warnings,omitempty"`
	// advice names what would be cheaper and needs consent or an administrator.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Advice []string `json:"advice,omitempty"`
}

// PlanPerformance is how fast a plan serves a load, as decimal strings.
type PlanPerformance struct {
	// inputTokens is the length of a typical prompt.
	InputTokens int32 `json:"inputTokens"`
	// outputTokens is the length of its answer.
	OutputTokens int32 `json:"outputTokens"`
	// concurrency is the number of such requests at any time.
	Concurrency int32 `json:"concurrency"`
	// timeToFirstToken is the mean time from a request to the first token of its answer.
	TimeToFirstToken string `json:"timeToFirstToken"`
	// timePerOutputToken is the mean time between two tokens of an answer.
	TimePerOutputToken string `json:"timePerOutputToken"`
	// outputTokensPerSecond of all replicas together.
	OutputTokensPerSecond string `json:"outputTokensPerSecond"`
	// pricePerMillionOutputTokens in USD at that load; empty where no price is known.
	// +optional
	PricePerMillionOutputTokens string `json:"pricePerMillionOutputTokens,omitempty"`
	// basis of the figures: the worst of them.
	Basis Basis `json:"basis"`
}

// PlanMemory is the memory budget of one GPU, in GiB as decimal strings.
type PlanMemory struct {
	// total that the GPU shows.
	Total string `json:"total"`
	// weights of the model.
	Weights string `json:"weights"`
	// kvCache for concurrency sequences of maxModelLen tokens.
	KVCache string `json:"kvCache"`
	// overhead of activations, graphs and libraries.
	Overhead string `json:"overhead"`
	// free is what remains.
	Free string `json:"free"`
	// basis of the figures: the worst of them.
	Basis Basis `json:"basis"`
}

// PlanAlternative is an option that was not chosen, and why.
type PlanAlternative struct {
	// instanceType is the machine type.
	InstanceType string `json:"instanceType"`
	// nodes is the number of machines.
	Nodes int32 `json:"nodes"`
	// hourlyPrice of all machines, in USD per hour.
	// +optional
	HourlyPrice string `json:"hourlyPrice,omitempty"`
	// reason in a sentence.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
}

// Attempt is one try to get machines.
type Attempt struct {
	// number of the attempt, counted from 1.
	Number int32 `json:"number"`
	// instanceType that was asked for.
	InstanceType string `json:"instanceType"`
	// nodeClaims that are asked for, named before they are created. An attempt that has ended lists the first 64.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	NodeClaims []string `json:"nodeClaims,omitempty"`
	// zone that was asked for; empty means any.
	// +optional
	Zone string `json:"zone,omitempty"`
	// capacityType that was asked for.
	// +optional
	CapacityType CapacityType `json:"capacityType,omitempty"`
	// nodeClassName names the NodeClass that was bought with; empty means the installation's.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeClassName string `json:"nodeClassName,omitempty"`
	// retry is the annotation modelberth.dev/retry-capacity, shortened, when the attempt began.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Retry string `json:"retry,omitempty"`
	// startTime of the attempt.
	StartTime metav1.Time `json:"startTime"`
	// revision names the ControllerRevision whose plan asked for it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// generation of the Workspace when the attempt ended.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// claims tell what is known of the machines that were created.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Claims []AttemptClaim `json:"claims,omitempty"`
	// readyTime is when all machines were usable; unset where they never were.
	// +optional
	ReadyTime *metav1.Time `json:"readyTime,omitempty"`
	// failingTime is since when the pods on the machines fail in a way that no retry mends; unset while they
	// do not.
	// +optional
	FailingTime *metav1.Time `json:"failingTime,omitempty"`
	// endTime is when the machines were refused, lost or let go; unset while the attempt goes on or
	// its machines are held.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// reason that the attempt ended with; empty while it goes on or holds.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`
	// message in the cloud's own words.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// fix is what somebody could do about it.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Fix string `json:"fix,omitempty"`
	// scope is what the refusal rules out, as breadth/name/zone/capacityType, and a NodeClass where it is
	// about one.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Scope string `json:"scope,omitempty"`
	// cooldown is how long that is left alone after a first refusal; it grows with every further one.
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// guessed says that the request itself may be why: other Workspaces of the namespace leave it alone only
	// once a second one of them was refused alike, and other namespaces never do.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
	// mendedBy names the object whose state tells that somebody has done what fix says: nodeClass.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	MendedBy string `json:"mendedBy,omitempty"`
	// nodeClass is the state that the node class was in: Missing, NotReady or Ready; empty where it
	// says nothing of itself.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NodeClass string `json:"nodeClass,omitempty"`
}

// AttemptClaim is what is known of one machine of an attempt, for when it has vanished.
type AttemptClaim struct {
	// name of the NodeClaim.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the NodeClaim; empty while a lost machine is not bought again.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// creationTime of the NodeClaim.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// stage that it reached: Launched or Registered; empty before.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Stage string `json:"stage,omitempty"`
	// heard are the latest words about its launch, newest last.
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Heard []AttemptWords `json:"heard,omitempty"`
	// lost is the machine of this name that was lost or refused last, in whose place another one is bought.
	// +optional
	Lost *LostClaim `json:"lost,omitempty"`
}

// LostClaim is a machine of an attempt that was lost or refused while the others of the attempt are kept.
type LostClaim struct {
	// uid of the NodeClaim.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// creationTime is when it was asked for; absent where that is not known.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// time when it was found lost or refused.
	Time metav1.Time `json:"time"`
	// reason, as of an attempt that ends.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// message in the cloud's own words.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
	// scope is what the refusal rules out, in the form of the attempt's.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Scope string `json:"scope,omitempty"`
	// cooldown is how long that is left alone after a first refusal.
	// +optional
	Cooldown *metav1.Duration `json:"cooldown,omitempty"`
	// guessed says that nobody named what is out.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
}

// AttemptWords are a reason that was given for a machine that is not launched.
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

// EngineStatus is what an engine said of itself. It is asked once for each revision.
type EngineStatus struct {
	// revision names the ControllerRevision whose pods were asked.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// weights of one replica of the model, in GiB; unset where the engine does not tell.
	// +optional
	Weights *EngineFigure `json:"weights,omitempty"`
	// kvCacheTokens that the KV cache of one replica holds; unset where the engine does not tell.
	// +optional
	KVCacheTokens *EngineFigure `json:"kvCacheTokens,omitempty"`
	// message says why there are no figures.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// EngineFigure is one figure of an engine, as decimal strings.
type EngineFigure struct {
	// planned is what the plan counted on; empty where it counted on nothing.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Planned string `json:"planned,omitempty"`
	// actual is what the engine says.
	// +kubebuilder:validation:MaxLength=32
	Actual string `json:"actual"`
	// difference of actual from planned, for example +3.1%.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Difference string `json:"difference,omitempty"`
}

// StartupStage is one stage on the way from plan to ready. Each begins where the one before ended, so it
// is what the start took for it: an image that is pulled while weights are fetched takes no time of its
// own.
type StartupStage struct {
	// stage: Planned, Machine, Weights, Image, Engine or Ready.
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage"`
	// startTime of the stage.
	StartTime metav1.Time `json:"startTime"`
	// endTime of the stage; unset while it goes on.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// Endpoint is where the model answers.
type Endpoint struct {
	// url of the OpenAI-compatible API inside the cluster.
	URL string `json:"url"`
	// models are the names that the endpoint answers to, the first one first.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Models []string `json:"models,omitempty"`
}
