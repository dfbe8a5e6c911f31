// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Engine is an entry of presets/engines: one inference server.
type Engine struct {
	// Name, for example llamacpp.
	Name string `json:"name"`
	// Version of the release that Flags describes.
	Version string `json:"version"`
	// Image is the default image reference. CPUImage is for machines without GPUs; empty if Image works there, too.
	Image    string `json:"image"`
	CPUImage string `json:"cpuImage,omitempty"`
	// UserID is the user of the image.
	UserID int64 `json:"userID"`
	// HealthPath is the HTTP path that returns 200 once the engine can serve.
	HealthPath string `json:"healthPath"`
	// BusyMetrics are gauges at /metrics; their sum is the number of requests in flight.
	BusyMetrics []string `json:"busyMetrics,omitempty"`
	// APIKeyVariable is the environment variable with the key for the engine's clients; empty if the engine reads none.
	APIKeyVariable string `json:"apiKeyVariable,omitempty"`
	// CompileCaches hold kernels that the engine compiles at its start, which takes minutes.
	CompileCaches []CompileCache `json:"compileCaches,omitempty"`
	// RuntimeAdapters is set if the engine loads and unloads adapters while it runs.
	RuntimeAdapters bool `json:"runtimeAdapters,omitempty"`
	// MultiNode is set if one model can spread over several machines.
	MultiNode bool `json:"multiNode,omitempty"`
	// WorkerCommand replaces the image's entrypoint on all machines but the first; empty if all machines run the same.
	WorkerCommand []string `json:"workerCommand,omitempty"`
	// ImageGiB is the image's size on a node's disk.
	ImageGiB float64 `json:"imageGiB"`
	// Split is the way that one replica of a model spreads over the GPUs of a node.
	Split Split `json:"split"`
	// CPUs and MemoryGiB are the requests of the engine's container.
	CPUs      int `json:"cpus"`
	MemoryGiB int `json:"memoryGiB"`
	// MemoryBurstGiB is the container's memory above its request on a shared node, for caches that fill while it
	// serves.
	MemoryBurstGiB int `json:"memoryBurstGiB,omitempty"`
	// ComputeCapability is the lowest that a GPU needs, by the quantization of the weights. The entry "default" is for
	// all other quantizations.
	ComputeCapability map[string]string `json:"computeCapability,omitempty"`
	// SparseAttention lists the GPUs with kernels for sparse attention; empty means all.
	SparseAttention []SparseGPU `json:"sparseAttention,omitempty"`
	// KVCacheTypes are the types of KV cache that plans may use, in addition to the model's own.
	KVCacheTypes []KVCacheType `json:"kvCacheTypes,omitempty"`
	// Memory holds the constants of the memory law if Split is layers, and Profile those if Split is tensor. The other
	// field is zero.
	Memory  EngineMemory  `json:"memory,omitzero"`
	Profile MemoryProfile `json:"profile,omitzero"`
	// Speed holds the constants of the roofline model.
	Speed Speed `json:"speed,omitzero"`
	// Reserved flags are flags that users must not set.
	Reserved []Reservation `json:"reserved,omitempty"`
	// Flags are the flags of this version, by name without dashes.
	Flags map[string]Flag `json:"flags"`
}

// ImageFor returns the image for a machine with the given number of GPUs.
func (e Engine) ImageFor(gpus int) string {
	if gpus == 0 && e.CPUImage != "" {
		return e.CPUImage
	}
	return e.Image
}

// Clone returns a deep copy.
func (e Engine) Clone() Engine {
	e.ComputeCapability = maps.Clone(e.ComputeCapability)
	e.SparseAttention, e.KVCacheTypes = cloneSparse(e.SparseAttention), cloneKVTypes(e.KVCacheTypes)
	e.Profile, e.Speed = e.Profile.Clone(), e.Speed.Clone()
	e.BusyMetrics, e.WorkerCommand = slices.Clone(e.BusyMetrics), slices.Clone(e.WorkerCommand)
	e.CompileCaches = slices.Clone(e.CompileCaches)
	e.Reserved = slices.Clone(e.Reserved)
	for i := range e.Reserved {
		e.Reserved[i].Flags = slices.Clone(e.Reserved[i].Flags)
	}
	e.Flags = maps.Clone(e.Flags)
	for name, flag := range e.Flags {
		flag.Values, flag.Aliases = slices.Clone(flag.Values), slices.Clone(flag.Aliases)
		flag.Negations = slices.Clone(flag.Negations)
		e.Flags[name] = flag
	}
	return e
}

// CompileCache is a directory of compiled kernels.
type CompileCache struct {
	// Variable is the environment variable with the directory's path. Directory is the directory's name.
	Variable  string `json:"variable"`
	Directory string `json:"directory"`
}

// Split is the way that one replica of a model spreads over the GPUs of a node.
type Split string

// Splits.
const (
	// SplitLayers gives every GPU a run of whole layers. The last GPU also holds the output layer.
	SplitLayers Split = "layers"
	// SplitTensor splits the layers into stages (pipeline parallelism), and each layer over the GPUs of a stage (tensor
	// parallelism). Replicas of the whole are data parallelism.
	SplitTensor Split = "tensor"
)

// EngineMemory holds the constants of an engine's memory law. It predicts the memory of a GPU besides weights and KV
// cache.
type EngineMemory struct {
	// Basis is the least certain basis of the constants.
	Basis v1beta1.Basis `json:"basis"`
	// ReserveGiB per GPU: the CUDA context, the libraries' workspaces, and fragmentation.
	ReserveGiB float64 `json:"reserveGiB"`
	// BatchTokens in one computation (llama.cpp's ubatch-size).
	BatchTokens int `json:"batchTokens"`
	// LogitBytes per token of the batch and entry of the vocabulary.
	LogitBytes int `json:"logitBytes"`
	// HiddenBytes per token of the batch and unit of the hidden size.
	HiddenBytes int `json:"hiddenBytes"`
	// MaskBytes per token of the batch and token of the context.
	MaskBytes int `json:"maskBytes"`
	// InputCopies is the number of copies of the mask if the layers spread over several GPUs.
	InputCopies int `json:"inputCopies"`
	// KVBytes per element of the KV cache.
	KVBytes int `json:"kvBytes"`
	// ContextMultiple is the unit of a sequence's context, in tokens; contexts are rounded up to it.
	ContextMultiple int `json:"contextMultiple"`
}

// Reservation is a group of flags that users must not set, with the reason.
type Reservation struct {
	Reason string   `json:"reason"`
	Flags  []string `json:"flags"`
	// IsRefused makes each of these flags an error. Otherwise package engine drops the flags with a warning, because
	// the engine does what the user expects without them.
	IsRefused bool `json:"refused,omitempty"`
}

// Flag is one option of an engine's command line.
type Flag struct {
	// Kind is the type of the flag's value.
	Kind FlagKind `json:"kind"`
	// Values of a string flag are all accepted values, unless empty. Values of an int or size flag are either words
	// accepted in addition to numbers, or all accepted numbers.
	Values []string `json:"values,omitempty"`
	// Aliases are other spellings of the name.
	Aliases []string `json:"aliases,omitempty"`
	// Negations are spellings that switch a bool off, the preferred one first.
	Negations []string `json:"negations,omitempty"`
	// Many is set if the flag takes several values, each of the kind.
	Many bool `json:"many,omitempty"`
}

// IsClosed reports whether Values are the only accepted values.
func (f Flag) IsClosed() bool {
	if len(f.Values) == 0 || f.Kind == FlagString {
		return len(f.Values) > 0
	}
	_, err := strconv.Atoi(f.Values[0])
	return err == nil
}

// FlagKind is the type of a flag's value.
type FlagKind string

// The flag kinds.
const (
	// FlagBool takes no value.
	FlagBool   FlagKind = "bool"
	FlagInt    FlagKind = "int"
	FlagFloat  FlagKind = "float"
	FlagString FlagKind = "string"
	// FlagJSON takes JSON, usually an object.
	FlagJSON FlagKind = "json"
	// FlagSize takes a whole number with an optional k, m, g or t for powers of 1000, or K, M, G or T for powers of
	// 1024.
	FlagSize FlagKind = "size"
)
