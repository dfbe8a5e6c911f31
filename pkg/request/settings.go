// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/planner"
)

// ArgsField is the field with the engine's flags.
const ArgsField = "inference.engine.args"

// engineSettings are the flags that a plan depends on: those of the Workspace, and below them those of the
// ConfigMap. Only engines with tensor parallelism and a memory profile have such flags.
func engineSettings(data catalog.Engine, config engine.Config, args map[string]string) (planner.EngineSettings, error) {
	if data.Split != catalog.SplitTensor {
		return planner.EngineSettings{}, nil
	}
	settings, _, err := engine.Resolve(data, config.Flags(data.Name), engine.Source{Name: ArgsField, Flags: args})
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
			out.TextOnly = out.TextOnly || setting.Value == "true"
		case setting.Name == "limit-mm-per-prompt":
			out.TextOnly = out.TextOnly || readsTextOnly(setting.Value)
		case setting.Name == "enable-expert-parallel":
			whole := setting.Value == "true"
			out.ExpertParallel = &whole
		}
	}
	return out, nil
}

// readsTextOnly reports whether limits leave neither images nor videos: {"image": 0, "video": {"count": 0}}. Other
// limits save no memory: the engine makes room for the largest one.
func readsTextOnly(limits string) bool {
	var counts map[string]json.RawMessage
	if json.Unmarshal([]byte(limits), &counts) != nil {
		return false
	}
	for _, kind := range []string{"image", "video"} {
		count := struct {
			Count json.RawMessage `json:"count"`
		}{counts[kind]}
		_ = json.Unmarshal(counts[kind], &count) // a number is no object, and stays what it is
		if string(count.Count) != "0" {
			return false
		}
	}
	return true
}

// positive reads a number. Words that the flag accepts besides numbers, such as auto, leave the choice to the plan.
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
