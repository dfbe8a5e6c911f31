// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InferenceSpec describes the model to serve: a preset, or the user's own pod template.
type InferenceSpec struct {
	// preset names the model. Exactly one of preset and template is set. Immutable.
	// +optional
	Preset *PresetSpec `json:"preset,omitempty"`
	// template is the user's own pod; Modelberth adds only the placement.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`
	// TemplateError is the reason if a present template could not be read; then Template is empty.
	TemplateError string `json:"-"`
	// config names a ConfigMap in the Workspace's namespace with the key inference_config.yaml.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Config string `json:"config,omitempty"`
	// weights name the source of the model's files for a preset; unset means the hub. Modelberth only.
	// +optional
	Weights *WeightsSource `json:"weights,omitempty"`
	// adapters are LoRA adapters to serve with the model.
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Adapters []AdapterSpec `json:"adapters,omitempty"`
	// adapterUpdates says how a change of adapters reaches the engine: Replace replaces the pods; Live loads and unloads
	// adapters while the engine runs, within the slots and the rank of the plan. Unset means Replace. Modelberth only.
	// +optional
	AdapterUpdates AdapterUpdates `json:"adapterUpdates,omitempty"`
	// engine chooses and tunes the inference server. Modelberth only.
	// +optional
	Engine *EngineSpec `json:"engine,omitempty"`
	// objectives state the required size and speed. Modelberth only.
	// +optional
	Objectives *ObjectivesSpec `json:"objectives,omitempty"`
	// pod adds scheduling and metadata to the model's pods. Not together with template. Modelberth
	// only.
	// +optional
	Pod *PodSpec `json:"pod,omitempty"`
}

// AdapterUpdates is a way to change the adapters of a model.
//
// +kubebuilder:validation:Enum=Replace;Live
type AdapterUpdates string

// The ways to change the adapters.
const (
	AdapterUpdatesReplace AdapterUpdates = "Replace"
	AdapterUpdatesLive    AdapterUpdates = "Live"
)

// AccessMode is deprecated by KAITO and ignored.
//
// +kubebuilder:validation:Enum=public;private
type AccessMode string

// PresetSpec names a model of the catalogue or of a Hugging Face-compatible hub.
type PresetSpec struct {
	// name is a preset's name, an alias, or a Hugging Face id such as org/model; case is ignored.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// accessMode is deprecated and ignored.
	// +kubebuilder:default=public
	// +optional
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// presetOptions give access to the model.
	// +optional
	PresetOptions PresetOptions `json:"presetOptions,omitempty"`
}

// PresetOptions give access to a model.
type PresetOptions struct {
	// image is deprecated and ignored.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`
	// imagePullSecrets is deprecated and ignored.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// modelAccessSecret names a Secret in the Workspace's namespace with the key HF_TOKEN.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ModelAccessSecret string `json:"modelAccessSecret,omitempty"`
}

// WeightsSource replaces the hub as the source of a preset's files: exactly one of oci, image,
// persistentVolumeClaim and hostPath. The files have the same paths as in the model's repository. The description
// of the model still comes from the catalogue, or from the hub if that is allowed.
type WeightsSource struct {
	// oci is an artifact in a registry. Its layers are files or archives of files. It is fetched into the pod, or
	// into the cache.
	// +optional
	OCI *OCIWeights `json:"oci,omitempty"`
	// image is mounted into the pod as a volume: nothing is copied. Needs nodes with Kubernetes' image volumes
	// and containerd 2.1 or later.
	// +optional
	Image *ImageWeights `json:"image,omitempty"`
	// persistentVolumeClaim is a claim that already holds the files; it is mounted read-only.
	// +optional
	PersistentVolumeClaim *ClaimWeights `json:"persistentVolumeClaim,omitempty"`
	// hostPath is a directory of the nodes, if the administrator allows it; it is mounted read-only. Namespaces
	// with Pod Security's level baseline or restricted refuse such a pod.
	// +optional
	HostPath *HostPathWeights `json:"hostPath,omitempty"`
	// path of the files' directory within the source; unset means the source itself.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Path string `json:"path,omitempty"`
}

// OCIWeights is an artifact in a registry.
type OCIWeights struct {
	// reference of the artifact, such as registry.example/model:v1; a digest pins it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reference string `json:"reference"`
	// pullSecret names a Secret of type kubernetes.io/dockerconfigjson in the Workspace's namespace.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PullSecret string `json:"pullSecret,omitempty"`
	// verify requires a signature of the artifact, made with cosign. The controller verifies it before it buys
	// anything, and pods fetch the verified digest.
	// +optional
	Verify *OCIVerification `json:"verify,omitempty"`
}

// OCIVerification names the trusted signer: exactly one of publicKey, publicKeyConfigMap and keyless.
type OCIVerification struct {
	// publicKey in PEM, as cosign writes it to cosign.pub: ECDSA on P-256, RSA or Ed25519. Of several keys, one must have
	// signed.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	PublicKey string `json:"publicKey,omitempty"`
	// publicKeyConfigMap names a ConfigMap in the Workspace's namespace. Its entry cosign.pub has the public key.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PublicKeyConfigMap string `json:"publicKeyConfigMap,omitempty"`
	// keyless is the identity of a signer without a long-lived key, as stated in a Sigstore certificate. The
	// administrator must have named the trusted certificate authorities (chart value weights.oci.keyless).
	// +optional
	Keyless *KeylessIdentity `json:"keyless,omitempty"`
}

// KeylessIdentity identifies a signer: an issuer, and exactly one of subject and subjectRegExp.
type KeylessIdentity struct {
	// issuer of the signer's token, such as https://token.actions.githubusercontent.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer"`
	// subject is the signer: an e-mail address, or the URL of a workflow.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Subject string `json:"subject,omitempty"`
	// subjectRegExp is an RE2 regular expression. It must match the whole subject.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	SubjectRegExp string `json:"subjectRegExp,omitempty"`
}

// ImageWeights is an image mounted as a volume.
type ImageWeights struct {
	// reference of the image, such as registry.example/model:v1; a digest pins it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reference string `json:"reference"`
	// pullPolicy is Always, IfNotPresent or Never. Unset means Always for the tag latest, else IfNotPresent.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
	// pullSecret names a Secret of type kubernetes.io/dockerconfigjson in the Workspace's namespace.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PullSecret string `json:"pullSecret,omitempty"`
}

// ClaimWeights is a volume with weights.
type ClaimWeights struct {
	// claimName of a PersistentVolumeClaim in the Workspace's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName"`
}

// HostPathWeights is a directory of the nodes.
type HostPathWeights struct {
	// path of the directory on the node, below a directory that the administrator allows.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
}

// AdapterSpec is one LoRA adapter.
type AdapterSpec struct {
	// source is the source of the adapter.
	// +optional
	Source *DataSource `json:"source,omitempty"`
	// path of the adapter within its source: a directory, or llama.cpp's GGUF file; unset means the source
	// itself. Modelberth only.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Path string `json:"path,omitempty"`
	// strength scales the adapter, a decimal between 0 and 1.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	Strength *string `json:"strength,omitempty"`
}

// DataSource is a source of data: exactly one of urls, volumeSource, image and, for adapters, repository.
type DataSource struct {
	// name identifies the source within the Workspace.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// urls to download.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=2048
	// +optional
	URLs []string `json:"urls,omitempty"`
	// volumeSource is a volume with the data.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Volume *corev1.VolumeSource `json:"volumeSource,omitempty"`
	// VolumeError is the reason if a present volumeSource could not be read; then Volume is empty.
	VolumeError string `json:"-"`
	// image is an image with the data.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`
	// imagePullSecrets name the Secrets to pull image with.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// repository of the hub with the data, such as org/adapter or org/adapter@revision. For adapters, Modelberth
	// only.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Repository string `json:"repository,omitempty"`
}

// EngineSpec chooses and tunes the inference server.
type EngineSpec struct {
	// name of the engine, for example vllm or llamacpp; unset means the preset's.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// image replaces the engine's image.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Image string `json:"image,omitempty"`
	// args are flags of the engine without their leading dashes. They take precedence over the ConfigMap. The
	// ConfigMap takes precedence over the planner, within the limits of the plan.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Args map[string]EngineArg `json:"args,omitempty"`
	// env are environment variables of the engine.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Env []EngineEnv `json:"env,omitempty"`
	// apiKeySecret names a Secret in the Workspace's namespace. The Secret's value API_KEY is the key that the engine
	// requires from its clients. The engine gets the key as an environment variable.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIKeySecret string `json:"apiKeySecret,omitempty"`
	// allowedQuantizations permits weights in these formats, in addition to the checkpoint's own precision.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	AllowedQuantizations []string `json:"allowedQuantizations,omitempty"`
	// allowedKVCacheTypes permits these types for the KV cache, in addition to the model's own.
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=atomic
	// +optional
	AllowedKVCacheTypes []string `json:"allowedKVCacheTypes,omitempty"`
}

// APIKeySecretName is the Secret with the endpoint's key; empty if the endpoint needs none.
func (i *InferenceSpec) APIKeySecretName() string {
	if i == nil || i.Engine == nil {
		return ""
	}
	return i.Engine.APIKeySecret
}

// EngineArg is the value of one flag of the engine; empty for a flag without a value.
//
// +kubebuilder:validation:MaxLength=4096
type EngineArg string

// EngineEnv is one environment variable of the engine.
type EngineEnv struct {
	// name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// value of the variable.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Value string `json:"value,omitempty"`
}

// OptimizeFor is the planner's criterion.
//
// +kubebuilder:validation:Enum=Balanced;Cost;Latency;Throughput
type OptimizeFor string

// The objectives to rank by.
const (
	OptimizeForBalanced   OptimizeFor = "Balanced"
	OptimizeForCost       OptimizeFor = "Cost"
	OptimizeForLatency    OptimizeFor = "Latency"
	OptimizeForThroughput OptimizeFor = "Throughput"
)

// ObjectivesSpec has the required size and speed.
type ObjectivesSpec struct {
	// maxModelLen is the context of every sequence, in tokens. If it is unset, the planner aims for the smaller of the
	// model's context and 8192, and may accept less.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	MaxModelLen *int32 `json:"maxModelLen,omitempty"`
	// concurrency is the number of sequences of maxModelLen tokens that must fit at once. If it is unset, the planner aims
	// for 4, and may accept fewer.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Concurrency *int32 `json:"concurrency,omitempty"`
	// requestsPerSecond is the rate of requests with random arrivals, for example "2.5". If it is set,
	// speeds are predicted for this load instead of concurrency.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	RequestsPerSecond string `json:"requestsPerSecond,omitempty"`
	// inputTokens is the typical length of a prompt; unset means 1024.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	InputTokens *int32 `json:"inputTokens,omitempty"`
	// outputTokens is the typical length of an answer; unset means 256.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	OutputTokens *int32 `json:"outputTokens,omitempty"`
	// timeToFirstToken is the longest acceptable time to the first token; unset means 5s.
	// +optional
	TimeToFirstToken *metav1.Duration `json:"timeToFirstToken,omitempty"`
	// timePerOutputToken is the longest acceptable time per further token; unset means 100ms.
	// +optional
	TimePerOutputToken *metav1.Duration `json:"timePerOutputToken,omitempty"`
	// optimizeFor is Balanced (the cheapest per token, among options that cost little more per hour than the
	// cheapest), Cost (the cheapest per hour), Latency or Throughput; unset means Balanced.
	// +optional
	OptimizeFor OptimizeFor `json:"optimizeFor,omitempty"`
}

// PodSpec adds scheduling and metadata to the model's pods.
type PodSpec struct {
	// tolerations are added to those that Modelberth sets.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// nodeAffinity is required in addition to the plan's own placement.
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// topologySpreadConstraints of the pods.
	// +kubebuilder:validation:MaxItems=10
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// priorityClassName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// schedulerName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// runtimeClassName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// serviceAccountName of the pods.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// labels are added to the pods; they cannot replace those that Modelberth sets.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are added to the pods; they cannot replace those that Modelberth sets.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// cpu is the engine's CPU request; unset means the plan's.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// memory is the engine's memory request; unset means the plan's.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// terminationGracePeriodSeconds is how long running requests may take to finish after the pod begins to end.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}
