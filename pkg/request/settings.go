// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"strconv"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// engineSettings returns the flags that a plan depends on. Flags of the Workspace take precedence over flags of the
// ConfigMap. Only engines with tensor parallelism and a memory profile have such flags.
func engineSettings(data catalog.Engine, config engine.Config, args map[string]string) (planner.EngineSettings, error) {
	if data.Split != catalog.SplitTensor {
		return planner.EngineSettings{}, nil
	}
	settings, _, err := engine.ResolveUsers(data, config, args)
	if err != nil {
		return planner.EngineSettings{}, invalid(err.Error())
	}
	var out planner.EngineSettings
	whole := map[string]*int{
		"max-model-len": &out.MaxModelLen, "max-num-seqs": &out.MaxNumSeqs,
		"max-num-batched-tokens": &out.MaxBatchedTokens,
		"tensor-parallel-size":   &out.TensorParallel, "pipeline-parallel-size": &out.PipelineParallel,
		"data-parallel-size": &out.DataParallel, "decode-context-parallel-size": &out.ContextParallel,
		"max-loras": &out.AdapterSlots, "max-lora-rank": &out.AdapterRank,
	}
	for _, setting := range settings {
		switch into := whole[setting.Name]; {
		case into != nil:
			if *into, err = positive(data, setting); err != nil {
				return planner.EngineSettings{}, err
			}
		case setting.Name == "gpu-memory-utilization":
			// Resolve has checked that this is a number.
			out.GPUMemoryUtilization, _ = strconv.ParseFloat(setting.Value, 64)
		case setting.Name == "kv-cache-dtype":
			out.KVCacheType = setting.Value
		case setting.Name == "dtype":
			out.DType = setting.Value
		case setting.Name == "enforce-eager":
			out.Eager = setting.Value == "true"
		case setting.Name == "language-model-only":
			out.Media.TextOnly = setting.Value == "true"
		case setting.Name == "limit-mm-per-prompt":
			if err := readMedia(setting.Value, &out.Media); err != nil {
				return planner.EngineSettings{}, invalid(fmt.Sprintf("flag %q of engine %s: %v", setting.Name, data.Name, err))
			}
		case setting.Name == "enable-expert-parallel":
			whole := setting.Value == "true"
			out.ExpertParallel = &whole
		}
	}
	return out, nil
}

// positive parses a number. For a word that the flag also accepts, such as auto, it returns 0: the plan chooses.
func positive(data catalog.Engine, setting engine.Setting) (int, error) {
	value, err := strconv.Atoi(setting.Value)
	if err != nil {
		return 0, nil //nolint:nilerr // Resolve saw to it that it is a number or one of the flag's words
	}
	if value < 1 {
		return 0, invalid(fmt.Sprintf("flag %q of engine %s is %d: it must be at least 1", setting.Name, data.Name, value))
	}
	return value, nil
}
