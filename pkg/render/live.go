// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// loopbackPort is the port of an engine whose clients reach it through the agent.
const loopbackPort = v1beta1.EnginePort + 1

// liveObstacle explains why the adapters of a Workspace cannot change while its engine runs; empty if they can.
func liveObstacle(in Input) string {
	spec := in.Workspace.Inference
	switch {
	case !in.Data.RuntimeAdapters:
		return fmt.Sprintf("engine %s loads adapters only when it starts", in.Data.Name)
	case in.Plan.Nodes > 1:
		return fmt.Sprintf("the model runs on %d machines", in.Plan.Nodes)
	case in.Plan.DataParallel > 1:
		return fmt.Sprintf("the pod runs %d replicas of the model", in.Plan.DataParallel)
	case spec.Engine != nil && spec.Engine.Image != "":
		return "inference.engine.image may be a version that mixes up adapters: remove it"
	}
	return workload.LiveObstacle(spec.Adapters)
}

// liveWarnings warns if the adapters cannot change as requested.
func liveWarnings(in Input, obstacle string) []string {
	if obstacle == "" || in.Workspace.Inference.AdapterUpdates != v1beta1.AdapterUpdatesLive {
		return nil
	}
	return []string{"inference.adapterUpdates: a change of adapters replaces the pods, because " + strings.TrimSuffix(obstacle, ".")}
}
