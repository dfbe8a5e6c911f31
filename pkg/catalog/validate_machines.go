// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/sku"
)

// Bounds larger than any machine, to detect typing errors.
const (
	mostMemoryGiB    = 4096
	mostBandwidthGBs = 100_000
	mostTFLOPs       = 1_000_000
	mostLinkGBs      = 10_000
	mostUSD          = 100_000
)

// validateGPU checks one GPU.
func validateGPU(g sku.GPU) error {
	var c check
	c.text("name", g.Name, isName, "must be a name such as A100-80-PCIe")
	c.text("class", g.Class, isName, "must be a name such as A100-80")
	for i, alias := range g.Aliases {
		c.text(fmt.Sprintf("aliases[%d]", i), alias, isName, "must be a name such as A100-80, with dashes instead of spaces")
	}
	for i, product := range g.Products {
		c.text(fmt.Sprintf("products[%d]", i), product, isName, "must be a label's value such as NVIDIA-A100-SXM4-80GB")
	}
	c.positive("memoryGiB", g.MemoryGiB, mostMemoryGiB)
	c.positive("bandwidthGBs", g.BandwidthGBs, mostBandwidthGBs)
	if g.ComputeCapability != "" {
		c.text("computeCapability", g.ComputeCapability, isCapability, `must be two numbers such as "8.0"`)
	}
	for _, dtype := range sortedKeys(g.PeakTFLOPs) {
		c.oneOf("peakTFLOPs", dtype, "fp16", "bf16", "fp8", "fp4", "int8")
		c.positive("peakTFLOPs."+dtype, g.PeakTFLOPs[dtype], mostTFLOPs)
	}
	if g.Link != "" || g.LinkGBs != 0 {
		c.oneOf("link", g.Link, "nvlink2", "nvlink3", "nvlink4", "nvlink5", "pcie3", "pcie4", "pcie5", "xgmi", "c2c")
		c.positive("linkGBs", g.LinkGBs, mostLinkGBs)
	}
	if g.HostLink != "" {
		c.oneOf("hostLink", g.HostLink, "pcie3", "pcie4", "pcie5")
	}
	c.within("sms", float64(g.SMs), 0, mostSMs)
	c.mig(g)
	return c.err
}

// mostSMs is more streaming multiprocessors than any GPU has.
const mostSMs = 1024

// mig checks a GPU's partitions.
func (c *check) mig(g sku.GPU) {
	seen := map[string]bool{}
	for i, p := range g.MIG {
		field := fmt.Sprintf("mig[%d]", i)
		c.text(field+".name", p.Name, isLowerName, "must be a profile such as 1g.10gb")
		c.within(field+".count", float64(p.Count), 1, 64)
		c.positive(field+".memoryGiB", p.MemoryGiB, mostMemoryGiB)
		c.within(field+".sms", float64(p.SMs), 0, float64(g.SMs))
		c.within(field+".bandwidth", p.Bandwidth, 0, 1)
		if seen[p.Name] {
			c.fail(field+".name", fmt.Sprintf("%q", p.Name), "is given twice")
		}
		seen[p.Name] = true
		if i > 0 && p.MemoryGiB < g.MIG[i-1].MemoryGiB {
			c.fail(field+".memoryGiB", p.MemoryGiB, fmt.Sprintf("must not be below the %v of the profile before", g.MIG[i-1].MemoryGiB))
		}
	}
}

// validateSKU checks one machine type.
func validateSKU(s sku.SKU) error {
	var c check
	c.text("name", s.Name, isName, "must be an instance type such as Standard_NC24ads_A100_v4")
	c.text("cloud", s.Cloud, isLowerName, "must be a lower-case name such as azure, in the entry or at the top of the file")
	c.within("gpus", float64(s.GPUs), 0, 64)
	if (s.GPUs > 0) != (s.GPU != "") {
		c.fail("gpu", fmt.Sprintf("%q", s.GPU), fmt.Sprintf("is incompatible with gpus: %d", s.GPUs))
	}
	if s.GPUs > 0 {
		c.text("resource", s.Resource, isResource, "must be an extended resource such as nvidia.com/gpu")
	}
	c.within("vcpus", float64(s.VCPUs), 1, 4096)
	c.positive("memoryGiB", s.MemoryGiB, 100_000)
	c.within("localDiskGiB", s.LocalDiskGiB, 0, 1_000_000)
	c.links(s)
	if s.Arch != "" {
		c.oneOf("arch", s.Arch, "amd64", "arm64")
	}
	for i, p := range s.Provisioners {
		c.text(fmt.Sprintf("provisioners[%d]", i), p, isLowerName, "must be a lower-case name such as karpenter")
	}
	c.reason("unusable", s.Unusable)
	c.prices("prices", s.Prices)
	c.prices("spotPrices", s.SpotPrices)
	if len(s.SpotPrices) > 0 && !s.Spot {
		c.fail("spotPrices", len(s.SpotPrices), "requires spot: true")
	}
	return c.err
}

// links checks the connections of a machine's GPUs with each other and with other machines.
func (c *check) links(s sku.SKU) {
	c.within("linkedGPUs", float64(s.LinkedGPUs), 0, float64(max(s.GPUs, 0)))
	if s.LinkedGPUs == 1 || s.LinkedGPUs > 0 && s.GPUs%s.LinkedGPUs != 0 {
		c.fail("linkedGPUs", s.LinkedGPUs, fmt.Sprintf("must be 0, or at least 2 and a divisor of gpus (%d)", s.GPUs))
	}
	c.within("networkGBs", s.NetworkGBs, 0, mostLinkGBs)
}

// prices checks USD per hour by region.
func (c *check) prices(field string, prices map[string]float64) {
	for _, region := range sortedKeys(prices) {
		c.text(field, region, isLowerName, "must be a region such as eastus")
		c.within(field+"."+region, prices[region], 0, mostUSD)
	}
}

// reason checks the text of a reason.
func (c *check) reason(field, text string) {
	if len(text) > longestReason || strings.ContainsAny(text, "\r\n") {
		c.fail(field, fmt.Sprintf("%.40q…", text), fmt.Sprintf("must be one line of at most %d bytes", longestReason))
	}
}

// oneOf records a problem if a text is not one of the known texts.
func (c *check) oneOf(field, value string, known ...string) {
	if !slices.Contains(known, value) {
		last := len(known) - 1
		c.fail(field, fmt.Sprintf("%q", value), "must be "+strings.Join(known[:last], ", ")+" or "+known[last])
	}
}
