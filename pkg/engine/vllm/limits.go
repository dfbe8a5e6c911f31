// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package vllm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
)

// flagExperts spreads whole experts over GPUs; the server refuses it for a model without experts.
const flagExperts = "enable-expert-parallel"

// flagContext spreads the tokens of the KV cache over GPUs that would otherwise hold copies.
const flagContext = "decode-context-parallel-size"

// planned returns the user's flags that the planner handles. The plan has the value to use, and a warning if that
// differs from the user's.
func planned(in engine.Input) []string {
	names := []string{
		"data-parallel-size", "gpu-memory-utilization", "kv-cache-dtype", "max-model-len", "max-num-seqs",
		"pipeline-parallel-size", "tensor-parallel-size",
	}
	// A plan of an earlier version may not include the user's expert parallelism.
	if in.Plan.ExpertParallel || in.Model.Shape.MoE == nil {
		names = append(names, flagExperts)
	}
	if in.Plan.ContextParallel > 0 {
		names = append(names, flagContext)
	}
	if servesAdapters(in) {
		names = append(names, flagLoRASlots, flagLoRARank)
	}
	return names
}

// limit drops the user's settings that contradict the artifact or the plan, or need more memory than planned.
func limit(in engine.Input, users []engine.Setting) ([]engine.Setting, []string) {
	var kept []engine.Setting
	var warnings []string
	for _, setting := range users {
		sentence, replaced := objection(in, setting)
		if sentence != "" {
			warnings = append(warnings, sentence)
		}
		if !replaced && !slices.Contains(planned(in), setting.Name) {
			kept = append(kept, setting)
		}
	}
	return kept, warnings
}

// objection returns a warning about a flag that deviates from the plan, and reports whether the plan's value replaces
// the user's.
func objection(in engine.Input, setting engine.Setting) (sentence string, replaced bool) {
	switch setting.Name {
	case "max-num-batched-tokens":
		return aboutBatch(in, setting.Value)
	case "dtype":
		return aboutType(in, setting.Value)
	case "quantization":
		return aboutQuantization(in.Plan.Artifact.Quantization, setting.Value), false
	case "api-server-count":
		if in.LoopbackPort > 0 && setting.Value != "1" {
			return "flag api-server-count: 1 is used, because only one server can change its adapters (inference.adapterUpdates)", true
		}
	case "chat-template":
		return aboutTemplate(setting.Value)
	case "speculative-config", "spec-method", flagLoRA:
		switch {
		case setting.Name == flagLoRA && servesAdapters(in):
			return aboutLoRA(setting.Value)
		case setting.Value == "false":
			return "", false
		}
		return fmt.Sprintf("flag %s: it needs more memory than planned: "+
			"lower gpu-memory-utilization if the engine does not start", setting.Name), false
	}
	return aboutArtifact(in, setting)
}

func aboutLoRA(value string) (string, bool) {
	if value == "true" {
		return "", true
	}
	return "flag enable-lora: it stays on, because inference.adapters names adapters", true
}

func aboutBatch(in engine.Input, value string) (string, bool) {
	number, _ := strconv.ParseInt(value, 10, 64)
	switch {
	case number > int64(in.Plan.MaxBatchedTokens):
		return fmt.Sprintf("flag max-num-batched-tokens: %d is used instead of %d, because the plan has no memory for more",
			in.Plan.MaxBatchedTokens, number), true
	case number < int64(in.Plan.MaxNumSeqs):
		return fmt.Sprintf("flag max-num-batched-tokens: %d is used instead of %d, because a batch needs one token for each of %d sequences",
			in.Plan.MaxBatchedTokens, number, in.Plan.MaxNumSeqs), true
	}
	return "", false
}

// kaitoFiles is the directory of chat templates in KAITO's image. The server does not start without the file.
const kaitoFiles = "/workspace/"

func aboutTemplate(value string) (string, bool) {
	if !strings.HasPrefix(value, kaitoFiles) {
		return "", false
	}
	return engine.Sentence("flag chat-template: %s is a file in KAITO's image, which does not run here, so the model's own template is "+
		"used: give the template's text instead", value), true
}

func aboutType(in engine.Input, value string) (string, bool) {
	switch {
	case value == "float" || value == "float32":
		return fmt.Sprintf("flag dtype: %s is ignored, because it needs twice the planned memory", value), true
	case value == "bfloat16" && isOlderThanAmpere(in):
		return fmt.Sprintf("flag dtype: half is used instead of bfloat16, which needs compute capability 8.0: the GPUs have %s",
			in.Plan.ComputeCapability), true
	}
	return "", false
}

// aboutQuantization warns of a flag that asks for another format of weights than planned. The server quantises weights
// of 16 bits while it loads them. Other weights declare their format, and the server does not start with another one.
func aboutQuantization(planned, value string) string {
	switch {
	case strings.EqualFold(value, planned):
		return ""
	case slices.Contains([]string{"", "bf16", "fp16", "f32"}, planned):
		return engine.Sentence("flag quantization: %s reduces the weights during loading, and the plan does not include that: "+
			"to plan with smaller weights, name their format in inference.engine.allowedQuantizations instead", value)
	default:
		return engine.Sentence("flag quantization: the weights declare their format, %s, and the engine does not "+
			"start if %s is another format: leave the flag out", planned, value)
	}
}

// aboutArtifact keeps a flag that the artifact requires, with a warning.
func aboutArtifact(in engine.Input, setting engine.Setting) (string, bool) {
	for _, flag := range in.Plan.Artifact.Flags {
		if flag.Name == setting.Name && orTrue(flag.Value) != setting.Value {
			return engine.Sentence("flag %s: %s is used instead of %s, because %s",
				flag.Name, orTrue(flag.Value), setting.Value, flag.Why), true
		}
	}
	return "", false
}

// checkDashes rejects values that the server's parser would read as flags. The parser accepts negative whole numbers.
func checkDashes(data catalog.Engine, users []engine.Setting) error {
	for _, setting := range users {
		flag := data.Flags[setting.Name]
		if flag.Kind == catalog.FlagInt {
			continue
		}
		values := []string{setting.Value}
		if flag.Many {
			values = strings.Fields(setting.Value)
		}
		if slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, "-") }) {
			return fmt.Errorf("flag %q of engine %s has a value that begins with a dash, so the engine's parser takes the value for "+
				"a flag: use another value", setting.Name, data.Name)
		}
	}
	return nil
}

// checkTogether rejects combinations that prevent the server's start.
func checkTogether(settings []engine.Setting) error {
	value := map[string]string{}
	for _, setting := range settings {
		value[setting.Name] = setting.Value
	}
	on := func(name string) bool { return value[name] == "true" }
	number := func(name string) int { n, _ := strconv.Atoi(value[name]); return n }
	switch {
	case on("enable-auto-tool-choice") && value["tool-call-parser"] == "":
		return errors.New("flag enable-auto-tool-choice of engine vllm needs tool-call-parser: set it to the name of a parser")
	case on("enable-log-outputs") && !on("enable-log-requests"):
		return errors.New("flag enable-log-outputs of engine vllm also needs enable-log-requests: set both")
	case on("enable-per-request-metrics") && on("disable-log-stats"):
		return errors.New("flags enable-per-request-metrics and disable-log-stats of engine vllm cannot be combined: keep one")
	case number("sse-keep-alive-interval") < 0:
		return errors.New("flag sse-keep-alive-interval of engine vllm must not be negative: 0 switches it off")
	case number("max-num-active-seqs") > number("max-num-seqs"):
		return fmt.Errorf("flag max-num-active-seqs of engine vllm is %d: set it to at most %d, the plan's max-num-seqs",
			number("max-num-active-seqs"), number("max-num-seqs"))
	}
	return nil
}
