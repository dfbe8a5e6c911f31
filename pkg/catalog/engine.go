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
	// Image is the default image reference, CPUImage the one for machines without GPUs; empty if Image serves those
	// too.
	Image    string `json:"image"`
	CPUImage string `json:"cpuImage,omitempty"`
	// UserID of the image.
	UserID int64 `json:"userID"`
	// HealthPath answers 200 when the engine can serve.
	HealthPath string `json:"healthPath"`
	// BusyMetrics are gauges at /metrics; their sum is the number of requests in flight.
	BusyMetrics []string `json:"busyMetrics,omitempty"`
	// APIKeyVariable is the environment variable with the key for the engine's clients; empty if it reads none.
	APIKeyVariable string `json:"apiKeyVariable,omitempty"`
	// CompileCaches hold the kernels that the engine compiles at its start, for minutes.
	CompileCaches []CompileCache `json:"compileCaches,omitempty"`
	// MultiNode: one model can spread over several machines.
	MultiNode bool `json:"multiNode,omitempty"`
	// WorkerCommand replaces the image's entrypoint on all machines but the first; empty if all run the same.
	WorkerCommand []string `json:"workerCommand,omitempty"`
	// ImageGiB is the image's size on a node's disk.
	ImageGiB float64 `json:"imageGiB"`
	// Split says how one replica of a model spreads over the GPUs of a node.
	Split Split `json:"split"`
	// CPUs and MemoryGiB are the requests of the engine's container.
	CPUs      int `json:"cpus"`
	MemoryGiB int `json:"memoryGiB"`
	// MemoryBurstGiB is the memory above its request on a shared node: caches that fill as it serves.
	MemoryBurstGiB int `json:"memoryBurstGiB,omitempty"`
	// ComputeCapability is the least of a GPU, by the quantization of the weights; the entry "default" holds for all
	// others.
	ComputeCapability map[string]string `json:"computeCapability,omitempty"`
	// SparseAttention lists the GPUs with kernels for it; empty means all.
	SparseAttention []SparseGPU `json:"sparseAttention,omitempty"`
	// KVCacheTypes are the types of KV cache for plans, in addition to the model's own.
	KVCacheTypes []KVCacheType `json:"kvCacheTypes,omitempty"`
	// Memory holds the constants of the memory law if Split is layers, Profile if it is tensor; the other one is
	// zero.
	Memory  EngineMemory  `json:"memory,omitzero"`
	Profile MemoryProfile `json:"profile,omitzero"`
	// Speed holds the constants of the roofline.
	Speed Speed `json:"speed,omitzero"`
	// Reserved flags are not for users.
	Reserved []Reservation `json:"reserved,omitempty"`
	// Flags of this version, by name without dashes.
	Flags map[string]Flag `json:"flags"`
}

// ImageFor returns the image for this many GPUs of a machine.
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
	// Variable with the directory's path, and the directory's name.
	Variable  string `json:"variable"`
	Directory string `json:"directory"`
}

// Split says how one replica of a model spreads over the GPUs of a node.
type Split string

// Splits.
const (
	// SplitLayers gives every GPU a run of whole layers; the last GPU holds the output layer too.
	SplitLayers Split = "layers"
	// SplitTensor cuts every layer over the GPUs of a stage, and the layers into stages: tensor and
	// pipeline parallelism. Replicas of the whole are data parallelism.
	SplitTensor Split = "tensor"
)

// EngineMemory holds the constants of an engine's memory law: the memory of a GPU besides weights and KV cache.
type EngineMemory struct {
	// Basis of the constants: the worst of them.
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

// Reservation is a group of flags that are not for users, and the reason.
type Reservation struct {
	Reason string   `json:"reason"`
	Flags  []string `json:"flags"`
	// IsRefused makes one of these flags an error. The others are dropped with a warning, because the engine does
	// what the user expects without them.
	IsRefused bool `json:"refused,omitempty"`
}

// Flag is one option of an engine's command line.
type Flag struct {
	// Kind of its value.
	Kind FlagKind `json:"kind"`
	// Values of a string are all accepted ones, unless empty. Those of an int or a size are words in addition to
	// numbers, or all accepted numbers.
	Values []string `json:"values,omitempty"`
	// Aliases are other spellings of the name.
	Aliases []string `json:"aliases,omitempty"`
	// Negations are spellings that switch a bool off, the preferred one first.
	Negations []string `json:"negations,omitempty"`
	// Many: it takes several values, each of the kind.
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
	// FlagJSON takes JSON, as a rule an object.
	FlagJSON FlagKind = "json"
	// FlagSize takes a whole number with an optional k, m, g or t for powers of 1000, or K, M, G or T for powers of
	// 1024.
	FlagSize FlagKind = "size"
)
