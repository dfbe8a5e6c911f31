// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ask holds the flags that replace a manifest.
type ask struct {
	model, instanceType, engine string

	instanceTypes, accelerators, zones, capacityTypes []string

	maxHourlyPrice string

	maxModelLen, concurrency, input, output int32

	rate string

	ttft, tpot  time.Duration
	optimizeFor string

	quantizations, kvTypes []string
	args                   map[string]string
}

// fields returns the manifest's field for each flag.
func fields() map[string]string {
	return map[string]string{
		"model": "inference.preset.name", "instance-type": "resource.instanceType", "engine": "inference.engine.name",
		"instance-types": "resource.placement.instanceTypes", "accelerators": "resource.placement.accelerators",
		"zones": "resource.placement.zones", "capacity-type": "resource.placement.capacityTypes",
		"max-hourly-price": "resource.placement.maxHourlyPrice", "max-nodes": "resource.count",
		"max-model-len": "inference.objectives.maxModelLen", "concurrency": "inference.objectives.concurrency",
		"rate":      "inference.objectives.requestsPerSecond",
		"input-len": "inference.objectives.inputTokens", "output-len": "inference.objectives.outputTokens",
		"ttft": "inference.objectives.timeToFirstToken", "tpot": "inference.objectives.timePerOutputToken",
		"optimize-for": "inference.objectives.optimizeFor", "allow-quantization": "inference.engine.allowedQuantizations",
		"allow-kv-cache": "inference.engine.allowedKVCacheTypes", "engine-arg": "inference.engine.args",
	}
}

func (a *ask) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.model, "model", "", "model to plan for: a preset, an alias, or a Hugging Face id")
	f.StringVar(&a.engine, "engine", "", "engine (default: the model's)")
	f.StringVar(&a.instanceType, "instance-type", "", "the only machine type to use; unset objectives are relaxed to fit")
	f.StringSliceVar(&a.instanceTypes, "instance-types", nil, "machine types to choose from")
	f.StringSliceVar(&a.accelerators, "accelerators", nil, "GPUs to choose from, such as H100-80,L40S")
	f.StringSliceVar(&a.zones, "zones", nil, "zones to choose from")
	f.StringSliceVar(&a.capacityTypes, "capacity-type", nil, "ways to pay: reserved, on-demand, spot (default reserved,on-demand)")
	f.StringVar(&a.maxHourlyPrice, "max-hourly-price", "", "maximum price of all machines together, in USD per hour")
	f.Var(tokensFlag{&a.maxModelLen}, "max-model-len", "tokens of each sequence, such as 16384 or 16k (default: 8192 or the model's context, and more if the memory allows)")
	f.Int32Var(&a.concurrency, "concurrency", 0, "sequences of --max-model-len tokens to hold at once (default: 4 if they fit, and more if the memory allows)")
	f.StringVar(&a.rate, "rate", "", "requests per second with random arrivals, such as 2.5; the speed is then computed for this load, not for the concurrency")
	f.Var(tokensFlag{&a.input}, "input-len", "tokens of a typical prompt (default 1024)")
	f.Var(tokensFlag{&a.output}, "output-len", "tokens of a typical answer (default 256)")
	f.Var(timeFlag{&a.ttft}, "ttft", "longest acceptable time to the first token, in milliseconds without a unit (default 5s)")
	f.Var(timeFlag{&a.tpot}, "tpot", "longest acceptable time per further token, in milliseconds without a unit (default 100ms)")
	f.StringVar(&a.optimizeFor, "optimize-for", "", "ranking: balanced, cost, latency, throughput (default balanced)")
	f.StringSliceVar(&a.quantizations, "allow-quantization", nil, "formats of weights to allow besides the released one, such as fp8,awq")
	f.StringSliceVar(&a.kvTypes, "allow-kv-cache", nil, "types of KV cache to allow besides the model's own, such as fp8")
	f.StringToStringVar(&a.args, "engine-arg", nil, "engine flag for the plan to respect, such as tensor-parallel-size=4")
	complete(cmd, "optimize-for", func() []string { return []string{"balanced", "cost", "latency", "throughput"} })
	complete(cmd, "capacity-type", capacityTypes)
}

// beside refuses flags that have a field in the manifest.
func (a *ask) beside(cmd *cobra.Command) error {
	known := fields()
	for _, flag := range slices.Sorted(maps.Keys(known)) {
		if cmd.Flags().Changed(flag) {
			return usageError("--%s works only with --model: with -f, set %s in the file", flag, known[flag])
		}
	}
	return nil
}

// workspace returns the Workspace that the flags describe.
func (a *ask) workspace() (*v1beta1.Workspace, error) {
	aim, err := a.aim()
	if err != nil {
		return nil, err
	}
	ws := &v1beta1.Workspace{}
	ws.Name = "workspace"
	ws.Resource = v1beta1.ResourceSpec{InstanceType: a.instanceType, Placement: a.placement()}
	ws.Inference = &v1beta1.InferenceSpec{
		Preset: &v1beta1.PresetSpec{Name: a.model},
		Engine: &v1beta1.EngineSpec{Name: a.engine, AllowedQuantizations: a.quantizations, AllowedKVCacheTypes: a.kvTypes},
		Objectives: &v1beta1.ObjectivesSpec{
			MaxModelLen: given(a.maxModelLen), Concurrency: given(a.concurrency), RequestsPerSecond: a.rate,
			InputTokens: given(a.input), OutputTokens: given(a.output),
			TimeToFirstToken: duration(a.ttft), TimePerOutputToken: duration(a.tpot), OptimizeFor: aim,
		},
	}
	for name, value := range a.args {
		if ws.Inference.Engine.Args == nil {
			ws.Inference.Engine.Args = map[string]v1beta1.EngineArg{}
		}
		ws.Inference.Engine.Args[name] = v1beta1.EngineArg(value)
	}
	if problem := outOfBounds(ws); problem != "" {
		return nil, usageError("%s", flagged(problem))
	}
	return ws, nil
}

func (a *ask) placement() *v1beta1.PlacementSpec {
	out := &v1beta1.PlacementSpec{
		NodeSource:    v1beta1.NodeSourceProvisioned,
		InstanceTypes: a.instanceTypes, Accelerators: a.accelerators, Zones: a.zones, MaxHourlyPrice: a.maxHourlyPrice,
	}
	for _, capacity := range a.capacityTypes {
		out.CapacityTypes = append(out.CapacityTypes, v1beta1.CapacityType(capacity))
	}
	return out
}

// aim parses --optimize-for. It ignores case.
func (a *ask) aim() (v1beta1.OptimizeFor, error) {
	if a.optimizeFor == "" {
		return "", nil
	}
	for _, aim := range aims() {
		if strings.EqualFold(aim, a.optimizeFor) {
			return v1beta1.OptimizeFor(aim), nil
		}
	}
	return "", usageError("--optimize-for: %q is not supported: use balanced, cost, latency or throughput", a.optimizeFor)
}

// flagged replaces the names of fields in a message by the names of their flags.
func flagged(message string) string {
	known := fields()
	// Longer names go first, because some names are prefixes of others.
	flags := slices.SortedFunc(maps.Keys(known), func(a, b string) int { return len(known[b]) - len(known[a]) })
	for _, flag := range flags {
		message = strings.ReplaceAll(message, known[flag], "--"+flag)
	}
	// In messages about fields, a value follows a colon, and a list is in brackets.
	value := `(--[a-z-]+): (?:\[([^\]]*)\]|"?(\d+(?:[.]\d+)?)"?|(?:` + strings.Join(aims(), "|") + `)\b)`
	return regexp.MustCompile(value).ReplaceAllStringFunc(message, func(match string) string {
		return strings.NewReplacer(": ", " ", "[", "", "]", "", ", ", ",", `"`, "").Replace(match)
	})
}

// given converts a flag to a field: 0, an unset flag, becomes nil.
func given(value int32) *int32 {
	if value == 0 {
		return nil
	}
	return &value
}

func duration(value time.Duration) *metav1.Duration {
	if value == 0 {
		return nil
	}
	return &metav1.Duration{Duration: value}
}

// title returns the heading for a Workspace: its name, or the model's name if it has none.
func title(ws *v1beta1.Workspace, hubID string) string {
	if ws.Name == "workspace" && ws.Namespace == "" {
		return hubID
	}
	return fmt.Sprintf("%s (%s)", key(ws), path.Base(hubID))
}
