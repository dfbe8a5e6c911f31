// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Validate checks an engine of presets/engines or an overlay.
func (e Engine) Validate() error {
	var c check
	c.text("name", e.Name, isLowerName, "must be a lower-case name such as llamacpp")
	for _, text := range []struct{ field, value string }{
		{"version", e.Version}, {"image", e.Image},
	} {
		if text.value == "" {
			c.fail(text.field, `""`, "must be set")
		}
	}
	c.text("healthPath", e.HealthPath, func(p string) bool { return strings.HasPrefix(p, "/") }, "must start with a slash")
	if e.APIKeyVariable != "" {
		c.text("apiKeyVariable", e.APIKeyVariable, isVariable, "must be the name of an environment variable such as VLLM_API_KEY")
	}
	if len(e.WorkerCommand) > 0 {
		c.text("workerCommand[0]", e.WorkerCommand[0], path.IsAbs, "must be the path of a program in the image")
		if !e.MultiNode {
			c.fail("workerCommand", fmt.Sprintf("%q", e.WorkerCommand), "must be absent where multiNode is false")
		}
	}
	if e.MultiNode && e.Split == SplitLayers && len(e.WorkerCommand) == 0 {
		c.fail("workerCommand", "[]", "must be set where multiNode is true and the engine splits by layers")
	}
	c.within("userID", float64(e.UserID), 1, 1<<31-1)
	c.positive("imageGiB", e.ImageGiB, 1000)
	c.within("cpus", float64(e.CPUs), 1, 1024)
	c.within("memoryGiB", float64(e.MemoryGiB), 1, 10_000)
	c.within("memoryBurstGiB", float64(e.MemoryBurstGiB), 0, 10_000)
	for _, quantization := range sortedKeys(e.ComputeCapability) {
		c.text("computeCapability."+quantization, e.ComputeCapability[quantization], isCapability,
			mustCapability)
	}
	for i, cache := range e.CompileCaches {
		at := fmt.Sprintf("compileCaches[%d]", i)
		if cache.Variable == "" {
			c.fail(at+".variable", `""`, "must be set")
		}
		c.text(at+".directory", cache.Directory, isLowerName, "must be a lower-case name such as triton")
	}
	c.caches(e)
	c.laws(e)
	c.speed(e.Speed)
	c.flags(e)
	return c.err
}

func isVariable(name string) bool { return len(validation.IsCIdentifier(name)) == 0 }

// flags checks that every spelling means only one flag, and that reserved flags exist.
func (c *check) flags(e Engine) {
	owner := map[string]string{}
	for _, name := range sortedKeys(e.Flags) {
		flag := e.Flags[name]
		field := "flags." + name
		if !slices.Contains([]FlagKind{FlagBool, FlagInt, FlagFloat, FlagString, FlagJSON, FlagSize}, flag.Kind) {
			c.fail(field+".kind", fmt.Sprintf("%q", flag.Kind), "must be bool, int, size, float, string or json")
		}
		if len(flag.Values) > 0 && !slices.Contains([]FlagKind{FlagString, FlagInt, FlagSize}, flag.Kind) {
			c.fail(field+".values", flag.Values, "must be absent: only a string, an int or a size can have them")
		}
		if flag.Many && slices.Contains([]FlagKind{FlagBool, FlagJSON}, flag.Kind) {
			c.fail(field+".many", flag.Many, "must be absent: a bool has no value, and JSON has lists of its own")
		}
		if flag.Kind != FlagBool && len(flag.Negations) > 0 {
			c.fail(field+".negations", flag.Negations, "must be absent: only a bool can be switched off")
		}
		for _, spelling := range slices.Concat([]string{name}, flag.Aliases, flag.Negations) {
			c.text(field, spelling, isName, "must be a flag's name without dashes")
			if other, taken := owner[spelling]; taken {
				c.fail(field, fmt.Sprintf("%q", spelling), "is also a spelling of "+other)
			}
			owner[spelling] = name
		}
	}
	c.reservations(e)
}

// reservations checks that reserved flags exist and are reserved once, with a reason.
func (c *check) reservations(e Engine) {
	seen := map[string]bool{}
	for i, group := range e.Reserved {
		field := fmt.Sprintf("reserved[%d]", i)
		if group.Reason == "" {
			c.fail(field+".reason", `""`, "must give the reason why users cannot set these flags")
		}
		for _, name := range group.Flags {
			if _, known := e.Flags[name]; !known {
				c.fail(field+".flags", fmt.Sprintf("%q", name), "is not one of flags")
			}
			if seen[name] {
				c.fail(field+".flags", fmt.Sprintf("%q", name), "is reserved twice")
			}
			seen[name] = true
		}
	}
}
