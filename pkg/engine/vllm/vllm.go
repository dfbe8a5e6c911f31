// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vllm renders the command line of vLLM's OpenAI-compatible server, vllm serve.
//
// It decides which of the server's flags and variables carry the plan, and how far a user's flags may deviate from it.
// It must not know Kubernetes objects, how the plan was made, or the flags of a version: the catalogue has those.
package vllm

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Name of the engine in the catalogue.
const Name = "vllm"

// kvEventsPort is the port of the KV cache's events, the server's own default. Each further replica uses a higher port
// of its own.
const kvEventsPort = 5557

// Command returns the command that starts vllm serve for a plan. The image's entrypoint is vllm serve itself, so the
// first argument is the model.
func Command(in engine.Input) (engine.Command, error) {
	if err := check(in); err != nil {
		return engine.Command{}, err
	}
	users, warnings, err := engine.ResolveUsers(in.Data, in.Config, in.Args)
	if err != nil {
		return engine.Command{}, err
	}
	if err := checkDashes(in.Data, users); err != nil {
		return engine.Command{}, err
	}
	users, limited := limit(in, users)
	settings := forRank(in, engine.Merge(settings(in), users))
	if err := checkTogether(settings); err != nil {
		return engine.Command{}, err
	}
	env, hidden := engine.WithoutReserved(in.Env, reservedEnv())
	command := engine.Command{
		Args:            append([]string{in.ModelDir}, engine.Render(in.Data, settings)...),
		References:      rankAt(in.Data, settings),
		Env:             engine.MergeEnv(environment(in), env),
		SharedMemoryGiB: sharedMemory(in.Plan, settings),
		Weights:         weights(in),
		AdapterFiles:    adapterFiles(),
		AdapterNames:    adapterNames(in),
		LoopbackPort:    in.LoopbackPort,
		Warnings:        append(append(in.Config.Foreign(in.Data.Name), warnings...), append(limited, hidden...)...),
	}
	if !in.Member.IsWorker() {
		command.HealthPath, command.BusyMetrics = in.Data.HealthPath, in.Data.BusyMetrics
		if in.PublishKVEvents {
			command.KVEventsPort = kvEventsPort
		}
	}
	return command, nil
}

// rankAt returns the index of the member's rank in the arguments, because the rank may be a reference. It returns none
// for a member that serves alone. No user can set that flag.
func rankAt(data catalog.Engine, settings []engine.Setting) []int {
	at := slices.IndexFunc(settings, func(s engine.Setting) bool { return s.Name == "node-rank" })
	if at < 0 {
		return nil
	}
	const model, flag = 1, 1 // arguments before the settings, and before the flag's value
	return []int{model + len(engine.Render(data, settings[:at])) + flag}
}

func check(in engine.Input) error {
	plan := in.Plan
	switch {
	case plan.Artifact == nil || plan.Artifact.Repo == "":
		return errors.New("rendering vllm: the plan names no weights")
	case len(in.ServedNames) == 0:
		return errors.New("rendering vllm: the model has no served name")
	case plan.Nodes > 1 && in.Member == nil:
		return fmt.Errorf("rendering vllm: the plan has %d machines: name the member to render", plan.Nodes)
	case plan.Nodes > 1 && plan.DataParallel > 1:
		return fmt.Errorf("rendering vllm: the plan has %d replicas on %d machines, which this version cannot start", plan.DataParallel, plan.Nodes)
	case in.Model.RemoteCode && !in.AllowRemoteCode:
		return fmt.Errorf("inference.preset.name: %s runs code from its repository, and this installation does not allow that: "+
			"ask the administrator to allow remote code, or choose another model", in.Model.Name)
	case in.Model.RemoteCode && !in.OwnFiles && !plan.Artifact.IsPinned():
		return fmt.Errorf("inference.preset.name: %s runs code from %s at revision %q, and that revision can change: "+
			"ask the administrator to name a commit as the artifact's revision in the catalogue, or to turn on hub.describe, which pins one",
			in.Model.Name, plan.Artifact.Repo, cmp.Or(plan.Artifact.Revision, "main"))
	}
	if err := checkLayout(plan); err != nil {
		return err
	}
	if err := checkAdapters(in); err != nil {
		return err
	}
	return checkSizes(plan)
}

func checkLayout(plan planner.Plan) error {
	switch {
	case plan.GPUsPerNode < 1:
		return errors.New("rendering vllm: the plan has no GPU")
	case min(plan.TensorParallel, plan.PipelineParallel, plan.DataParallel) < 1:
		return fmt.Errorf("rendering vllm: the plan has tensor, pipeline and data parallelism %d, %d and %d: each must be at least 1",
			plan.TensorParallel, plan.PipelineParallel, plan.DataParallel)
	case len(plan.StageLayers) > 0 && len(plan.StageLayers) != plan.PipelineParallel:
		return fmt.Errorf("rendering vllm: the plan divides the layers over %d stages and has %d stages", len(plan.StageLayers), plan.PipelineParallel)
	}
	return nil
}

func checkSizes(plan planner.Plan) error {
	switch {
	case min(plan.MaxModelLen, plan.MaxNumSeqs, plan.MaxBatchedTokens) < 1:
		return fmt.Errorf("rendering vllm: the plan has room for %d sequences of %d tokens in batches of %d",
			plan.MaxNumSeqs, plan.MaxModelLen, plan.MaxBatchedTokens)
	case plan.GPUMemoryUtilization <= 0 || plan.GPUMemoryUtilization > 1:
		return fmt.Errorf("rendering vllm: the plan uses %v of the GPUs' memory", plan.GPUMemoryUtilization)
	}
	return nil
}

// environment returns the server's variables.
func environment(in engine.Input) []engine.EnvVar {
	env := []engine.EnvVar{
		// The weights are on the volume, so the server need not look up or fetch anything.
		{Name: "HF_HUB_OFFLINE", Value: "1"},
		{Name: "VLLM_NO_USAGE_STATS", Value: "1"},
		// torch needs a user name, and an image may have none for the user id.
		{Name: "USER", Value: "vllm"},
	}
	if !slices.Contains(in.MediaDomains, engine.AnyMediaDomain) {
		// The server checks the domain of a link, but not of a redirect.
		env = append(env, engine.EnvVar{Name: "VLLM_MEDIA_URL_ALLOW_REDIRECTS", Value: "0"})
	}
	if in.LoopbackPort > 0 {
		env = append(env, engine.EnvVar{Name: runtimeEnv, Value: "1"})
	}
	if in.CacheDir != "" {
		for _, cache := range in.Data.CompileCaches {
			env = append(env, engine.EnvVar{Name: cache.Variable, Value: path.Join(in.CacheDir, cache.Directory)})
		}
	}
	if in.Plan.Nodes > 1 && !in.RDMA {
		// NCCL finds the host's adapters even if the pod has no device to open them.
		env = append(env, engine.EnvVar{Name: "NCCL_IB_DISABLE", Value: "1"})
	}
	if len(in.Plan.StageLayers) > 1 {
		env = append(env, engine.EnvVar{Name: partitionEnv, Value: joinInts(in.Plan.StageLayers)})
	}
	return env
}

// runtimeEnv opens the routes that load and unload adapters.
const runtimeEnv = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"

// partitionEnv sets the number of layers of each pipeline stage.
const partitionEnv = "VLLM_PP_LAYER_PARTITION"

// reservedEnv returns the variables that would bypass the checks of flags, each with its reason.
func reservedEnv() map[string]string {
	const (
		plan    = "the plan decides how the model spreads over machines and GPUs"
		service = "the Service and the probes rely on its value"
		routes  = "it opens routes that let every client control the server"
		code    = "it makes the server run code from outside its image"
	)
	return map[string]string{
		partitionEnv:                        plan,
		"CUDA_VISIBLE_DEVICES":              plan,
		"VLLM_PORT":                         service,
		"VLLM_HOST_IP":                      service,
		"VLLM_SERVER_DEV_MODE":              routes,
		runtimeEnv:                          routes,
		"VLLM_ALLOW_INSECURE_SERIALIZATION": code,
		"VLLM_PLUGINS":                      code,
		"VLLM_ALLOW_LONG_MAX_MODEL_LEN":     "the plan decides what fits into memory",
		"VLLM_USE_MODELSCOPE":               "the weights are the files that Modelberth fetched and verified",
	}
}

func joinInts(list []int) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}
