// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload builds the Kubernetes objects of a Workspace: pod template, StatefulSet and Services. Every
// builder returns the whole desired object every time, from the Workspace, its plan and the engine's command, and
// the same input gives the same bytes.
//
// It decides objects. It must not know clients, clusters or existing objects.
package workload

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Input has the inputs of a preset Workspace's objects. For a Workspace with a template, only the Workspace is
// read.
type Input struct {
	Workspace *v1beta1.Workspace
	Plan      planner.Plan
	// Engine is the command of the inference server.
	Engine engine.Command
	// Worker is the command of the machines but the first; nil if one serves alone.
	Worker *engine.Command
	// Peers selects the pods that the NetworkPolicy admits to all ports; nil if one pod serves alone.
	Peers map[string]string
	// Image and UserID of the engine.
	Image  string
	UserID int64
	// APIKeyVariable is the engine's environment variable for the key of its endpoint; empty if it has none.
	APIKeyVariable string
	// Commits is the name of the ConfigMap with the commit of the weights; empty if there is none.
	Commits string
	// Compiled is the cache's directory for the engine's compiled code; empty if it is not kept.
	Compiled string
	// MemoryBurstGiB is the engine's allowance above its request on a shared node.
	MemoryBurstGiB int
	// Settings of the installation.
	Settings Settings
}

// Settings of the installation for pods.
type Settings struct {
	// AgentImage is the image of modelberth-agent.
	AgentImage string
	// HubEndpoint is the URL of the Hugging Face-compatible hub; empty means the agent's default.
	HubEndpoint string
	// ImagePullPolicy of our images and the engine's; empty means the cluster's default.
	ImagePullPolicy string
	// RDMA is the resource for direct access between the pods of a group.
	RDMA RDMA
	// Weights reports how pods come by the files of models.
	Weights Weights
	// SharedNodes is set if nodes added for pending pods may run other pods, too.
	SharedNodes bool
	// HoldGroups has the engines of groups wait until the controller has found them isolated.
	HoldGroups bool
	// KVEvents is the consumer of the KV cache's events.
	KVEvents Consumer
	// Egress is the allowed egress of presets' pods besides DNS and each other; empty means everything but cloud
	// metadata.
	Egress []Destination
}

// servesKVEvents reports whether the engine publishes events of the KV cache to a named consumer.
func (in *Input) servesKVEvents() bool {
	return in.Engine.KVEventsPort > 0 && in.Settings.KVEvents.IsNamed()
}

// RDMA is a device plugin's resource for RDMA between machines.
type RDMA struct {
	// Resource is its name; empty if pods get none.
	Resource string
	// Count in each pod's request.
	Count int
}

// ServesRDMA reports whether the pods of a plan get a device for RDMA.
func (s Settings) ServesRDMA(plan *planner.Plan) bool { return s.RDMA.Resource != "" && plan.RDMA }

// ModelDir is the mount of the weights in the engine's container.
const ModelDir = "/models"

// ConfigDir is the mount of the user's ConfigMap in the engine's container.
const ConfigDir = "/mnt/config"

// WeightsContainer is the name of the sidecar that fetches the weights in the pods of a Workspace.
func WeightsContainer(workspace string) string { return agentContainer(workspace, "weights") }

// agentContainer avoids the name of the engine's container, which is the Workspace's: names in a pod are unique.
func agentContainer(workspace, name string) string {
	if name == workspace {
		return name + "-agent"
	}
	return name
}

// isGroup reports whether several machines serve the model.
func (in Input) isGroup() bool { return in.Worker != nil }

// holds reports whether the engine waits until its group is found isolated.
func (in Input) holds() bool { return in.isGroup() && in.Settings.HoldGroups }
