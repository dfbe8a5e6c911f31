// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload builds the Kubernetes objects of a Workspace: pod template, StatefulSet and Services. Every function
// returns a whole object, from the Workspace, its plan and the engine's command. The same input gives the same bytes.
//
// It decides what the objects contain. It must not know clients, clusters or existing objects.
package workload

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input has the inputs for a preset Workspace's objects. For a Workspace with a template, only the field Workspace is
// used.
type Input struct {
	Workspace *v1beta1.Workspace
	Plan      planner.Plan
	// Engine is the command of the inference server.
	Engine engine.Command
	// Worker is the engine's command on all machines except the first; nil if one machine serves alone.
	Worker *engine.Command
	// Peers selects the pods that the NetworkPolicy allows on all ports; nil if one pod serves alone.
	Peers map[string]string
	// Image and UserID are the engine's image and the user that it runs as.
	Image  string
	UserID int64
	// APIKeyVariable is the environment variable from which the engine reads the key of its endpoint; empty if it has
	// none.
	APIKeyVariable string
	// Commits is the name of the ConfigMap for the commit of the weights; empty if there is none.
	Commits string
	// Compiled is the directory in the cache for the engine's compiled code; empty if the code is not kept.
	Compiled string
	// MemoryBurstGiB is how much memory the engine may use above its request on a shared node, in GiB.
	MemoryBurstGiB int
	// Settings are the settings of the installation.
	Settings Settings
}

// Settings are the installation's settings for pods.
type Settings struct {
	// AgentImage is the image of modelberth-agent.
	AgentImage string
	// HubEndpoint is the URL of the Hugging Face-compatible hub; empty means the agent's default.
	HubEndpoint string
	// ImagePullPolicy is the pull policy of our images and the engine's; empty means the cluster's default.
	ImagePullPolicy string
	// RDMA is the resource for RDMA between the pods of a group.
	RDMA RDMA
	// Weights are the settings for how pods get model files.
	Weights Weights
	// SharedNodes is set if other pods may run on nodes that are added for pending pods.
	SharedNodes bool
	// HoldGroups makes the engines of groups wait until the controller has found them isolated.
	HoldGroups bool
	// KVEvents is the consumer of KV cache events.
	KVEvents Consumer
	// Egress is where the pods of presets may connect to, besides DNS and each other. If it is empty, they may connect to
	// everything except cloud metadata.
	Egress []Destination
}

// servesKVEvents reports whether the engine publishes KV cache events to a named consumer.
func (in *Input) servesKVEvents() bool {
	return in.Engine.KVEventsPort > 0 && in.Settings.KVEvents.IsNamed()
}

// RDMA is the resource of a device plugin for RDMA between machines.
type RDMA struct {
	// Resource is the name of the resource; empty if pods get none.
	Resource string
	// Count is the number of devices in each pod's request.
	Count int
}

// ServesRDMA reports whether the pods of a plan get RDMA devices.
func (s Settings) ServesRDMA(plan *planner.Plan) bool { return s.RDMA.Resource != "" && plan.RDMA }

// ModelDir is where the engine's container mounts the weights.
const ModelDir = "/models"

// ConfigDir is where the engine's container mounts the user's ConfigMap.
const ConfigDir = "/mnt/config"

// WeightsContainer returns the name of the sidecar that fetches the weights in the pods of a Workspace.
func WeightsContainer(workspace string) string { return agentContainer(workspace, "weights") }

// agentContainer returns the name of an agent's container. It must differ from that of the engine's container, which
// has the Workspace's name.
func agentContainer(workspace, name string) string {
	if name == workspace {
		return name + "-agent"
	}
	return name
}

// isGroup reports whether several machines serve the model.
func (in Input) isGroup() bool { return in.Worker != nil }

// holds reports whether the engine waits until the controller finds its group isolated.
func (in Input) holds() bool { return in.isGroup() && in.Settings.HoldGroups }
