// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// laws checks that an engine has the memory law of its split, and no other.
func (c *check) laws(e Engine) {
	noMemory, noProfile := e.Memory == EngineMemory{}, reflect.ValueOf(e.Profile).IsZero()
	switch {
	case e.Split == SplitLayers && !noProfile:
		c.fail("profile", "it", "is for split: tensor, not for layers")
	case e.Split == SplitLayers:
		c.memory(e.Memory)
	case e.Split == SplitTensor && !noMemory:
		c.fail("memory", "it", "is for split: layers, not for tensor")
	case e.Split == SplitTensor:
		c.profile(e.Profile)
	default:
		c.fail("split", fmt.Sprintf("%q", e.Split), "must be layers or tensor")
	}
}

// basis checks the origin of a law's constants.
func (c *check) basis(field string, b v1beta1.Basis) {
	if !slices.Contains([]v1beta1.Basis{v1beta1.BasisExact, v1beta1.BasisMeasured, v1beta1.BasisEstimated}, b) {
		c.fail(field, fmt.Sprintf("%q", b), "must be exact, measured or estimated")
	}
}

// memory checks the constants of the memory law for whole layers.
func (c *check) memory(m EngineMemory) {
	c.basis("memory.basis", m.Basis)
	c.within("memory.reserveGiB", m.ReserveGiB, 0, 100)
	for _, constant := range []struct {
		field       string
		value       int
		least, most float64
	}{
		{"batchTokens", m.BatchTokens, 1, 1 << 20},
		{"logitBytes", m.LogitBytes, 0, 1 << 10},
		{"hiddenBytes", m.HiddenBytes, 0, 1 << 10},
		{"maskBytes", m.MaskBytes, 0, 1 << 10},
		{"inputCopies", m.InputCopies, 1, 64},
		{"kvBytes", m.KVBytes, 1, 8},
		{"contextMultiple", m.ContextMultiple, 1, 1 << 16},
	} {
		c.within("memory."+constant.field, float64(constant.value), constant.least, constant.most)
	}
}

// profile checks the constants of the memory law for an engine with a profile run.
func (c *check) profile(p MemoryProfile) {
	c.basis("profile.basis", p.Basis)
	if p.MeasuredUntil != "" {
		c.text("profile.measuredUntil", p.MeasuredUntil, isVersion, `must be a version such as "0.20", in quotes`)
	}
	for _, constant := range []struct {
		field       string
		value       float64
		least, most float64
	}{
		{"spareGiB", p.SpareGiB, 0, 100},
		{"marginGiB.measured", p.MarginGiB.Measured, 0, 100},
		{"marginGiB.estimated", p.MarginGiB.Estimated, p.MarginGiB.Measured, 100},
		{"encoder.weightsGiB", p.Encoder.WeightsGiB, 0, 100},
		{"encoder.keptGiB", p.Encoder.KeptGiB, 0, 100},
		{"encoder.unknownGiB", p.Encoder.UnknownGiB, 0, 100},
		{"mostUsed", p.MostUsed, 0.05, 1},
		{"defaultUsed", p.DefaultUsed, 0.05, 1},
		{"samplerCopies", p.SamplerCopies, 0, 100},
		{"batchCopies", p.BatchCopies, 0, 100},
		{"fixedGiB", p.FixedGiB, 0, 100},
		{"forwardCopies", p.ForwardCopies, 0, 100},
		{"weightFactor", p.WeightFactor, 1, 2},
		{"tablesGiB", p.TablesGiB, 0, 100},
		{"latentTokens", float64(p.LatentTokens), 0, 1 << 24},
		{"blockTokens", float64(p.BlockTokens), 1, 1 << 12},
	} {
		c.within("profile."+constant.field, constant.value, constant.least, constant.most)
	}
	c.libraries("profile.nonTorchGiB", p.NonTorchGiB)
	c.former(p.Former)
	if p.FormerUsed != 0 || p.UsedSince != "" {
		c.within("profile.formerUsed", p.FormerUsed, 0.05, 1)
		c.text("profile.usedSince", p.UsedSince, isVersion, `must be a version such as "0.22", in quotes`)
	}
	c.text("profile.graphsSince", p.GraphsSince, isVersion, `must be a version such as "0.21", in quotes`)
	c.graphs(p.Graphs)
	c.batchDefaults(p.Defaults)
}

// graphs checks the steps, and that some step matches every model.
func (c *check) graphs(steps []GraphStep) {
	for i, step := range steps {
		field := fmt.Sprintf("profile.graphs[%d]", i)
		c.within(field+".paramsB", step.ParamsB, 0, 1e6)
		c.within(field+".giB", step.GiB, 0, 100)
	}
	if n := len(steps); n == 0 || steps[n-1].ParamsB != 0 || steps[n-1].States || steps[n-1].Experts || len(steps[n-1].Formats) > 0 {
		c.fail("profile.graphs", "the last step", "must hold for every model: give it neither paramsB, states, experts nor formats")
	}
}

// libraries checks the memory of libraries outside PyTorch.
func (c *check) libraries(field string, n NonTorch) {
	c.within(field+".single", n.Single, 0, 100)
	c.within(field+".pcie", n.PCIe, 0, 100)
	c.within(field+".pair", n.Pair, 0, 100)
	c.within(field+".group", n.Group, 0, 100)
}

// former checks the amounts of earlier releases.
func (c *check) former(releases []FormerProfile) {
	for i, f := range releases {
		field := fmt.Sprintf("profile.former[%d]", i)
		c.text(field+".until", f.Until, isVersion, `must be a version such as "0.18", in quotes`)
		c.within(field+".samplerCopies", f.SamplerCopies, 0, 100)
		if f.NonTorchGiB != nil {
			c.libraries(field+".nonTorchGiB", *f.NonTorchGiB)
		}
	}
}

// batchDefaults checks the steps, and that some step matches every GPU.
func (c *check) batchDefaults(steps []BatchDefault) {
	for i, step := range steps {
		field := fmt.Sprintf("profile.defaults[%d]", i)
		c.within(field+".leastGiB", step.LeastGiB, 0, 4096)
		c.within(field+".sequences", float64(step.Sequences), 1, 1<<20)
		c.within(field+".batchTokens", float64(step.BatchTokens), 1, 1<<24)
		for j, class := range step.Except {
			c.text(fmt.Sprintf("%s.except[%d]", field, j), class, isName, "must be a class of GPUs such as A100-80")
		}
	}
	if n := len(steps); n == 0 || steps[n-1].LeastGiB != 0 || len(steps[n-1].Except) > 0 {
		c.fail("profile.defaults", "the last step", "must hold for every GPU: give it leastGiB: 0 and no except")
	}
}

// isVersion accepts releases: numbers with dots.
func isVersion(text string) bool {
	return madeOf(text, digits+".", 32) && !slices.Contains(strings.Split(text, "."), "")
}
