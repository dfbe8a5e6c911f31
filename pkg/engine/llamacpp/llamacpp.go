// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package llamacpp renders the command line of llama.cpp's HTTP server, llama-server.
//
// It decides which of the server's flags carry the plan, and how far a user's flags may deviate from it. It must not
// know Kubernetes objects, how the plan was made, or the flags of a version: the catalogue has those.
package llamacpp

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// Name of the engine in the catalogue.
const Name = "llamacpp"

// allLayers exceeds the layers of any model, so every layer goes to the GPUs.
const allLayers = 999

// envPrefix begins the names of variables that set llama-server's flags.
const envPrefix = "LLAMA_ARG_"

// Command returns the command that starts llama-server for a plan.
func Command(in engine.Input) (engine.Command, error) {
	if err := check(in); err != nil {
		return engine.Command{}, err
	}
	users, warnings, err := engine.ResolveUsers(in.Data, in.Config, in.Args)
	if err != nil {
		return engine.Command{}, err
	}
	users, limited := limit(in, users)
	env, hidden := engine.WithoutPrefix(in.Env, envPrefix)
	warnings = slices.Concat(warnings, limited, hidden, adapterWarnings(in))
	if in.Member.IsWorker() {
		return worker(in, env), nil
	}
	return engine.Command{
		Args:       engine.Render(in.Data, engine.Merge(settings(in), users)),
		Env:        env,
		HealthPath: in.Data.HealthPath,
		// BusyMetrics are set even if the user disables the metrics, because the agent detects the engine by them.
		BusyMetrics: in.Data.BusyMetrics,
		Warnings:    append(in.Config.Foreign(in.Data.Name), warnings...),
	}, nil
}

func check(in engine.Input) error {
	switch {
	case in.Plan.Artifact == nil || len(in.Plan.Artifact.Files) == 0:
		return errors.New("rendering llamacpp: the plan names no file of weights")
	case in.Plan.MaxModelLen < 1 || in.Plan.Concurrency < 1:
		return fmt.Errorf("rendering llamacpp: the plan has room for %d sequences of %d tokens", in.Plan.Concurrency, in.Plan.MaxModelLen)
	case len(in.ServedNames) == 0:
		return errors.New("rendering llamacpp: the model has no served name")
	case in.Plan.Nodes > 1 && len(in.Data.WorkerCommand) == 0:
		return fmt.Errorf("rendering llamacpp: the plan has %d machines, but the engine has no workerCommand: "+
			"set it in engineOverrides of a catalogue file", in.Plan.Nodes)
	case in.Plan.Nodes > 1 && (in.Member == nil || len(in.Member.Workers) != in.Plan.Nodes-1):
		return fmt.Errorf("rendering llamacpp: the plan has %d machines: name the member to render, and %d workers", in.Plan.Nodes, in.Plan.Nodes-1)
	}
	return checkAdapters(in)
}

// settings returns the flags for the plan, in reading order.
func settings(in engine.Input) []engine.Setting {
	plan := in.Plan
	layers := 0
	if plan.GPUsPerNode > 0 {
		layers = allLayers
	}
	list := []engine.Setting{
		{Name: "model", Value: path.Join(in.ModelDir, plan.Artifact.Files[0].Path)},
		// Only the first name. With several, the server lists the first in sorted order, not in the given order. It
		// answers requests for any name, listed or not.
		{Name: "alias", Value: in.ServedNames[0]},
		{Name: "host", Value: "0.0.0.0"},
		{Name: "port", Value: strconv.Itoa(in.Port)},
		// ctx-size is the context of all sequences together: the server gives each an equal share.
		{Name: "ctx-size", Value: strconv.Itoa(context(plan))},
		{Name: "parallel", Value: strconv.Itoa(plan.Concurrency)},
		{Name: "n-gpu-layers", Value: strconv.Itoa(layers)},
	}
	if plan.Nodes > 1 {
		list = append(list, engine.Setting{Name: "rpc", Value: strings.Join(endpoints(in.Member.Workers), ",")})
	}
	if plan.GPUsPerNode > 1 || plan.Nodes > 1 {
		list = append(list, engine.Setting{Name: "split-mode", Value: "layer"})
	}
	// The plan has checked the memory. Without this flag, the server would shrink settings that it was not given.
	list = append(list, engine.Setting{Name: "fit", Value: "off"})
	if plan.GPUsPerNode == 0 {
		// Without GPUs, the weights and the KV cache already are in main memory, and the plan has no more of it. With
		// GPUs, the server's default cache of prompts fits into the machine's memory.
		list = append(list, engine.Setting{Name: "cache-ram", Value: "0"})
	}
	list = append(list, adapters(in)...)
	return append(list,
		engine.Setting{Name: "metrics", Value: "true"},
		engine.Setting{Name: "jinja", Value: "true"})
}

func context(plan planner.Plan) int {
	return plan.MaxModelLen * plan.Concurrency
}

// limit drops settings that need more memory than planned, with a warning and the remedy.
func limit(in engine.Input, users []engine.Setting) ([]engine.Setting, []string) {
	var kept []engine.Setting
	var warnings []string
	for _, setting := range users {
		if objection := objection(in, setting); objection != "" {
			warnings = append(warnings, objection)
			continue
		}
		kept = append(kept, setting)
	}
	return kept, append(warnings, shares(in.Plan, kept)...)
}

func objection(in engine.Input, setting engine.Setting) string {
	number, _ := strconv.Atoi(setting.Value)
	switch setting.Name {
	case "ctx-size":
		// 0 means the model's whole context.
		if number <= 0 || number > context(in.Plan) {
			return fmt.Sprintf("flag ctx-size: %d is used instead of %d, because the plan has no memory for more: "+
				"to plan for more, set inference.objectives.maxModelLen and .concurrency",
				context(in.Plan), number)
		}
	case "ubatch-size":
		if number > in.Data.Memory.BatchTokens {
			return fmt.Sprintf("flag ubatch-size: %d is used instead of %d, because the plan has no memory for more",
				in.Data.Memory.BatchTokens, number)
		}
	case "cache-type-k", "cache-type-v":
		if setting.Value == "f32" {
			return fmt.Sprintf("flag %s: f32 is ignored, because it needs twice the planned memory", setting.Name)
		}
	}
	return ""
}

// shares warns if the user's flags leave each sequence less context than planned.
func shares(plan planner.Plan, users []engine.Setting) []string {
	size, sequences := context(plan), plan.Concurrency
	for _, setting := range users {
		number, _ := strconv.Atoi(setting.Value)
		switch setting.Name {
		case "ctx-size":
			size = number
		case "parallel":
			sequences = number
		case "kv-unified":
			if setting.Value == "true" {
				// There is one pool, and each sequence may use all of it.
				return nil
			}
		}
	}
	if sequences < 1 || size/sequences >= plan.MaxModelLen {
		return nil
	}
	return []string{fmt.Sprintf("flags ctx-size %d and parallel %d leave %d of the planned %d tokens for each sequence: "+
		"set inference.objectives.maxModelLen and .concurrency instead",
		size, sequences, size/sequences, plan.MaxModelLen)}
}
