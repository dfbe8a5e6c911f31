// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"reflect"
)

// anyKernel is the name of the kernel for all formats without their own.
const anyKernel = "default"

// speed checks the constants of a roofline model. An engine may have none.
func (c *check) speed(s Speed) {
	if reflect.ValueOf(s).IsZero() {
		return
	}
	c.basis("speed.basis", s.Basis)
	c.kernels("speed.dense", s.Dense)
	if len(s.Experts) > 0 {
		c.kernels("speed.experts", s.Experts)
	}
	for _, capability := range sortedKeys(s.Generations) {
		g, field := s.Generations[capability], "speed.generations."+capability
		c.text(field, capability, isPart, `must be a compute capability such as "8.0", or a class of GPUs`)
		c.positive(field+".bandwidth", g.Bandwidth, 2)
		c.positive(field+".compute", g.Compute, 2)
		c.positive(field+".narrowCompute", g.NarrowCompute, 2)
		c.within(field+".sinks", g.Sinks, 0, 1)
	}
	c.within("speed.skew", s.Skew, 0, 100)
	c.positive("speed.kvBandwidth", s.KVBandwidth, 1)
	c.positive("speed.attention", s.Attention, 1)
	c.within("speed.attentionTokens", s.AttentionTokens, 0, mostAttentionTokens)
	c.positive("speed.pipeline", s.Pipeline, 1)
	if s.Former != (FormerSpeed{}) {
		c.text("speed.former.until", s.Former.Until, isReleaseNumber, "must be a release such as 0.14")
	}
	if s.FormerCache != (FormerCache{}) {
		c.text("speed.formerCache.until", s.FormerCache.Until, isReleaseNumber, "must be a release such as 0.14")
		c.text("speed.formerCache.capability", s.FormerCache.Capability, isCapability, `must be two numbers such as "8.0"`)
		c.positive("speed.formerCache.share", s.FormerCache.Share, 1)
	}
	if s.FormerBlocks != (FormerBlocks{}) {
		checkFormerBlocks(c, s.FormerBlocks)
	}
	c.overheads(s)
	c.allReduce(s.AllReduce)
}

// checkFormerBlocks checks the constants of releases that computed experts in whole blocks.
func checkFormerBlocks(c *check, b FormerBlocks) {
	c.text("speed.formerBlocks.since", b.Since, isReleaseNumber, "must be a release such as 0.14")
	c.text("speed.formerBlocks.until", b.Until, isReleaseNumber, "must be a release such as 0.14")
	c.text("speed.formerBlocks.capability", b.Capability, isCapability, `must be two numbers such as "8.0"`)
	c.text("speed.formerBlocks.format", b.Format, isName, "must be the name of a quantization")
	c.within("speed.formerBlocks.rows", float64(b.Rows), 1, mostBlockRows)
	c.within("speed.formerBlocks.withoutGPUs", float64(b.WithoutGPUs), 2, mostBlockRows)
}

// mostAttentionTokens is the length of a prompt that keeps every GPU busy.
const mostAttentionTokens = 1 << 16

// mostBlockRows is more rows than any kernel's block has.
const mostBlockRows = 4096

// isPart accepts compute capabilities and classes of GPUs.
func isPart(text string) bool { return isCapability(text) || isName(text) }

// overheads checks the overheads in addition to bytes and operations.
func (c *check) overheads(s Speed) {
	for _, lost := range []struct {
		field string
		value float64
		most  float64
	}{
		{"layerMicros", s.LayerMicros, mostMicros},
		{"parallelMicros", s.ParallelMicros, mostMicros},
		{"promptMicros", s.PromptMicros, mostMicros},
		{"stepMicros", s.StepMicros, mostMicros},
		{"sequenceMicros", s.SequenceMicros, mostMicros},
		{"eagerMicros", s.EagerMicros, mostMicros},
		{"former.stepMicros", s.Former.StepMicros, mostMicros},
		{"firstMicros", s.FirstMicros, mostMicros},
		{"firstSteps", s.FirstSteps, 100},
		{"burst", s.Burst, 1},
	} {
		c.within("speed."+lost.field, lost.value, 0, lost.most)
	}
	for _, hop := range []struct {
		field string
		hop   Hop
	}{{"machine", s.Hops.Machine}, {"rdma", s.Hops.RDMA}, {"ethernet", s.Hops.Ethernet}} {
		c.within("speed.hops."+hop.field+".micros", hop.hop.Micros, 0, mostMicros)
		c.positive("speed.hops."+hop.field+".gbs", hop.hop.GBs, 1e4)
	}
	c.within("speed.hops.across", s.Hops.Across, 1, 1e3)
}

// mostMicros is a second in microseconds. No constant is as large.
const mostMicros = 1e6

// kernels checks the kernels, and that every format has one.
func (c *check) kernels(field string, kernels map[string]Kernel) {
	if _, ok := kernels[anyKernel]; !ok {
		c.fail(field, "it", "must have a kernel "+anyKernel+" for all other formats")
	}
	for _, name := range sortedKeys(kernels) {
		k, at := kernels[name], field+"."+name
		c.text(at, name, isLowerName, "must be the name of a quantization or "+anyKernel)
		c.positive(at+".bandwidth", k.Bandwidth, 1)
		c.positive(at+".compute", k.Compute, 1)
		c.within(at+".layerMicros", k.LayerMicros, 0, mostMicros)
		for _, capability := range sortedKeys(k.Generations) {
			v, of := k.Generations[capability], at+".generations."+capability
			c.text(of, capability, isCapability, `must be two numbers such as "8.0"`)
			if v.Peak != "" {
				c.text(of+".peak", v.Peak, isLowerName, "must be a data type such as fp8")
			}
			c.within(of+".bandwidth", v.Bandwidth, 0, 1)
			c.within(of+".compute", v.Compute, 0, 1)
			c.within(of+".layerMicros", v.LayerMicros, 0, mostMicros)
		}
	}
}

// allReduce checks that the points of every table are ascending, and that no table is a duplicate.
func (c *check) allReduce(tables []AllReduce) {
	seen := map[string]bool{}
	for i, table := range tables {
		field := fmt.Sprintf("speed.allReduce[%d]", i)
		c.within(field+".gpus", float64(table.GPUs), 2, 1<<10)
		if len(table.Links) == 0 {
			c.fail(field+".links", "it", "must name a link such as nvlink4")
		}
		for _, link := range table.Links {
			c.text(field+".links", link, isLowerName, "must be a link such as nvlink4")
			key := fmt.Sprintf("%s of %d GPUs", link, table.GPUs)
			if seen[key] {
				c.fail(field, key, "already has a table")
			}
			seen[key] = true
		}
		if len(table.Bytes) < 2 || len(table.Bytes) != len(table.Micros) {
			c.fail(field, fmt.Sprintf("%d bytes and %d micros", len(table.Bytes), len(table.Micros)),
				"must be at least two points, with as many bytes as micros")
			return
		}
		for j := range table.Bytes {
			c.positive(fmt.Sprintf("%s.bytes[%d]", field, j), table.Bytes[j], 1<<40)
			c.positive(fmt.Sprintf("%s.micros[%d]", field, j), table.Micros[j], 1e9)
			if j > 0 && table.Bytes[j] <= table.Bytes[j-1] {
				c.fail(fmt.Sprintf("%s.bytes[%d]", field, j), table.Bytes[j], "must be greater than the previous one")
			}
		}
	}
}
