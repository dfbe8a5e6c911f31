// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/presets"
)

// The labels of nodes.
const (
	product  = "nvidia.com/gpu.product"
	memory   = "nvidia.com/gpu.memory"
	typeName = "node.kubernetes.io/instance-type"
)

// identity is the tested part of a machine.
type identity struct {
	Name, GPU, From    string
	GPUs, Linked       int
	Network, MemoryGiB float64
	Capability, Failed string
}

func identify(t *testing.T, c *catalog.Catalog, n sku.Node) identity {
	t.Helper()
	m, err := c.Identify(n)
	if why, ok := errors.AsType[*catalog.UnidentifiedError](err); ok {
		return identity{Failed: why.Message}
	}
	if err != nil {
		t.Fatal(err)
	}
	return identity{
		Name: m.SKU.Name, GPU: m.GPU.Name, From: m.From, GPUs: m.SKU.GPUs, Linked: m.SKU.LinkedGPUs, Network: m.SKU.NetworkGBs,
		MemoryGiB: m.GPU.MemoryGiB, Capability: m.GPU.ComputeCapability,
	}
}

func TestIdentify(t *testing.T) {
	const annotate = "annotate the node with modelberth.dev/gpu: NAME, for example A100-80-SXM"
	labels := func(pairs ...string) map[string]string {
		out := map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	c, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	gpu := func(name string) map[string]string { return map[string]string{v1beta1.AnnotationGPU: name} }
	for _, tc := range []struct {
		reason string
		node   sku.Node
		want   identity
	}{
		{
			"feature discovery on a machine of one's own: all machines with many of the part have a switch",
			sku.Node{GPUs: 8, Labels: labels(product, "NVIDIA-H100-80GB-HBM3", memory, "81559", "nvidia.com/gpu.count", "8")},
			identity{Name: "8 × H100-80", GPU: "H100-80-SXM", From: "label " + product, GPUs: 8, Linked: 8, MemoryGiB: 79.1, Capability: "9.0"},
		},
		{
			"bridges between PCIe cards are an extra, so none are assumed",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-A100-80GB-PCIe", memory, "81920")},
			identity{Name: "4 × A100-80", GPU: "A100-80-PCIe", From: "label " + product, GPUs: 4, MemoryGiB: 79.14, Capability: "8.0"},
		},
		{
			"older drivers leave the maker out",
			sku.Node{GPUs: 1, Labels: labels(product, "A100-SXM4-40GB", memory, "39538")},
			identity{Failed: `its GPU "A100-SXM4-40GB" is not in the catalogue, and the node has no label nvidia.com/gpu.compute.major with its compute capability: ` +
				"install GPU feature discovery, or " + annotate},
		},
		{
			"older drivers leave the maker out, and the whole memory is there",
			sku.Node{GPUs: 1, Labels: labels(product, "A100-SXM4-40GB", memory, "40960")},
			identity{Name: "1 × A100-40", GPU: "A100-40-SXM", From: "label " + product, GPUs: 1, MemoryGiB: 39.4, Capability: "8.0"},
		},
		{
			"the machine type adds its links and its network",
			sku.Node{GPUs: 8, Labels: labels(product, "NVIDIA-H100-80GB-HBM3", typeName, "standard_nd96isr_h100_v5")},
			identity{
				Name: "Standard_ND96isr_H100_v5", GPU: "H100-80-SXM", From: "label " + product, GPUs: 8, Linked: 8, Network: 50,
				MemoryGiB: 79.1, Capability: "9.0",
			},
		},
		{
			"the machine type alone",
			sku.Node{GPUs: 2, Labels: labels(typeName, "Standard_NC48ads_A100_v4")},
			identity{
				Name: "Standard_NC48ads_A100_v4", GPU: "A100-80-PCIe", From: "label " + typeName, GPUs: 2, Linked: 2, MemoryGiB: 79.14, Capability: "8.0",
			},
		},
		{
			"feature discovery is believed before the machine type",
			sku.Node{GPUs: 1, Labels: labels(product, "NVIDIA-L4", typeName, "Standard_NC24ads_A100_v4")},
			identity{Name: "Standard_NC24ads_A100_v4", GPU: "L4", From: "label " + product, GPUs: 1, MemoryGiB: 22, Capability: "8.9"},
		},
		{
			"a machine type is believed where the product is new, if the memory goes with it",
			sku.Node{GPUs: 1, Labels: labels(product, "NVIDIA-A100-New", memory, "81920", typeName, "Standard_NC24ads_A100_v4")},
			identity{
				Name: "Standard_NC24ads_A100_v4", GPU: "A100-80-PCIe", From: "label " + typeName, GPUs: 1, MemoryGiB: 79.14, Capability: "8.0",
			},
		},
		{
			"the annotation, where nothing else tells",
			sku.Node{GPUs: 4, Labels: labels(typeName, "k3s"), Annotations: gpu("a100 80 sxm")},
			identity{Name: "k3s", GPU: "A100-80-SXM", From: "annotation modelberth.dev/gpu", GPUs: 4, Linked: 4, MemoryGiB: 79.14, Capability: "8.0"},
		},
		{
			"a misspelt annotation",
			sku.Node{GPUs: 1, Annotations: gpu("A100-81")},
			identity{Failed: `annotation modelberth.dev/gpu: "A100-81" is not the name of a GPU: did you mean A100-80?`},
		},
		{
			"an annotation that promises more than the label",
			sku.Node{GPUs: 1, Labels: labels(product, "GRID-A100D-20C", memory, "20480"), Annotations: gpu("A100-80")},
			identity{Failed: "annotation modelberth.dev/gpu: A100-80-SXM has 79.14 GiB of memory, but the label nvidia.com/gpu.memory says 20.0 GiB: correct the annotation"},
		},
		{
			"an unknown GPU: memory and compute capability, no more",
			sku.Node{GPUs: 1, Labels: labels(product, "NVIDIA-RTX-6000-Ada", memory, "46068", "nvidia.com/gpu.compute.major", "8", "nvidia.com/gpu.compute.minor", "9")},
			identity{Name: "1 × NVIDIA-RTX-6000-Ada", GPU: "NVIDIA-RTX-6000-Ada", From: "label " + memory, GPUs: 1, MemoryGiB: 0.97 * 46068 / 1024, Capability: "8.9"},
		},
		{
			"a part of a known GPU that has its name is not that GPU",
			sku.Node{GPUs: 1, Labels: labels(product, "NVIDIA-A10", memory, "12288", "nvidia.com/gpu.compute.major", "8")},
			identity{Name: "1 × NVIDIA-A10", GPU: "NVIDIA-A10", From: "label " + memory, GPUs: 1, MemoryGiB: 0.97 * 12, Capability: "8.0"},
		},
		{
			"an unknown GPU of unknown size",
			sku.Node{GPUs: 1, Labels: labels(product, "NVIDIA-RTX-6000-Ada", memory, "plenty")},
			identity{Failed: `its GPU "NVIDIA-RTX-6000-Ada" is not in the catalogue, and the node has no label nvidia.com/gpu.memory with its memory: ` +
				"install GPU feature discovery, or " + annotate},
		},
		{
			"nothing tells",
			sku.Node{GPUs: 1, Labels: labels()},
			identity{Failed: "its GPUs are unknown, because it has neither labels of GPU feature discovery nor a known instance type: install GPU feature discovery, or " + annotate},
		},
		{
			"a machine type with a part of a GPU",
			sku.Node{GPUs: 1, Labels: labels(typeName, "Standard_NV18ads_A10_v5")},
			identity{Failed: "the catalogue excludes its machine type Standard_NV18ads_A10_v5: half of an A10 (12 GB), shared with other machines; " +
				"install GPU feature discovery, or " + annotate},
		},
		{
			"a machine type that is not sold any more does not matter where the GPU is known",
			sku.Node{GPUs: 1, Labels: labels(product, "Tesla-V100-SXM2-16GB", typeName, "p3.2xlarge")},
			identity{Name: "p3.2xlarge", GPU: "V100-16-SXM", From: "label " + product, GPUs: 1, MemoryGiB: 15.77, Capability: "7.0"},
		},
		{
			"slices",
			sku.Node{GPUs: 7, Labels: labels(product, "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/mig.strategy", "single")},
			identity{Name: "7 × A100-80-1g.10gb", GPU: "A100-80-SXM-1g.10gb", From: "label nvidia.com/gpu.product", GPUs: 7, MemoryGiB: 9.5, Capability: "8.0"},
		},
		{
			"slices with a resource of their own",
			sku.Node{Slices: map[string]int{"3g.40gb": 4}, Labels: labels(product, "NVIDIA-H100-80GB-HBM3", typeName, "metal",
				"nvidia.com/mig-3g.40gb.product", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb")},
			identity{Name: "metal", GPU: "H100-80-SXM-3g.40gb", From: "label nvidia.com/gpu.product", GPUs: 4, MemoryGiB: 39.5, Capability: "9.0"},
		},
		{
			"slices of a known machine type",
			sku.Node{Slices: map[string]int{"1g.18gb": 56}, Labels: labels(typeName, "p5en.48xlarge")},
			identity{Name: "p5en.48xlarge", GPU: "H200-141-SXM-1g.18gb", From: "label " + typeName, GPUs: 56, MemoryGiB: 16, Capability: "9.0"},
		},
		{
			"slices of several sizes",
			sku.Node{Slices: map[string]int{"3g.40gb": 1, "1g.10gb": 4}, Labels: labels(product, "NVIDIA-H100-80GB-HBM3")},
			identity{Failed: "advertises GPUs or slices of several sizes, but this version only plans for nodes with one size"},
		},
		{
			"slices without known shares",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-A30-MIG-1g.6gb")},
			identity{Failed: "its GPUs are cut into MIG slices (1g.6gb), whose shares of the GPU are not in the catalogue"},
		},
		{
			"time slicing",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-L4", "nvidia.com/gpu.replicas", "4", "nvidia.com/gpu.sharing-strategy", "time-slicing")},
			identity{Failed: "its GPUs are shared by time-slicing, so none of their memory is guaranteed: have the administrator turn off sharing " +
				"in the device plugin's configuration"},
		},
		{
			"sharing by its suffix",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-L4-SHARED")},
			identity{Failed: "its GPUs are shared by several pods, so none of their memory is guaranteed: have the administrator turn off sharing " +
				"in the device plugin's configuration"},
		},
		{
			"sharing that no label tells",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-L4", "nvidia.com/gpu.count", "1")},
			identity{Failed: "advertises 4 of nvidia.com/gpu for 1 GPUs: the GPUs are shared, so none of their memory is guaranteed"},
		},
		{
			"a GPU that has failed is not announced",
			sku.Node{GPUs: 7, Labels: labels(product, "NVIDIA-H200", "nvidia.com/gpu.count", "8")},
			identity{Name: "7 × H200", GPU: "H200-141-SXM", From: "label " + product, GPUs: 7, Linked: 7, MemoryGiB: 139.81, Capability: "9.0"},
		},
		{
			"no device plugin",
			sku.Node{Labels: labels(product, "NVIDIA-L4")},
			identity{Failed: "advertises no nvidia.com/gpu: it has no GPUs, or no working device plugin"},
		},
		{
			"Arm",
			sku.Node{GPUs: 4, Labels: labels(product, "NVIDIA-GB200", "kubernetes.io/arch", "arm64")},
			identity{Failed: "has arm64 CPUs: this version has no images for them"},
		},
		{
			"Windows",
			sku.Node{GPUs: 4, Labels: labels("kubernetes.io/os", "windows")},
			identity{Failed: "runs windows, but engines need linux"},
		},
		{
			"absurd labels",
			sku.Node{GPUs: 1, Labels: labels(product, "X", memory, "-5", "nvidia.com/gpu.compute.major", "eight", "nvidia.com/gpu.count", "99999999999999999999")},
			identity{Failed: `its GPU "X" is not in the catalogue, and the node has no label nvidia.com/gpu.memory with its memory: ` +
				"install GPU feature discovery, or " + annotate},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, identify(t, c, tc.node)); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}

// Every GPU with a product name from NVML is found by that name, and by the name from an older driver.
func TestProducts(t *testing.T) {
	c, err := catalog.Load(presets.FS())
	if err != nil {
		t.Fatal(err)
	}
	products := 0
	for _, g := range c.GPUs() {
		for _, p := range g.Products {
			products++
			m, err := c.Identify(sku.Node{GPUs: 1, Labels: map[string]string{product: p}})
			if err != nil || m.GPU.Name != g.Name || m.SKU.LinkedGPUs != 0 {
				t.Errorf("product %s is %s (%v), want %s without links", p, m.GPU.Name, err, g.Name)
			}
		}
	}
	if products < 20 {
		t.Errorf("only %d products", products)
	}
}

// A product name may mean only one GPU.
func TestProductsAreDistinct(t *testing.T) {
	part := func(name, product string) string {
		return "{name: " + name + ", class: " + name + ", products: [" + product + "], memoryGiB: 1, bandwidthGBs: 1}"
	}
	for _, tc := range []struct{ reason, yaml, want string }{
		{
			"two parts", "gpus: [" + part("A", "NVIDIA-X") + ", " + part("B", "x") + "]",
			`catalogue file "a.yaml": GPU "B": the product "x" already belongs to "A"`,
		},
		{
			"a name that no label has", "gpus: [" + part("A", `"NVIDIA X"`) + "]",
			`catalogue file "a.yaml": gpus[0] "A": products[0]: "NVIDIA X" must be a label's value such as NVIDIA-A100-SXM4-80GB`,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := catalog.Load(files(map[string]string{"a.yaml": "source: s\ndate: \"2026-01-01\"\n" + tc.yaml}))
			if err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
