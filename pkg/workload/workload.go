// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload builds the Kubernetes objects that serve a Workspace: pod template, StatefulSet
// and Services. Every builder returns the whole desired object every time, from the Workspace, its
// plan and the engine's command, and the same input gives the same bytes.
//
// It decides objects. It must not know clients, clusters or what exists already.
package workload

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input is what the objects of a preset Workspace are made from. For a Workspace with a template of
// its own only the Workspace is read.
type Input struct {
	Workspace *v1beta1.Workspace
	Plan      planner.Plan
	// Engine is the command of the inference server.
	Engine engine.Command
	// Worker is the command of the machines but the first; nil where one serves alone.
	Worker *engine.Command
	// Peers selects the pods that the NetworkPolicy admits to all ports; nil where one pod serves alone.
	Peers map[string]string
	// Image and UserID of the engine.
	Image  string
	UserID int64
	// APIKeyVariable is the environment variable that the engine reads the key of its endpoint from; empty where it
	// reads none.
	APIKeyVariable string
	// Commits is the name of the ConfigMap that keeps which commit the weights are at; empty where nobody does.
	Commits string
	// Compiled is the directory of the cache for what the engine compiles; empty where nothing of it is kept.
	Compiled string
	// MemoryBurstGiB is what the engine may use above its request on a node that it shares.
	MemoryBurstGiB int
	// Settings of the installation.
	Settings Settings
}

// Settings of the installation that shape pods.
type Settings struct {
	// AgentImage is the image of modelberth-agent.
	AgentImage string
	// HubEndpoint is the URL of the Hugging Face-compatible hub; empty means the agent's default.
	HubEndpoint string
	// ImagePullPolicy of our images and the engine's; empty means the cluster's default.
	ImagePullPolicy string
	// RDMA is what pods of a group request to reach each other by.
	RDMA RDMA
	// Weights says how pods come by the files of models.
	Weights Weights
	// SharedNodes says that nodes which are brought for pending pods may run pods of others, too.
	SharedNodes bool
	// HoldGroups has the engines of groups wait until the controller has found them isolated.
	HoldGroups bool
	// KVEvents is who may read the events of the KV cache.
	KVEvents Consumer
	// Egress is all that pods of presets may reach besides DNS and each other; empty means everything but cloud
	// metadata.
	Egress []Destination
}

// servesKVEvents reports whether the engine publishes events of the KV cache to a named consumer.
func (in *Input) servesKVEvents() bool {
	return in.Engine.KVEventsPort > 0 && in.Settings.KVEvents.IsNamed()
}

// RDMA is the resource that a device plugin announces for RDMA between machines.
type RDMA struct {
	// Resource is its name; empty where pods get none.
	Resource string
	// Count of it that each pod requests.
	Count int
}

// ServesRDMA says whether the pods of a plan get a device for RDMA.
func (s Settings) ServesRDMA(plan *planner.Plan) bool { return s.RDMA.Resource != "" && plan.RDMA }

// ModelDir is where the weights are mounted in the engine's container.
const ModelDir = "/models"

// ConfigDir is where the user's ConfigMap is mounted in the engine's container.
const ConfigDir = "/mnt/config"

// WeightsContainer is the name of the sidecar that fetches the weights. The engine's container is
// named after the Workspace.
const WeightsContainer = "weights"
