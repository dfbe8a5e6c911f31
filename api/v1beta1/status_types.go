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
	// StatePending: the Workspace has not answered yet.
	StatePending WorkspaceState = "Pending"
	// StateReady: the endpoint answers.
	StateReady WorkspaceState = "Ready"
	// StateNotReady: the endpoint answered before and does not answer now.
	StateNotReady WorkspaceState = "NotReady"
	// StateRunning: the tuning job runs.
	StateRunning WorkspaceState = "Running"
	// StateSucceeded: the tuning job succeeded.
	StateSucceeded WorkspaceState = "Succeeded"
	// StateFailed: the tuning job failed.
	StateFailed WorkspaceState = "Failed"
)

// WorkspaceStatus is the observed state.
type WorkspaceStatus struct {
	// observedGeneration is the generation of this status.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// workerNodes are the names of the nodes in use, sorted.
	// +optional
	WorkerNodes []string `json:"workerNodes,omitempty"`
	// state summarises the conditions in a word.
	// +optional
	State WorkspaceState `json:"state,omitempty"`
	// conditions report the state of the Workspace and how to solve problems.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// targetNodeCount is the number of nodes in the plan.
	// +optional
	TargetNodeCount int32 `json:"targetNodeCount,omitempty"`
	// performance holds benchmark results.
	// +optional
	Performance *Performance `json:"performance,omitempty"`
	// plan is the accepted plan, frozen when it was made.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// attempts are the latest attempts to acquire machines, newest last.
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Attempts []Attempt `json:"attempts,omitempty"`
	// startup lists the stages from plan to ready, with start and end.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=stage
	// +optional
	Startup []StartupStage `json:"startup,omitempty"`
	// endpoint is the address of the model.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// adapters are the states of adapters that change while the engine runs.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Adapters []AdapterStatus `json:"adapters,omitempty"`
	// latestReadyRevision is the name of the last ControllerRevision with an answering endpoint.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	LatestReadyRevision string `json:"latestReadyRevision,omitempty"`
	// engine compares the engine's own figures with the plan's, after its first answer.
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
	// config has the settings of the benchmark.
	// +optional
	Config map[string]string `json:"config,omitempty"`
}

// Basis reports how a number came to be.
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
	// revision names the ControllerRevision with the plan and the rendered pods.
	Revision string `json:"revision"`
	// summary is the plan in one line, for example "1 × Standard_NC24ads_A100_v4 (1 × A100-80)".
	Summary string `json:"summary"`
	// instanceType is the machine type; empty if existing nodes are used.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// nodes is the number of machines.
	Nodes int32 `json:"nodes"`
	// accelerator is the GPU's name; empty on machines without.
	// +optional
	Accelerator string `json:"accelerator,omitempty"`
	// acceleratorsPerNode is the number of used GPUs on each machine.
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
	// pipelineParallel is the number of stages of layers.
	// +optional
	PipelineParallel int32 `json:"pipelineParallel,omitempty"`
	// dataParallel is the number of replicas of the model.
	// +optional
	DataParallel int32 `json:"dataParallel,omitempty"`
	// expertParallel is true if whole experts of a mixture are spread over the GPUs of all replicas.
	// +optional
	ExpertParallel bool `json:"expertParallel,omitempty"`
	// maxModelLen is the context of every sequence, in tokens.
	// +optional
	MaxModelLen int32 `json:"maxModelLen,omitempty"`
	// concurrency is the number of sequences with maxModelLen tokens that fit at once.
	// +optional
	Concurrency int32 `json:"concurrency,omitempty"`
	// maxNumSeqs is the number of simultaneous sequences of each replica.
	// +optional
	MaxNumSeqs int32 `json:"maxNumSeqs,omitempty"`
	// gpuMemoryUtilization is the engine's share of a GPU's memory.
	// +optional
	GPUMemoryUtilization string `json:"gpuMemoryUtilization,omitempty"`
	// kvCacheType is the type of the KV cache's elements; empty means the model's own.
	// +optional
	KVCacheType string `json:"kvCacheType,omitempty"`
	// memory is the budget of one GPU.
	// +optional
	Memory *PlanMemory `json:"memory,omitempty"`
	// performance is the expected performance of the plan.
	// +optional
	Performance *PlanPerformance `json:"performance,omitempty"`
	// hourlyPrice of all machines, in USD per hour; empty if no price is known.
	// +optional
	HourlyPrice string `json:"hourlyPrice,omitempty"`
	// alternatives are the next best plans in order, at most 8.
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Alternatives []PlanAlternative `json:"alternatives,omitempty"`
	// rejected is the number of considered options that are not listed.
	// +optional
	Rejected int32 `json:"rejected,omitempty"`
	// warnings name requested values that were replaced or ignored, or are doubtful.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Warnings []string `json:"warnings,omitempty"`
	// advice names cheaper options that need consent or an administrator.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Advice []string `json:"advice,omitempty"`
}

// PlanPerformance is how fast a plan serves a load, as decimal strings.
type PlanPerformance struct {
	// inputTokens is the length of a typical prompt.
	InputTokens int32 `json:"inputTokens"`
	// outputTokens is the length of the answer.
	OutputTokens int32 `json:"outputTokens"`
	// concurrency is the number of such requests at any time.
	Concurrency int32 `json:"concurrency"`
	// requestsPerSecond of the objectives; empty if the load is a concurrency.
	// +optional
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`
	// timeToFirstToken is the mean time from a request to the first token of its answer.
	TimeToFirstToken string `json:"timeToFirstToken"`
	// longestTimeToFirstToken is the time to the first token for the longest prompt, without other load; empty if unknown.
	// +optional
	LongestTimeToFirstToken string `json:"longestTimeToFirstToken,omitempty"`
	// timePerOutputToken is the mean time between two tokens of an answer.
	TimePerOutputToken string `json:"timePerOutputToken"`
	// outputTokensPerSecond of all replicas together.
	OutputTokensPerSecond string `json:"outputTokensPerSecond"`
	// pricePerMillionOutputTokens in USD at that load; empty if the price is unknown.
	// +optional
	PricePerMillionOutputTokens string `json:"pricePerMillionOutputTokens,omitempty"`
	// slowdown is how many times longer a token takes than predicted, as measured on engines of the namespace under a
	// similar load. timePerOutputToken includes it. Empty if no measurement changed the prediction.
	// +optional
	Slowdown string `json:"slowdown,omitempty"`
	// basis of the figures: the worst of them.
	Basis Basis `json:"basis"`
}

// PlanMemory is the memory budget of one GPU, in GiB as decimal strings.
type PlanMemory struct {
	// total as the GPU shows it.
	Total string `json:"total"`
	// weights of the model.
	Weights string `json:"weights"`
	// kvCache holds as many sequences of maxModelLen tokens as concurrency says.
	KVCache string `json:"kvCache"`
	// overhead of activations, graphs and libraries.
	Overhead string `json:"overhead"`
	// free is the rest.
	Free string `json:"free"`
	// basis of the figures: the worst of them.
	Basis Basis `json:"basis"`
}

// PlanAlternative is a rejected option, with the reason.
type PlanAlternative struct {
	// instanceType is the machine type.
	InstanceType string `json:"instanceType"`
	// nodes is the number of machines.
	Nodes int32 `json:"nodes"`
	// hourlyPrice of all machines, in USD per hour.
	// +optional
	HourlyPrice string `json:"hourlyPrice,omitempty"`
	// tensorParallel is the number of GPUs that share each layer.
	// +optional
	TensorParallel int32 `json:"tensorParallel,omitempty"`
	// pipelineParallel is the number of stages of layers.
	// +optional
	PipelineParallel int32 `json:"pipelineParallel,omitempty"`
	// dataParallel is the number of replicas of the model.
	// +optional
	DataParallel int32 `json:"dataParallel,omitempty"`
	// timeToFirstToken is the mean time from a request to the first token of its answer, at the load of the option.
	// +optional
	TimeToFirstToken string `json:"timeToFirstToken,omitempty"`
	// timePerOutputToken is the mean time between two tokens of an answer at that load.
	// +optional
	TimePerOutputToken string `json:"timePerOutputToken,omitempty"`
	// outputTokensPerSecond of all replicas together at that load.
	// +optional
	OutputTokensPerSecond string `json:"outputTokensPerSecond,omitempty"`
	// pricePerMillionOutputTokens in USD at that load; empty if the price is unknown.
	// +optional
	PricePerMillionOutputTokens string `json:"pricePerMillionOutputTokens,omitempty"`
	// reason in a sentence.
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
}

// EngineStatus has an engine's own figures: those of its start, requested once for each revision, and its speed since.
type EngineStatus struct {
	// revision names the ControllerRevision of the pods that were read.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// weights of one replica of the model, in GiB; unset if the engine does not report them.
	// +optional
	Weights *EngineFigure `json:"weights,omitempty"`
	// kvCacheTokens is the size of one replica's KV cache, in tokens; unset if the engine does not report it.
	// +optional
	KVCacheTokens *EngineFigure `json:"kvCacheTokens,omitempty"`
	// speed of the served requests; unset before there were enough of them under a steady load.
	// +optional
	Speed *EngineSpeed `json:"speed,omitempty"`
	// message says why there are no figures.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// EngineSpeed is how fast an engine served requests under a steady load. Its figures are means.
type EngineSpeed struct {
	// timePerOutputToken between two tokens of an answer, in milliseconds as a decimal string.
	// +kubebuilder:validation:MaxLength=32
	TimePerOutputToken string `json:"timePerOutputToken"`
	// concurrency is the number of requests in progress at the engine, with all its data parallel replicas, rounded up.
	Concurrency int32 `json:"concurrency"`
	// inputTokens is the mean length of a prompt.
	InputTokens int32 `json:"inputTokens"`
	// outputTokens is the mean length of an answer.
	OutputTokens int32 `json:"outputTokens"`
	// requests is the number of finished requests behind these means.
	Requests int64 `json:"requests"`
	// tokens is the number of tokens over which the time was measured.
	Tokens int64 `json:"tokens"`
	// time of the last of these requests.
	Time metav1.Time `json:"time"`
}

// EngineFigure is one figure of an engine, as decimal strings.
type EngineFigure struct {
	// planned is the plan's figure; empty if there is none.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Planned string `json:"planned,omitempty"`
	// actual is the engine's figure.
	// +kubebuilder:validation:MaxLength=32
	Actual string `json:"actual"`
	// difference of actual from planned, for example +3.1%.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	Difference string `json:"difference,omitempty"`
}

// StartupStage is one stage between plan and ready. Each begins at the end of the one before, so it has its own
// share of the start: an image pulled while weights are fetched takes no time of its own.
type StartupStage struct {
	// stage: Planned, Machine, Weights, Image, Engine or Ready.
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage"`
	// startTime of the stage.
	StartTime metav1.Time `json:"startTime"`
	// endTime of the stage; unset while it continues.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
}

// AdapterState is the state of an adapter.
type AdapterState string

// The states of an adapter.
const (
	// AdapterLoading: the agent fetches or loads it.
	AdapterLoading AdapterState = "Loading"
	// AdapterLoaded: the engine serves it, and endpoint.models has its name.
	AdapterLoaded AdapterState = "Loaded"
	// AdapterUnloaded: the spec no longer has it, and the pod has served it.
	AdapterUnloaded AdapterState = "Unloaded"
	// AdapterFailed: it could not be fetched or loaded. The agent tries again.
	AdapterFailed AdapterState = "Failed"
)

// AdapterStatus is the state of one adapter.
type AdapterStatus struct {
	// name of the adapter.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// state: Loading, Loaded, Failed or Unloaded.
	// +kubebuilder:validation:MaxLength=63
	State AdapterState `json:"state"`
	// message has the last failure.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// Endpoint is the address of the model.
type Endpoint struct {
	// url of the OpenAI-compatible API inside the cluster.
	URL string `json:"url"`
	// models are the names of the model at the endpoint, the main one first.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Models []string `json:"models,omitempty"`
	// adapterSlots is how many adapters the running engine can have without a restart; unset if a change of adapters
	// replaces the pods.
	// +optional
	AdapterSlots int32 `json:"adapterSlots,omitempty"`
}
