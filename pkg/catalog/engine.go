// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"maps"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Engine is what presets/engines says about one inference server.
type Engine struct {
	// Name, for example llamacpp.
	Name string `json:"name"`
	// Version of the release that Flags describes.
	Version string `json:"version"`
	// Image is the default image reference, CPUImage the one for machines without GPUs; empty where
	// Image serves those too.
	Image    string `json:"image"`
	CPUImage string `json:"cpuImage,omitempty"`
	// UserID that the image runs as.
	UserID int64 `json:"userID"`
	// HealthPath answers 200 when the engine can serve.
	HealthPath string `json:"healthPath"`
	// BusyMetrics are the gauges at /metrics whose sum is the number of requests under way.
	BusyMetrics []string `json:"busyMetrics,omitempty"`
	// APIKeyVariable is the environment variable that the engine reads the key from which its clients must send;
	// empty where it reads none.
	APIKeyVariable string `json:"apiKeyVariable,omitempty"`
	// CompileCaches are what the engine keeps of what it compiles when it starts, which takes it minutes.
	CompileCaches []CompileCache `json:"compileCaches,omitempty"`
	// MultiNode says that one model can spread over several machines.
	MultiNode bool `json:"multiNode,omitempty"`
	// WorkerCommand is what those machines but the first run, in place of the image's entrypoint; empty where
	// all run the same.
	WorkerCommand []string `json:"workerCommand,omitempty"`
	// ImageGiB is the image's size on a node's disk.
	ImageGiB float64 `json:"imageGiB"`
	// Split says how one replica of a model spreads over the GPUs of a node.
	Split Split `json:"split"`
	// CPUs and MemoryGiB are what the engine's container should request of a machine.
	CPUs      int `json:"cpus"`
	MemoryGiB int `json:"memoryGiB"`
	// MemoryBurstGiB is what the container may use above its request where it shares a node with others: caches
	// that fill while it serves.
	MemoryBurstGiB int `json:"memoryBurstGiB,omitempty"`
	// ComputeCapability is the least that a GPU must have, by the quantization of the weights; the
	// entry "default" holds for those that are not named.
	ComputeCapability map[string]string `json:"computeCapability,omitempty"`
	// SparseAttention are the GPUs that have kernels for it; empty means that all have.
	SparseAttention []SparseGPU `json:"sparseAttention,omitempty"`
	// KVCacheTypes are the types of KV cache that can be planned for beside the model's own.
	KVCacheTypes []KVCacheType `json:"kvCacheTypes,omitempty"`
	// Memory holds the constants of the engine's memory law where Split is layers, Profile where it is
	// tensor; the other one is zero.
	Memory  EngineMemory  `json:"memory,omitzero"`
	Profile MemoryProfile `json:"profile,omitzero"`
	// Speed holds the constants of the roofline that predicts how fast it serves.
	Speed Speed `json:"speed,omitzero"`
	// Reserved flags are those that a user cannot set.
	Reserved []Reservation `json:"reserved,omitempty"`
	// Flags that this version accepts, by name without dashes.
	Flags map[string]Flag `json:"flags"`
}

// ImageFor returns the image for a machine of which the engine uses that many GPUs.
func (e Engine) ImageFor(gpus int) string {
	if gpus == 0 && e.CPUImage != "" {
		return e.CPUImage
	}
	return e.Image
}

// Clone returns a copy that shares no memory with the engine.
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

// CompileCache is a directory of what an engine has compiled.
type CompileCache struct {
	// Variable that names the directory, and what the directory is called.
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

// EngineMemory holds the constants of an engine's memory law: what a GPU must hold besides weights
// and KV cache.
type EngineMemory struct {
	// Basis of the constants: the worst of them.
	Basis v1beta1.Basis `json:"basis"`
	// ReserveGiB per GPU: the CUDA context, the libraries' workspaces, and fragmentation.
	ReserveGiB float64 `json:"reserveGiB"`
	// BatchTokens that are computed at once (llama.cpp's ubatch-size).
	BatchTokens int `json:"batchTokens"`
	// LogitBytes per token of the batch and entry of the vocabulary.
	LogitBytes int `json:"logitBytes"`
	// HiddenBytes per token of the batch and unit of the hidden size.
	HiddenBytes int `json:"hiddenBytes"`
	// MaskBytes per token of the batch and token of the context.
	MaskBytes int `json:"maskBytes"`
	// InputCopies is how often the mask is kept where the layers spread over several GPUs.
	InputCopies int `json:"inputCopies"`
	// KVBytes per element of the KV cache.
	KVBytes int `json:"kvBytes"`
	// ContextMultiple is what a sequence's context is rounded up to, in tokens.
	ContextMultiple int `json:"contextMultiple"`
}

// Reservation is a group of flags that a user cannot set, and why.
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
	// Values of a string are all that are accepted, unless empty; those of an int or a size are words
	// that are accepted beside numbers, or all the numbers that are accepted.
	Values []string `json:"values,omitempty"`
	// Aliases are other spellings of the name.
	Aliases []string `json:"aliases,omitempty"`
	// Negations are spellings that switch a bool off, the one to render first.
	Negations []string `json:"negations,omitempty"`
	// Many says that it takes several values, each of the kind.
	Many bool `json:"many,omitempty"`
}

// IsClosed says that no other value than Values is accepted.
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
	// FlagSize takes a whole number that may end in k, m, g or t for powers of 1000, in K, M, G or T for
	// powers of 1024.
	FlagSize FlagKind = "size"
)
