// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"math"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
)

// The server's processes and NCCL exchange requests and tensors through shared memory. The sizes make at least 1 GiB
// per GPU, and 10 GiB for eight, as is usual elsewhere.
const (
	sharedBaseGiB   = 2
	sharedPerGPUGiB = 1
	// mmCacheGiB is the server's default of mm-processor-cache-gb.
	mmCacheGiB = 4
)

func sharedMemory(plan planner.Plan, settings []engine.Setting) int {
	size := sharedBaseGiB + sharedPerGPUGiB*plan.GPUsPerNode
	inShared, cache := false, float64(mmCacheGiB)
	for _, setting := range settings {
		switch setting.Name {
		case "mm-processor-cache-type":
			inShared = setting.Value == "shm"
		case "mm-processor-cache-gb":
			// Resolve has checked that this is a number.
			cache, _ = strconv.ParseFloat(setting.Value, 64)
		}
	}
	if inShared && cache > 0 && cache < 1<<20 {
		size += int(math.Ceil(cache))
	}
	return size
}

// weights selects the server's files of a Hugging Face repository: those beside config.json. Directories have originals
// and other formats.
func weights(in engine.Input) engine.Selection {
	if len(in.Plan.Artifact.Files) > 0 {
		return engine.Selection{}
	}
	selection := engine.Selection{
		Weights: []string{"*.safetensors"},
		// These are the configuration, indexes, tokenizers and chat templates.
		Others: []string{"*.json", "*.jinja", "*.model", "*.model.v*", "*.tiktoken", "*.txt"},
		// These are the same weights again, by Mistral's names.
		Except: []string{"consolidated*"},
	}
	if slices.ContainsFunc(in.Plan.Artifact.Flags, func(f model.Flag) bool { return f.Name == "load-format" && f.Value == "mistral" }) {
		selection.Weights, selection.Except = []string{"consolidated*.safetensors"}, nil
	}
	if in.Model.RemoteCode {
		selection.Others = append(selection.Others, "*.py")
	}
	return selection
}
