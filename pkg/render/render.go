// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render turns an accepted plan into objects for the cluster: pods with the engine's command, and the objects
// around them. The controller applies the result, and the command line shows it.
//
// It decides the engine's package and image for a plan. It must not know planning, the existing objects, or the way
// objects are written.
package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/engine/llamacpp"
	"github.com/modelberth/modelberth/pkg/engine/vllm"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Settings are the installation's settings for rendering.
type Settings struct {
	// Workload shapes pods.
	Workload workload.Settings
	// EngineImages replaces the engines' images by name.
	EngineImages map[string]string
	// EngineRegistry replaces the upstream registry of engines' images, for example registry.example/mirror; empty
	// means upstream.
	EngineRegistry string
	// AllowRemoteCode is set if the administrator allows code from a model's repository.
	AllowRemoteCode bool
	// MediaDomains are the allowed hosts of media linked in requests.
	MediaDomains []string
}

// Input has the inputs of a preset Workspace's pods.
type Input struct {
	Workspace *v1beta1.Workspace
	Model     model.Model
	Plan      planner.Plan
	// Config is the user's ConfigMap.
	Config engine.Config
	// Data is the catalogue's entry of the plan's engine.
	Data catalog.Engine
	// Commits is the name of the ConfigMap with the commit of the weights; empty if there is none.
	Commits  string
	Settings Settings
}

// Rendered has the pods of a Workspace, and the model names at its endpoint.
type Rendered struct {
	// Template of the pods.
	Template corev1.PodTemplateSpec `json:"template"`
	// Worker is the pods' template on all machines but the first; nil if one machine serves alone.
	Worker *corev1.PodTemplateSpec `json:"worker,omitempty"`
	// ServedNames are the model names at the endpoint.
	ServedNames []string `json:"servedNames,omitempty"`
	// KVEventsPort is the port with the KV cache events; 0 if the engine publishes none.
	KVEventsPort int `json:"kvEventsPort,omitempty"`
	// LiveAdapters is set if the pods change their adapters while the engine runs.
	LiveAdapters bool `json:"liveAdapters,omitempty"`
}

// command turns a plan into the command line of one engine.
type command func(engine.Input) (engine.Command, error)

func commands() map[string]command {
	return map[string]command{llamacpp.Name: llamacpp.Command, vllm.Name: vllm.Command}
}

// Engines returns the sorted names of the supported engines.
func Engines() []string { return slices.Sorted(maps.Keys(commands())) }

// Preset returns the pods of a preset Workspace, with warnings about settings that it dropped or replaced. An error
// names the part of the Workspace that it cannot render.
func Preset(in Input) (Rendered, []string, error) {
	render, known := commands()[in.Data.Name]
	if !known {
		return Rendered{}, nil, fmt.Errorf("this version cannot run engine %q", in.Data.Name)
	}
	if err := checkAPIKey(in); err != nil {
		return Rendered{}, nil, err
	}
	env, dropped := environment(in)
	names := engine.ServedNames(in.Model, in.Workspace.Labels[v1beta1.LabelInferenceSet])
	pods := workload.Input{
		Workspace: in.Workspace, Plan: in.Plan, Image: image(in), UserID: in.Data.UserID, Commits: in.Commits,
		APIKeyVariable: in.Data.APIKeyVariable, MemoryBurstGiB: in.Data.MemoryBurstGiB, Settings: in.Settings.Workload,
	}
	pods.Compiled = workload.Compiled(pods, in.Data)
	asked := engine.Input{
		Data: in.Data, Model: in.Model, Plan: in.Plan, ModelDir: workload.ModelPath(in.Workspace), CacheDir: workload.CompileDir(pods),
		Adapters:    workload.Adapters(in.Workspace),
		ServedNames: names, Config: in.Config, Args: request.Args(in.Workspace), Env: env,
		Port: v1beta1.EnginePort, Drain: workload.Drain(in.Workspace), AllowRemoteCode: in.Settings.AllowRemoteCode,
		OwnFiles: in.Workspace.Inference.Weights != nil,
		RDMA:     in.Settings.Workload.ServesRDMA(&in.Plan), PublishKVEvents: in.Settings.Workload.KVEvents.IsNamed(),
		MediaDomains: in.Settings.MediaDomains,
	}
	obstacle := liveObstacle(in)
	isLive := obstacle == "" && in.Workspace.Inference.AdapterUpdates == v1beta1.AdapterUpdatesLive
	if isLive {
		asked.LoopbackPort = loopbackPort
	}
	var err error
	if in.Plan.Nodes > 1 {
		if pods.Worker, err = worker(in, &asked, render); err != nil {
			return Rendered{}, nil, err
		}
	}
	if pods.Engine, err = render(asked); err != nil {
		return Rendered{}, nil, err
	}
	out := Rendered{
		Template: workload.PodTemplate(pods), ServedNames: slices.Concat(names, pods.Engine.AdapterNames),
		KVEventsPort: pods.Engine.KVEventsPort, LiveAdapters: isLive,
	}
	if pods.Worker != nil {
		out.Worker = new(workload.WorkerTemplate(pods))
	}
	return out, slices.Concat(pods.Engine.Warnings, dropped, liveWarnings(in, obstacle)), nil
}

// worker returns the command of a group's members except the leader. It changes asked to the input for the leader.
func worker(in Input, asked *engine.Input, render command) (*engine.Command, error) {
	if problem := workload.GroupNameProblem(in.Workspace.Name); problem != "" {
		return nil, errors.New(problem)
	}
	leader := engine.Member{
		Rank: engine.LeaderRank, Leader: workload.LeaderAddress(in.Workspace),
		Workers: workload.WorkerAddresses(in.Workspace, in.Plan.Nodes),
	}
	other := leader
	other.Rank = workload.Rank
	asked.Member = &other
	out, err := render(*asked)
	asked.Member = &leader
	return &out, err
}

// Template returns the pods of a Workspace with its own template.
func Template(ws *v1beta1.Workspace, plan *planner.Plan) Rendered {
	return Rendered{Template: workload.TemplatePod(ws, plan.NodeNames)}
}

// image returns the user's image, else the administrator's, else the catalogue's from the administrator's registry.
func image(in Input) string {
	if spec := in.Workspace.Inference.Engine; spec != nil && spec.Image != "" {
		return spec.Image
	}
	if replaced := in.Settings.EngineImages[in.Data.Name]; replaced != "" {
		return replaced
	}
	return mirrored(in.Settings.EngineRegistry, in.Data.ImageFor(in.Plan.GPUsPerNode))
}

// mirrored replaces the registry of an image. The path below it stays, because mirrors keep it.
func mirrored(registry, image string) string {
	parsed, err := name.ParseReference(image)
	if registry == "" || err != nil {
		return image
	}
	path := strings.TrimPrefix(image, parsed.Context().RegistryStr()+"/")
	return strings.TrimSuffix(registry, "/") + "/" + strings.TrimPrefix(path, "docker.io/")
}

// checkAPIKey refuses a key that everyone with read access to Workspaces or pods could see. It also refuses a key that
// the engine would ignore.
func checkAPIKey(in Input) error {
	variable, spec := in.Data.APIKeyVariable, in.Workspace.Inference.Engine
	switch {
	case spec == nil:
		return nil
	case spec.APIKeySecret != "" && variable == "":
		return fmt.Errorf("inference.engine.apiKeySecret names Secret %q, but engine %s cannot read a key from its environment: "+
			"remove apiKeySecret, or choose another engine", spec.APIKeySecret, in.Data.Name)
	case variable != "" && slices.ContainsFunc(spec.Env, func(v v1beta1.EngineEnv) bool { return v.Name == variable }):
		return fmt.Errorf("inference.engine.env: %s is refused, because every reader of Workspaces can read its value: "+
			"put the key into a Secret under %s, and name the Secret in inference.engine.apiKeySecret", variable, v1beta1.APIKeyKey)
	default:
		return nil
	}
}

// environment returns the user's variables, with warnings. It drops variables that the pod sets for a member of a
// group, and warns about them.
func environment(in Input) ([]engine.EnvVar, []string) {
	var out []engine.EnvVar
	if in.Workspace.Inference.Engine != nil {
		for _, variable := range in.Workspace.Inference.Engine.Env {
			out = append(out, engine.EnvVar{Name: variable.Name, Value: variable.Value})
		}
	}
	if in.Plan.Nodes == 1 {
		return out, nil
	}
	return engine.WithoutReserved(out, map[string]string{
		workload.PodIndex: "it holds the machine's rank in its group",
	})
}
