// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// gpuResource is the resource for GPUs in templates.
const gpuResource = "nvidia.com/gpu"

// ForTemplate returns the request of a checked Workspace with a pod template.
func ForTemplate(ws *v1beta1.Workspace) planner.Request {
	return planner.Request{
		Constraints: Constraints(ws), Template: templateDemand(ws), NodeSource: ws.Resource.EffectiveNodeSource(),
	}
}

// Engines looks up the catalogue's entry of an engine.
type Engines interface {
	Engine(name string) (catalog.Engine, bool)
}

// ForModel returns the request of a checked Workspace with a model. config is the content of its ConfigMap. The error
// is a *RefusedError.
func ForModel(ws *v1beta1.Workspace, m *model.Model, config engine.Config, known Engines) (planner.Request, error) {
	out := planner.Request{
		Model: m, Constraints: Constraints(ws), Objectives: objectives(ws), NodeSource: ws.Resource.EffectiveNodeSource(),
		Adapters: planner.Adapters{Count: len(ws.Inference.Adapters), IsLive: isLive(ws.Inference)},
		Weights:  weightsDisk(ws.Inference.Weights),
	}
	if ws.Inference.Engine != nil {
		out.Engine = ws.Inference.Engine.Name
	}
	data, ok := known.Engine(engineOf(out))
	if !ok {
		return out, nil
	}
	var err error
	out.Constraints.Engine, err = engineSettings(data, config, Args(ws))
	return out, err
}

// engineOf returns the engine that the user's flags are for: the requested engine, else the engine of the model's first
// artifact.
func engineOf(r planner.Request) string {
	if r.Engine != "" || len(r.Model.Artifacts) == 0 {
		return r.Engine
	}
	return r.Model.Artifacts[0].Engine
}

// Constraints returns a checked Workspace's limits on machines.
func Constraints(ws *v1beta1.Workspace) planner.Constraints {
	out := planner.Constraints{InstanceType: ws.Resource.InstanceType}
	if count := ws.Resource.Count; count != nil && *count > 1 {
		out.MaxNodes = *count
	}
	if partition := ws.Resource.Partition; partition != nil {
		out.Slice = partition.Profile // mode accelerator has no profile, and mode mig no count
		if partition.Count != nil {
			out.GPUs = *partition.Count
		}
	}
	if ws.Inference.Engine != nil {
		out.AllowedQuantizations = ws.Inference.Engine.AllowedQuantizations
		out.AllowedKVCacheTypes = ws.Inference.Engine.AllowedKVCacheTypes
	}
	placement := ws.Resource.Placement
	if placement == nil {
		return out
	}
	out.InstanceTypes = placement.InstanceTypes
	out.Accelerators = placement.Accelerators
	out.Zones = placement.Zones
	out.CapacityTypes = placement.CapacityTypes
	out.MaxHourlyPrice = MaxHourlyPrice(ws)
	return out
}

// MaxHourlyPrice returns a Workspace's own limit in USD per hour; 0 if it has none.
func MaxHourlyPrice(ws *v1beta1.Workspace) float64 {
	if ws.Resource.Placement == nil {
		return 0
	}
	// Check saw to it: nothing, or a number above 0.
	limit, _ := strconv.ParseFloat(ws.Resource.Placement.MaxHourlyPrice, 64)
	return limit
}

func objectives(ws *v1beta1.Workspace) planner.Objectives {
	in := ws.Inference.Objectives
	if in == nil {
		return planner.Objectives{}
	}
	out := planner.Objectives{
		MaxModelLen: number(in.MaxModelLen), Concurrency: number(in.Concurrency),
		InputTokens: number(in.InputTokens), OutputTokens: number(in.OutputTokens),
		OptimizeFor: in.OptimizeFor,
	}
	// Check saw to it: nothing, or a number above 0.
	out.RequestsPerSecond, _ = strconv.ParseFloat(in.RequestsPerSecond, 64)
	if in.TimeToFirstToken != nil {
		out.TimeToFirstToken = in.TimeToFirstToken.Duration
	}
	if in.TimePerOutputToken != nil {
		out.TimePerOutputToken = in.TimePerOutputToken.Duration
	}
	return out
}

func number(value *int32) int {
	if value == nil {
		return 0
	}
	return int(*value)
}

// templateDemand returns the template's requirements for each machine.
func templateDemand(ws *v1beta1.Workspace) *planner.TemplateDemand {
	out := &planner.TemplateDemand{Nodes: 1}
	if count := ws.Resource.Count; count != nil && *count > 1 {
		out.Nodes = *count
	}
	for _, container := range ws.Inference.Template.Spec.Containers {
		quantity := container.Resources.Limits[gpuResource]
		out.GPUs += int(quantity.Value())
	}
	return out
}

// Args returns the Workspace's flags for the engine.
func Args(ws *v1beta1.Workspace) map[string]string {
	out := map[string]string{}
	if ws.Inference.Engine != nil {
		for key, value := range ws.Inference.Engine.Args {
			out[key] = string(value)
		}
	}
	return out
}
