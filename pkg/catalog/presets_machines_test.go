// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/presets"
)

// presetGPUs are the GPUs of the presets, by name.
func presetGPUs(t *testing.T) []sku.GPU {
	t.Helper()
	c := loadPresets(t)
	var gpus []sku.GPU
	for name := range strings.FieldsSeq(`V100-16-PCIe V100-16-SXM V100-32 T4 RTX2080Ti-22 A10 A10G L4 L40S A30 RTX3090-24
		RTX4090-24 A100-40-PCIe A100-40-SXM A100-80-PCIe A100-80-SXM H100-80-PCIe H100-80-SXM H100-94-NVL H200-141-SXM GH200-96
		GH200-144 B200-180-SXM B300-SXM GB200 GB300 RTX-PRO-6000-96 MI300X-192 MI325X-256 MI355X-288`) {
		g, ok := c.GPU(name)
		if !ok || g.Name != name {
			t.Fatalf("GPU(%q) = %q, %v", name, g.Name, ok)
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func TestPresetsGPUNames(t *testing.T) {
	c := loadPresets(t)
	for name, want := range map[string]string{
		"H100-80-SXM": "H100-80-SXM", "h100-94-nvl": "H100-94-NVL", "A100-80-SXM": "A100-80-SXM", "A100-80-PCIe": "A100-80-PCIe",
		"A100-40-SXM": "A100-40-SXM", "H200-141-SXM": "H200-141-SXM", "B200-180-SXM": "B200-180-SXM", "b300-sxm": "B300-SXM",
		"GB200": "GB200", "L40S": "L40S", "l40s": "L40S", "L4-24": "L4", "A10-24": "A10", "A10G-24": "A10G", "T4-16": "T4",
		"V100-32": "V100-32", "RTX4090-24": "RTX4090-24", "RTX3090-24": "RTX3090-24", "RTX PRO 6000-96": "RTX-PRO-6000-96",
		"rtx pro  6000": "RTX-PRO-6000-96", "RTX-PRO-6000": "RTX-PRO-6000-96", "MI300X-192": "MI300X-192", "MI300X": "MI300X-192",
		"B200-180": "B200-180-SXM", "H200-141": "H200-141-SXM", "H200": "H200-141-SXM",
		"RTX 4090": "RTX4090-24", "rtx 3090": "RTX3090-24", "RTX PRO 5000-72": "RTX-PRO-5000-72", "H200-141-NVL": "H200-141-NVL",
		"H20-96": "H20-96", "L40": "L40", "RTX2080Ti-22 mod": "RTX2080Ti-22",
		// Classes with several GPUs mean the SXM variant.
		"H100": "H100-80-SXM", "A100": "A100-80-SXM", "H100-80": "H100-80-SXM", "A100-80": "A100-80-SXM", "A100-40": "A100-40-SXM", "V100-16": "V100-16-SXM", "H100-94": "H100-94-NVL",
	} {
		if g, ok := c.GPU(name); !ok || g.Name != want {
			t.Errorf("GPU(%q) = %q, %v, want %q", name, g.Name, ok, want)
		}
	}
	if g, ok := c.GPU("RTX"); ok {
		t.Errorf("GPU(RTX) = %q, want nothing: it may be any of several", g.Name)
	}
}

// Every GPU has the figures for predictions, in a plausible range.
func TestPresetsGPUsAreSane(t *testing.T) {
	for _, g := range presetGPUs(t) {
		nvidia := g.ComputeCapability != ""
		if nvidia == strings.HasPrefix(g.Name, "MI") {
			t.Errorf("%s: compute capability %q", g.Name, g.ComputeCapability)
		}
		if g.Link == "" || g.LinkGBs < 16 || g.LinkGBs > 900 || g.LinkGBs > g.BandwidthGBs {
			t.Errorf("%s: link %q of %v GB/s at a memory bandwidth of %v", g.Name, g.Link, g.LinkGBs, g.BandwidthGBs)
		}
		// A GPU reads its whole memory in 20 to 60 ms, and computes 70 to 400 operations per byte. H20 computes fewer.
		if pass := g.MemoryGiB / g.BandwidthGBs * 1000; pass < 15 || pass > 80 {
			t.Errorf("%s: reading all of its memory takes %.0f ms", g.Name, pass)
		}
		peaks := g.PeakTFLOPs
		if intensity := peaks["fp16"] * 1000 / g.BandwidthGBs; intensity < 35 || intensity > 450 {
			t.Errorf("%s: %.0f operations per byte", g.Name, intensity)
		}
		bf16 := !nvidia || capability(g) >= 8
		fp8, fp4 := !nvidia || capability(g) >= 8.9, capability(g) >= 10 || g.Name == "MI355X-288"
		for dtype, expected := range map[string]bool{"bf16": bf16, "fp8": fp8, "fp4": fp4} {
			if peak, has := peaks[dtype]; has != expected {
				t.Errorf("%s: peak of %s: %v, hardware for it: %v", g.Name, dtype, peak, expected)
			}
		}
		if fp8 && math.Abs(peaks["fp8"]/peaks["fp16"]-2) > 0.03 || fp4 && peaks["fp4"] < 1.9*peaks["fp8"] {
			t.Errorf("%s: peaks %v do not double from 16 to 8 to 4 bits", g.Name, peaks)
		}
	}
}

// capability returns the compute capability as a number: 10.3 is above 9.0.
func capability(g sku.GPU) float64 {
	major, minor, _ := strings.Cut(g.ComputeCapability, ".")
	var out float64
	for _, digit := range major {
		out = out*10 + float64(digit-'0')
	}
	for _, digit := range minor {
		out += float64(digit-'0') / 10
	}
	return out
}

// A profile's partitions do not have more than the whole GPU, and GPUs without partitions list none.
func TestPresetsMIG(t *testing.T) {
	with := 0
	for _, g := range presetGPUs(t) {
		for _, p := range g.MIG {
			if held := float64(p.Count) * p.MemoryGiB; held > 1.1*g.MemoryGiB || held < 0.45*g.MemoryGiB {
				t.Errorf("%s: %d × %s hold %v of %v GiB", g.Name, p.Count, p.Name, held, g.MemoryGiB)
			}
		}
		if len(g.MIG) > 0 {
			with++
		}
		if slices.Contains([]string{"T4", "V100-16", "V100-32", "A10", "L4", "L40S"}, g.Class) && len(g.MIG) > 0 {
			t.Errorf("%s cannot be partitioned", g.Name)
		}
	}
	if with != 15 {
		t.Errorf("%d GPUs can be partitioned, want 15", with)
	}
}

// A slice has its shares of the GPU, and the same kernels.
func TestPresetsSlices(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct {
		name, want                       string
		memory, bandwidth, sixteen, none float64
	}{
		{"H100 3g.40gb", "H100-80-SXM-3g.40gb", 39.5, 1676, 450, 0},
		{"H100-80-SXM-1g.10gb", "H100-80-SXM-1g.10gb", 9.75, 419, 120, 0},
		{"a100 3G.40GB", "A100-80-SXM-3g.40gb", 39.25, 1020, 121, 0},
		{"A100-40 2g.10gb", "A100-40-SXM-2g.10gb", 9.62, 389, 81, 0},
		{"H100-94-NVL 2g.24gb", "H100-94-NVL-2g.24gb", 21.5, 975, 202, 0},
		{"H200 7g.141gb", "H200-141-SXM-7g.141gb", 139.81, 4800, 989, 0},
	} {
		g, ok := c.GPU(tc.name)
		near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.01 }
		if !ok || g.Name != tc.want || g.MemoryGiB != tc.memory || !near(g.BandwidthGBs, tc.bandwidth) || !near(g.PeakTFLOPs["bf16"], tc.sixteen) ||
			g.Link != "" || len(g.MIG) > 0 || len(g.Aliases) > 0 || g.Kind() == g.Class {
			t.Errorf("%s: %+v, want %+v", tc.name, g, tc)
		}
	}
	for _, name := range []string{"L4 1g.10gb", "H100 5g.50gb", "A30 1g.6gb", "3g.40gb", "H100-80-SXM-3g.40gb-1g.10gb"} {
		if g, ok := c.GPU(name); ok {
			t.Errorf("%s is %s, want nothing", name, g.Name)
		}
	}
}

// pricedElsewhere has usable machine types that are not sold in their cloud's reference region.
var pricedElsewhere = map[string]string{
	"Standard_ND96isr_H200_v5": "eastus2",
	"a3-megagpu-8g":            "us-east4",
}

// Every usable machine has a price if its cloud has prices, and its facts agree.
func TestPresetsMachines(t *testing.T) {
	c := loadPresets(t)
	for _, s := range c.SKUs() {
		region, elsewhere := pricedElsewhere[s.Name]
		if !elsewhere {
			region = c.ReferenceRegion(s.Cloud)
		}
		if s.Unusable == "" && s.Prices[region] <= 0 {
			t.Errorf("%s may be chosen and has no price in %s", s.Name, region)
		}
		g, _ := c.GPU(s.GPU)
		if amd := g.ComputeCapability == ""; amd != (s.Resource == "amd.com/gpu") || amd && s.Unusable == "" {
			t.Errorf("%s: %s is announced as %s, unusable: %q", s.Name, g.Name, s.Resource, s.Unusable)
		}
		if s.Arch == "arm64" && s.Unusable == "" {
			t.Errorf("%s has Arm CPUs and may be chosen", s.Name)
		}
		if s.Unusable == "" && len(g.PeakTFLOPs) == 0 {
			t.Errorf("%s may be chosen and nothing is known of the speed of %s", s.Name, g.Name)
		}
		pcie := strings.HasPrefix(g.Link, "pcie")
		if pcie && s.LinkedGPUs > 0 || !pcie && s.GPUs > 1 && s.LinkedGPUs == 0 {
			t.Errorf("%s: %d × %s over %s, %d of them linked", s.Name, s.GPUs, g.Name, g.Link, s.LinkedGPUs)
		}
		if s.NetworkGBs > 0 && s.GPUs < 4 {
			t.Errorf("%s has RDMA for %d GPUs", s.Name, s.GPUs)
		}
		for region, spot := range s.SpotPrices {
			if onDemand, known := s.Prices[region]; !known || spot >= onDemand {
				t.Errorf("%s in %s costs %v as spot and %v on demand", s.Name, region, spot, onDemand)
			}
		}
	}
}

// Of two machines of a cloud with the same GPU, the one with more GPUs costs more. No machine costs more than three
// times the cheapest per GPU.
func TestPresetsPricesGrowWithGPUs(t *testing.T) {
	c := loadPresets(t)
	type key struct{ cloud, gpu, region string }
	machines := map[key][]sku.SKU{}
	for _, s := range c.SKUs() {
		for region := range s.Prices {
			if s.Unusable == "" {
				k := key{s.Cloud, s.GPU, region}
				machines[k] = append(machines[k], s)
			}
		}
	}
	compared := 0
	for k, group := range machines {
		for _, a := range group {
			for _, b := range group {
				compared++
				perA, perB := a.Prices[k.region]/float64(a.GPUs), b.Prices[k.region]/float64(b.GPUs)
				if a.GPUs > b.GPUs && a.VCPUs >= b.VCPUs && a.Prices[k.region] <= b.Prices[k.region] {
					t.Errorf("%s: %s with %d GPUs is not dearer than %s with %d", k.region, a.Name, a.GPUs, b.Name, b.GPUs)
				}
				// The largest machines with a single T4 or A10G are mostly CPUs.
				if a.VCPUs/a.GPUs == b.VCPUs/b.GPUs && perA > 3*perB {
					t.Errorf("%s: a GPU costs %.2f on %s and %.2f on %s", k.region, perA, a.Name, perB, b.Name)
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// Prices as published, to detect a table read wrongly.
func TestPresetsPrices(t *testing.T) {
	c := loadPresets(t)
	for _, tc := range []struct {
		name, region string
		want         float64
	}{
		{"Standard_NC4as_T4_v3", "eastus", 0.526},
		{"Standard_NV36ads_A10_v5", "eastus", 3.2},
		{"Standard_NV36adms_A10_v5", "eastus", 4.52},
		{"Standard_NC24ads_A100_v4", "eastus", 3.673},
		{"Standard_NC48ads_A100_v4", "eastus", 7.346},
		{"Standard_NC96ads_A100_v4", "eastus", 14.692},
		{"Standard_NC40ads_H100_v5", "eastus", 6.98},
		{"Standard_ND96isr_H100_v5", "eastus", 98.32},
		{"Standard_ND96isr_H200_v5", "eastus2", 84.8},
		{"Standard_ND96isr_H200_v5", "uksouth", 106},
		{"Standard_ND96isr_MI300X_v5", "westus3", 48},
		{"Standard_NC24ads_A100_v4", "brazilsouth", 7.346},
		{"g4dn.xlarge", "us-east-1", 0.526},
		{"g6.48xlarge", "us-east-1", 13.3504},
		{"g7e.12xlarge", "us-east-1", 8.28608},
		{"p5en.48xlarge", "us-east-1", 63.296},
		{"p6-b300.48xlarge", "us-east-1", 142.416},
		{"p4d.24xlarge", "us-gov-west-1", 26.3511},
		{"g5.xlarge", "eu-west-1", 1.123},
		{"g6e.48xlarge", "us-west-2", 30.13118},
		{"p4d.24xlarge", "eu-west-1", 0}, // it has become cheaper since the survey of other regions
		{"g2-standard-4", "us-central1", 0.706832},
		{"a2-ultragpu-1g", "us-central1", 5.068798},
		{"a3-megagpu-8g", "us-east4", 92.94},
	} {
		if s, _ := c.SKU(tc.name); s.Prices[tc.region] != tc.want {
			t.Errorf("%s in %s costs %v, want %v", tc.name, tc.region, s.Prices[tc.region], tc.want)
		}
	}
	if s, _ := c.SKU("Standard_ND96isr_H200_v5"); s.Prices["eastus"] != 0 {
		t.Error("the H200 machine is not sold in eastus")
	}
}

// Facts about machines: mistakes in them would be expensive.
func TestPresetsMachineFacts(t *testing.T) {
	c := loadPresets(t)
	for _, want := range []sku.SKU{
		{Name: "Standard_NC80adis_H100_v5", GPU: "H100-94-NVL", GPUs: 2, LinkedGPUs: 2},
		{Name: "Standard_NC96ads_A100_v4", GPU: "A100-80-PCIe", GPUs: 4, LinkedGPUs: 2},
		{Name: "Standard_ND96amsr_A100_v4", GPU: "A100-80-SXM", GPUs: 8, LinkedGPUs: 8, NetworkGBs: 25},
		{Name: "Standard_ND96isr_H200_v5", GPU: "H200-141-SXM", GPUs: 8, LinkedGPUs: 8, NetworkGBs: 50},
		{Name: "Standard_ND128isr_GB300_v6", GPU: "GB300", GPUs: 4, LinkedGPUs: 4, NetworkGBs: 100, Arch: "arm64"},
		{Name: "g6e.48xlarge", GPU: "L40S", GPUs: 8},
		{Name: "p4d.24xlarge", GPU: "A100-40-SXM", GPUs: 8, LinkedGPUs: 8, NetworkGBs: 6.25},
		{Name: "p6-b300.48xlarge", GPU: "B300-SXM", GPUs: 8, LinkedGPUs: 8, NetworkGBs: 100},
		{Name: "g2-standard-96", GPU: "L4", GPUs: 8},
		{Name: "a2-highgpu-8g", GPU: "A100-40-SXM", GPUs: 8, LinkedGPUs: 8},
	} {
		s, ok := c.SKU(want.Name)
		got := sku.SKU{Name: s.Name, GPU: s.GPU, GPUs: s.GPUs, LinkedGPUs: s.LinkedGPUs, NetworkGBs: s.NetworkGBs, Arch: s.Arch}
		if !ok || got.GPU != want.GPU || got.GPUs != want.GPUs || got.LinkedGPUs != want.LinkedGPUs ||
			got.NetworkGBs != want.NetworkGBs || got.Arch != want.Arch {
			t.Errorf("%s is %+v, want %+v", want.Name, got, want)
		}
	}
	for name, reason := range map[string]string{
		"Standard_NV6ads_A10_v5": "a sixth of an A10", "Standard_ND96isr_MI300X_v5": "AMD", "Standard_ND128isr_NDR_GB200_v6": "Arm",
		"Standard_NC128ds_xl_RTXPRO6000BSE_v6": "preview", "Standard_NC6s_v3": "retired", "p5.4xlarge": "Karpenter", "g6f.large": "an eighth",
	} {
		if s, _ := c.SKU(name); !strings.Contains(s.Unusable, reason) {
			t.Errorf("%s: unusable: %q, want a reason with %q", name, s.Unusable, reason)
		}
	}
}

// Files stay small enough for a person to read a change of prices.
func TestPresetsMachineFilesAreSmall(t *testing.T) {
	for _, name := range []string{"gpus.yaml", "skus/azure.yaml", "skus/aws.yaml", "skus/gcp.yaml"} {
		data, err := fs.ReadFile(presets.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 250_000 {
			t.Errorf("%s has %d bytes, more than 250000", name, len(data))
		}
	}
}
