// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine turns a plan into the command line of an inference server: ordered flags in exec
// form, environment and probe path. One package below it per engine.
//
// It decides flags: which of the user's are legal for the engine's version, which win, and what the
// rest deserve (a warning or an error). It must not know Kubernetes objects, machines' prices or how
// weights arrive.
package engine

import (
	"time"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input is what a command line is made from.
type Input struct {
	// Data is what the catalogue says about the engine, Model what it says about the model.
	Data  catalog.Engine
	Model model.Model
	Plan  planner.Plan
	// ModelDir is where the artifact's files lie, CacheDir where the engine may keep what it compiles;
	// an empty CacheDir leaves the place to the engine.
	ModelDir, CacheDir string
	// Adapters to serve beside the model.
	Adapters []Adapter
	// ServedNames are the names that the endpoint answers to, the first one first.
	ServedNames []string
	// Config is the user's ConfigMap, Args are the flags of inference.engine.args; Args win.
	Config Config
	Args   map[string]string
	// Env are the variables of inference.engine.env, in order.
	Env []EnvVar
	// Port to listen on.
	Port int
	// Drain is how long answers under way may take once the engine is told to end; 0 cuts them off.
	Drain time.Duration
	// AllowRemoteCode says that the administrator lets a model's repository bring code.
	AllowRemoteCode bool
	// OwnFiles says that the user put the model's files on a volume or into an image, so that the hub's repository
	// brings nothing.
	OwnFiles bool
	// PublishKVEvents says that the administrator has named a consumer of the events of the KV cache.
	PublishKVEvents bool
	// MediaDomains are the hosts that images, audio and video are fetched from when a request links to them; empty
	// means none, AnyMediaDomain all.
	MediaDomains []string
	// RDMA says that the pods get a device by which machines reach each other past the ordinary network.
	RDMA bool
	// Member is which one of several machines that serve together this command is for; nil for one that
	// serves alone.
	Member *Member
}

// AnyMediaDomain among Input.MediaDomains lets requests link to media on every host.
const AnyMediaDomain = "*"

// Member is one of the machines of a plan.
type Member struct {
	// Rank from 0, the leader's: a number, or a reference such as $(POD_INDEX) that the kubelet replaces.
	Rank string
	// Leader's address, and Workers' in the order of their ranks; for all members the same.
	Leader  string
	Workers []string
}

// LeaderRank is the rank of the machine that serves.
const LeaderRank = "0"

// IsWorker says whether a member is not the one that serves. Nil is one that serves alone.
func (m *Member) IsWorker() bool { return m != nil && m.Rank != LeaderRank }

// Command is how to start an engine.
type Command struct {
	// Entrypoint in place of the image's; empty keeps that one.
	Entrypoint []string
	// Args in order, in exec form. Everything in them is meant as it is written, but for those at the indexes
	// that References lists: there, $(NAME) stands for a variable of the container.
	Args       []string
	References []int
	// Env in order.
	Env []EnvVar
	// HealthPath answers 200 when the engine can serve; empty for a member that serves nobody.
	HealthPath string
	// OpenPort is what such a member listens on once it has started; 0 where it listens nowhere.
	OpenPort int
	// BusyMetrics are the gauges at /metrics whose sum is the number of requests under way.
	BusyMetrics []string
	// KVEventsPort publishes the events of the KV cache; 0 where the engine publishes none.
	KVEventsPort int
	// SharedMemoryGiB that the engine's processes need; 0 where the engine has no opinion.
	SharedMemoryGiB int
	// Weights are the files of the artifact's repository that the engine loads, where the artifact does
	// not list them.
	Weights Selection
	// AdapterFiles are those of an adapter's repository that the engine loads, below the adapter's path; empty
	// where the path is the file.
	AdapterFiles Selection
	// AdapterNames are those that the endpoint answers to beside the model's.
	AdapterNames []string
	// IgnoresSignals says that it does not end when it is told to where it is process 1 of its container.
	IgnoresSignals bool
	// NoWeights says that this member reads no files: others send it what it holds.
	NoWeights bool
	// Warnings in sentences: flags that were asked for and dropped or replaced.
	Warnings []string
}

// Selection says which files of a repository are needed, by patterns of the form that path.Match knows.
type Selection struct {
	// Weights must match at least one file; Others may match none.
	Weights, Others []string
	// Except are files that are not needed although they match.
	Except []string
}

// EnvVar is one environment variable.
type EnvVar struct{ Name, Value string }

// Setting is one flag with its value, by the name that the catalogue lists it under. The value of a
// bool is "true" or "false"; several values are separated by blanks.
type Setting struct{ Name, Value string }
