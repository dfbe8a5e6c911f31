// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine turns a plan into the command line of an inference server: ordered flags in exec
// form, environment and probe path. One package below it per engine.
//
// It decides flags: which of the user's are valid for the engine's version, which take precedence, and whether the
// rest lead to a warning or an error. It must not know Kubernetes objects, prices of machines or the transport of
// weights.
package engine

import (
	"time"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input has the inputs of a command line.
type Input struct {
	// Data is the catalogue's entry of the engine, Model that of the model.
	Data  catalog.Engine
	Model model.Model
	Plan  planner.Plan
	// ModelDir has the artifact's files, and CacheDir is for the engine's compiled code; if CacheDir is empty, the
	// engine chooses a place.
	ModelDir, CacheDir string
	// Adapters to serve with the model.
	Adapters []Adapter
	// ServedNames are the names of the model at the endpoint, the main one first.
	ServedNames []string
	// Config is the user's ConfigMap, Args are the flags of inference.engine.args; Args win.
	Config Config
	Args   map[string]string
	// Env are the variables of inference.engine.env, in order.
	Env []EnvVar
	// Port to listen on.
	Port int
	// Drain is how long running requests may take once the engine is signalled to end; 0 cuts them off.
	Drain time.Duration
	// AllowRemoteCode is set if the administrator allows code from a model's repository.
	AllowRemoteCode bool
	// OwnFiles is set if the user put the model's files on a volume or into an image: the hub's repository is not
	// used.
	OwnFiles bool
	// PublishKVEvents is set if the administrator has named a consumer of the KV cache's events.
	PublishKVEvents bool
	// MediaDomains are the allowed hosts of linked images, audio and video; empty means none, AnyMediaDomain all.
	MediaDomains []string
	// RDMA is set if the pods get a device for direct access between machines.
	RDMA bool
	// Member is this command's machine among several that serve together; nil for one that serves alone.
	Member *Member
}

// AnyMediaDomain among Input.MediaDomains lets requests link to media on every host.
const AnyMediaDomain = "*"

// Member is one of the machines of a plan.
type Member struct {
	// Rank from 0, the leader's: a number, or a reference such as $(POD_INDEX), replaced by the kubelet.
	Rank string
	// Leader's address, and Workers' in the order of their ranks; for all members the same.
	Leader  string
	Workers []string
}

// LeaderRank is the rank of the serving machine.
const LeaderRank = "0"

// IsWorker reports whether a member is not the leader. Nil serves alone.
func (m *Member) IsWorker() bool { return m != nil && m.Rank != LeaderRank }

// Command is how to start an engine.
type Command struct {
	// Entrypoint replaces the image's; empty keeps it.
	Entrypoint []string
	// Args in order, in exec form. They are literal, except at the indexes in References: there, $(NAME) is a
	// variable of the container.
	Args       []string
	References []int
	// Env in order.
	Env []EnvVar
	// HealthPath answers 200 when the engine can serve; empty for a member without an API.
	HealthPath string
	// OpenPort is the port of such a member once it has started; 0 if it has none.
	OpenPort int
	// BusyMetrics are the gauges at /metrics whose sum is the number of running requests.
	BusyMetrics []string
	// KVEventsPort publishes the events of the KV cache; 0 if the engine publishes none.
	KVEventsPort int
	// SharedMemoryGiB for the engine's processes; 0 if the engine has no requirement.
	SharedMemoryGiB int
	// Weights are the engine's files of the artifact's repository, if the artifact does not list them.
	Weights Selection
	// AdapterFiles are the engine's files of an adapter's repository, below the adapter's path; empty if the path
	// is the file.
	AdapterFiles Selection
	// AdapterNames are the adapters' names at the endpoint.
	AdapterNames []string
	// IgnoresSignals is set if the engine does not end on a signal as process 1 of its container.
	IgnoresSignals bool
	// NoWeights is set if this member reads no files: others send it its layers.
	NoWeights bool
	// Warnings in sentences: requested flags that were dropped or replaced.
	Warnings []string
}

// Selection selects files of a repository by patterns of path.Match.
type Selection struct {
	// Weights must match at least one file; Others may match none.
	Weights, Others []string
	// Except are matching files that are not needed.
	Except []string
}

// EnvVar is one environment variable.
type EnvVar struct{ Name, Value string }

// Setting is one flag with its value, by its name in the catalogue. The value of a bool is "true" or "false";
// blanks separate several values.
type Setting struct{ Name, Value string }
