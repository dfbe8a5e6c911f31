// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine turns a plan into the command line of an inference server: ordered flags in exec form, environment and
// probe path. Each engine has a package below it.
//
// It decides about the user's flags: are they valid for the engine's version, do they take precedence, and do the
// others lead to a warning or an error? It must not know Kubernetes objects, prices of machines or the transport of
// weights.
package engine

import (
	"time"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input is the input for a command line.
type Input struct {
	// Data is the catalogue's entry for the engine.
	Data  catalog.Engine
	Model model.Model
	Plan  planner.Plan
	// ModelDir has the artifact's files. CacheDir is for the engine's compiled code; if it is empty, the engine chooses
	// a place.
	ModelDir, CacheDir string
	// Adapters to serve with the model.
	Adapters []Adapter
	// LoopbackPort: the engine listens only on this port of the loopback interface, and the pod's agent loads the adapters
	// while it runs; 0 if clients reach the engine, and Adapters are all that it ever serves.
	LoopbackPort int
	// ServedNames are the model's names at the endpoint, the main one first.
	ServedNames []string
	// Config is the user's ConfigMap, and Args are the flags of inference.engine.args, which take precedence.
	Config Config
	Args   map[string]string
	// Env are the variables of inference.engine.env, in order.
	Env []EnvVar
	// Port to listen on.
	Port int
	// Drain is the time that running requests get after the engine's stop signal; 0 cuts them off.
	Drain time.Duration
	// AllowRemoteCode: the administrator allows code from a model's repository.
	AllowRemoteCode bool
	// OwnFiles: the user put the model's files on a volume or into an image, so the hub's repository is not used.
	OwnFiles bool
	// PublishKVEvents: the administrator named a consumer of the KV cache's events.
	PublishKVEvents bool
	// MediaDomains are the hosts that links to images, audio and video may name; empty means none, AnyMediaDomain all.
	MediaDomains []string
	// RDMA: the pods get a device for RDMA between machines.
	RDMA bool
	// Member is this command's machine in a group; nil without a group.
	Member *Member
}

// AnyMediaDomain in Input.MediaDomains lets requests link to media on every host.
const AnyMediaDomain = "*"

// Member is one machine of a group.
type Member struct {
	// Rank counts from 0, the leader's. It is a number, or a reference such as $(POD_INDEX) that the kubelet replaces.
	Rank string
	// Leader is the leader's address. Workers are the others' addresses by rank. All members have the same.
	Leader  string
	Workers []string
}

// LeaderRank is the rank of the machine that answers requests.
const LeaderRank = "0"

// IsWorker reports whether m is a member but not the leader. A nil member serves alone.
func (m *Member) IsWorker() bool { return m != nil && m.Rank != LeaderRank }

// Command starts an engine.
type Command struct {
	// Entrypoint replaces the image's; empty keeps it.
	Entrypoint []string
	// Args are in order, in exec form. They are literal, except at the indexes in References: there, $(NAME) is a
	// variable of the container.
	Args       []string
	References []int
	// Env is in order.
	Env []EnvVar
	// HealthPath answers 200 when the engine can serve; empty for a member without an API.
	HealthPath string
	// OpenPort is the port that a member without an API opens when it has started; 0 if there is none.
	OpenPort int
	// BusyMetrics are the gauges at /metrics whose sum is the number of running requests.
	BusyMetrics []string
	// KVEventsPort is the port with the events of the KV cache; 0 if the engine publishes none.
	KVEventsPort int
	// SharedMemoryGiB is the shared memory that the engine's processes need; 0 if the engine has no requirement.
	SharedMemoryGiB int
	// Weights selects the engine's files of the artifact's repository, if the artifact does not list them.
	Weights Selection
	// AdapterFiles selects the engine's files of an adapter's repository, below the adapter's path; empty if the path
	// is the file.
	AdapterFiles Selection
	// LoopbackPort is Input.LoopbackPort.
	LoopbackPort int
	// AdapterNames are the adapters' names at the endpoint.
	AdapterNames []string
	// IgnoresSignals: as process 1 of its container, the engine does not end on a signal.
	IgnoresSignals bool
	// NoWeights: this member reads no files, because the leader sends it its layers.
	NoWeights bool
	// Warnings are sentences about requested flags that were dropped or replaced.
	Warnings []string
}

// Selection selects files of a repository, by patterns of path.Match.
type Selection struct {
	// Weights must match at least one file; Others may match none.
	Weights, Others []string
	// Except are files that match but are not needed.
	Except []string
}

// EnvVar is one environment variable.
type EnvVar struct{ Name, Value string }

// Setting is one flag by its name in the catalogue, with its value. The value of a bool is "true" or "false". Spaces
// separate several values.
type Setting struct{ Name, Value string }
