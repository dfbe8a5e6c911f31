// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/presets"
)

func overlay(text string) fs.FS {
	return files(map[string]string{"overrides.yaml": text})
}

func TestOverrides(t *testing.T) {
	small := func(change func(*sku.SKU)) sku.SKU {
		s := sku.SKU{
			Name: "Small", Cloud: "azure", GPU: "G-16", GPUs: 1, Resource: "nvidia.com/gpu", VCPUs: 4, MemoryGiB: 28,
			Prices: map[string]float64{"eastus": 0.5},
		}
		change(&s)
		return s
	}
	const other = `
cloud: azure
skus: [{name: SMALL, vcpus: 1, memoryGiB: 2, unusable: why not}]
`
	for _, tc := range []struct {
		reason string
		layers []fs.FS
		want   sku.SKU
	}{
		{
			"a price in one region leaves the others",
			[]fs.FS{overlay("overrides: [{name: Small, prices: {westus: 0.4}}]")},
			small(func(s *sku.SKU) { s.Prices["westus"] = 0.4 }),
		},
		{
			"a name in another case, and a price of 0",
			[]fs.FS{overlay("overrides: [{name: sMALL, prices: {eastus: 0}}]")},
			small(func(s *sku.SKU) { s.Prices["eastus"] = 0 }),
		},
		{
			"a spot price makes it a spot machine",
			[]fs.FS{overlay("overrides: [{name: Small, spotPrices: {eastus: 0.1}}]")},
			small(func(s *sku.SKU) { s.Spot, s.SpotPrices = true, map[string]float64{"eastus": 0.1} }),
		},
		{
			"a reservation",
			[]fs.FS{overlay("overrides: [{name: Small, reserved: true}]")},
			small(func(s *sku.SKU) { s.Reserved = true }),
		},
		{
			"never this one",
			[]fs.FS{overlay("overrides: [{name: Small, unusable: no quota}]")},
			small(func(s *sku.SKU) { s.Unusable = "no quota" }),
		},
		{
			"a later layer wins where it says something",
			[]fs.FS{
				overlay("overrides: [{name: Small, reserved: true, unusable: no quota, prices: {eastus: 3, westus: 4}}]"),
				overlay("overrides: [{name: Small, unusable: '', prices: {eastus: 2}}]"),
			},
			small(func(s *sku.SKU) { s.Reserved, s.Prices = true, map[string]float64{"eastus": 2, "westus": 4} }),
		},
		{
			"a machine type of the same layer is overridden, whatever the files' order",
			[]fs.FS{files(map[string]string{"a.yaml": "overrides: [{name: Small, unusable: ''}]", "b.yaml": other})},
			sku.SKU{Name: "SMALL", Cloud: "azure", VCPUs: 1, MemoryGiB: 2},
		},
		{
			"a later layer's machine type is as it says",
			[]fs.FS{overlay("overrides: [{name: Small, reserved: true}]"), overlay(other)},
			sku.SKU{Name: "SMALL", Cloud: "azure", VCPUs: 1, MemoryGiB: 2, Unusable: "why not"},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c, err := load(tc.layers...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]sku.SKU{tc.want}, c.SKUs()); diff != "" {
				t.Errorf("machine types (-want +got):\n%s", diff)
			}
			if got, ok := c.SKU("small"); !ok || cmp.Diff(tc.want, got) != "" {
				t.Errorf("SKU(small) = %+v, %v, want what SKUs returns", got, ok)
			}
		})
	}
}

func TestOverridesAreRefused(t *testing.T) {
	const file = `catalogue file "overrides.yaml": `
	for _, tc := range []struct{ reason, text, want string }{
		{
			"a price of -1", "overrides: [{name: Small, prices: {eastus: -1}}]",
			file + `overrides[0] "Small": prices.eastus: -1 must be from 0 to 100000`,
		},
		{
			"a spot price that is none", "overrides: [{name: Small, spotPrices: {eastus: .nan}}]",
			file + `unsupported value: NaN`,
		},
		{
			"a price that somebody forgot, which must not be 0", "overrides:\n- name: Small\n  prices:\n    eastus:\n",
			file + `overrides[0] "Small": prices.eastus is empty: give a value or leave it out`,
		},
		{
			"a price in words", "overrides: [{name: Small, prices: {eastus: cheap}}]",
			file + `overrides[0] "Small": prices: found the text "cheap" instead of a number`,
		},
		{
			"a region that is none", "overrides: [{name: Small, prices: {East US: 1}}]",
			file + `overrides[0] "Small": prices: "East US" must be a region such as eastus`,
		},
		{
			"an unknown machine type", "overrides: [{name: Smal, reserved: true}]",
			file + `overrides: instance type "Smal" is not in the catalogue: did you mean Small?`,
		},
		{
			"no name", "overrides: [{reserved: true}]",
			file + `overrides[0]: name: "" must be an instance type such as Standard_NC24ads_A100_v4`,
		},
		{
			"nothing to change", "overrides: [{name: Small}]",
			file + `overrides[0] "Small": it has no effect: set prices, spotPrices, reserved or unusable`,
		},
		{
			"one name twice", "overrides: [{name: Small, reserved: true}, {name: SMALL, reserved: false}]",
			file + `overrides[1] "SMALL": the name is taken by an entry of file "overrides.yaml"`,
		},
		{
			"a field of a machine type that is not to be overridden", "overrides: [{name: Small, gpus: 8}]",
			file + `overrides[0] "Small": unknown field "gpus"`,
		},
		{
			"a reason over two lines", `overrides: [{name: Small, unusable: "a\nb"}]`,
			file + `overrides[0] "Small": unusable: "a\nb"… must be one line of at most 200 bytes`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := load(overlay(tc.text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// The example matches its comments.
func TestNegotiatedPricesLoad(t *testing.T) {
	c, err := catalog.Load(presets.FS(), os.DirFS("../../examples/negotiated-prices"))
	if err != nil {
		t.Fatal(err)
	}
	before := loadPresets(t)
	changed := 0
	for _, s := range c.SKUs() {
		old, _ := before.SKU(s.Name)
		if cmp.Diff(old, s) != "" {
			changed++
		}
	}
	negotiated, _ := c.SKU("Standard_NC24ads_A100_v4")
	reserved, _ := c.SKU("Standard_NC40ads_H100_v5")
	refused, _ := c.SKU("Standard_NC4as_T4_v3")
	wanted, _ := c.SKU("a3-ultragpu-8g")
	if changed != 4 || negotiated.Prices["eastus"] != 2.94 || negotiated.Prices["westus2"] != 3.673 || !reserved.Reserved ||
		refused.Unusable == "" || wanted.Unusable != "" || len(wanted.Prices) != 1 {
		t.Errorf("%d machine types changed: %+v, %+v, %+v, %+v", changed, negotiated, reserved, refused, wanted)
	}
}

func TestMachinesAreChecked(t *testing.T) {
	const gpu = `gpus: [{name: H, class: H, memoryGiB: 80, bandwidthGBs: 3000, `
	const machine = "cloud: azure\nskus: [{name: X, gpu: G-16, gpus: 4, resource: nvidia.com/gpu, vcpus: 4, memoryGiB: 28, "
	for _, tc := range []struct{ reason, text, want string }{
		{"a peak of an unknown type", gpu + "peakTFLOPs: {fp7: 1}}]", `gpus[0] "H": peakTFLOPs: "fp7" must be fp16, bf16, fp8, fp4 or int8`},
		{"no peak", gpu + "peakTFLOPs: {fp16: 0}}]", `gpus[0] "H": peakTFLOPs.fp16: 0 must be above 0 and at most 1e+06`},
		{
			"an unknown link", gpu + "link: rope, linkGBs: 1}]",
			`gpus[0] "H": link: "rope" must be nvlink2, nvlink3, nvlink4, nvlink5, pcie3, pcie4, pcie5, xgmi or c2c`,
		},
		{"a link without a rate", gpu + "link: pcie4}]", `gpus[0] "H": linkGBs: 0 must be above 0 and at most 10000`},
		{
			"a partition twice", gpu + "mig: [{name: 1g.10gb, count: 7, memoryGiB: 10}, {name: 1g.10gb, count: 7, memoryGiB: 10}]}]",
			`gpus[0] "H": mig[1].name: "1g.10gb" is given twice`,
		},
		{
			"partitions out of order", gpu + "mig: [{name: 2g.20gb, count: 3, memoryGiB: 20}, {name: 1g.10gb, count: 7, memoryGiB: 10}]}]",
			`gpus[0] "H": mig[1].memoryGiB: 10 must not be below the 20 of the profile before`,
		},
		{
			"a class that is another's name", `gpus: [{name: H, class: G-16, memoryGiB: 80, bandwidthGBs: 3000}]`,
			`GPU "H": class: "G-16" is already the name of "G-16", a GPU of class "G"`,
		},
		{"an alias with blanks", gpu + "aliases: [H 80]}]", `gpus[0] "H": aliases[0]: "H 80" must be a name such as A100-80, with dashes instead of spaces`},
		{"more linked GPUs than there are", machine + "linkedGPUs: 8}]", `skus[0] "X": linkedGPUs: 8 must be from 0 to 4`},
		{"groups that do not come out even", machine + "linkedGPUs: 3}]", `skus[0] "X": linkedGPUs: 3 must be 0, or at least 2 and a divisor of gpus (4)`},
		{"a network that is none", machine + "networkGBs: -1}]", `skus[0] "X": networkGBs: -1 must be from 0 to 10000`},
		{"an unknown architecture", machine + "arch: arm}]", `skus[0] "X": arch: "arm" must be amd64 or arm64`},
		{"a provisioner that is none", machine + "provisioners: [Karpenter]}]", `skus[0] "X": provisioners[0]: "Karpenter" must be a lower-case name such as karpenter`},
		{"a spot price of no spot machine", machine + "spotPrices: {eastus: 1}}]", `skus[0] "X": spotPrices: 1 requires spot: true`},
		{"a negative spot price", machine + "spot: true, spotPrices: {eastus: -1}}]", `skus[0] "X": spotPrices.eastus: -1 must be from 0 to 100000`},
		{"a price that somebody forgot", machine + "prices: {eastus: }}]", `skus[0] "X": prices.eastus is empty: give a value or leave it out`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := load(files(map[string]string{"f.yaml": tc.text}))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(`catalogue file "f.yaml": `+tc.want, err.Error()); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a file contains, as the base or as an overlay, the result is a valid catalogue, or an error of one line with
// the file's name.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte("overrides: [{name: Small, prices: {eastus: 1, westus: -0}, spotPrices: {r: 1e-300}, reserved: true, unusable: ''}]"))
	f.Add([]byte("overrides:\n- name: Small\n  prices: {? [a] : 1}\n"))
	f.Add([]byte("source: s\ndate: '2026-01-31'\ngpus: [{name: a, class: b, memoryGiB: 1, bandwidthGBs: 1, mig: [{}], peakTFLOPs: {fp16: 1}}, {name: b, class: c}]"))
	f.Add([]byte("gpus: [{name: a b, class: \"\\n\", aliases: [~]}]\nskus: [{gpus: -9223372036854775808, linkedGPUs: 1}]"))
	f.Add([]byte("cloud: gcp\nregion: us-central1\nskus:\n- {name: g, gpu: G-16, gpus: 8, resource: r/g, vcpus: 1, memoryGiB: 2," +
		" linkedGPUs: 4, networkGBs: 6.25, arch: arm64, provisioners: [karpenter], spot: true, spotPrices: {us-central1: 1}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		content := files(map[string]string{"fuzzed.yaml": string(data)})
		for _, loaded := range []func() (*catalog.Catalog, error){
			func() (*catalog.Catalog, error) { return catalog.Load(content) },
			func() (*catalog.Catalog, error) { return load(content) },
			func() (*catalog.Catalog, error) { return load(content, content) },
		} {
			c, err := loaded()
			if err != nil {
				text := err.Error()
				if strings.ContainsAny(text, "\n\r") || !strings.HasPrefix(text, `catalogue file "`) || len(text) > 4096 {
					t.Errorf("message is not one line that names the file: %q", text)
				}
				continue
			}
			checkMachines(t, c)
		}
	})
}

// checkMachines checks the planner's assumptions about a catalogue.
func checkMachines(t *testing.T, c *catalog.Catalog) {
	t.Helper()
	for _, s := range c.SKUs() {
		g, ok := c.GPU(s.GPU)
		if s.GPUs > 0 && (!ok || g.Name != s.GPU) {
			t.Errorf("%s has the unknown GPU %q", s.Name, s.GPU)
		}
		if class, ok := c.GPU(g.Class); s.GPUs > 0 && (!ok || !strings.EqualFold(class.Class, g.Class)) {
			t.Errorf("the class %q of %s stands for %q", g.Class, g.Name, class.Name)
		}
		for _, prices := range []map[string]float64{s.Prices, s.SpotPrices} {
			for region, price := range prices {
				if math.IsNaN(price) || math.IsInf(price, 0) || price < 0 {
					t.Errorf("%s costs %v in %s", s.Name, price, region)
				}
			}
		}
	}
}
