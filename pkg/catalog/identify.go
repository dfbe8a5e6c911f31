// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Labels of nodes. GPU feature discovery sets NVIDIA's labels: github.com/NVIDIA/k8s-device-plugin,
// docs/gpu-feature-discovery.
const (
	labelInstanceType = "node.kubernetes.io/instance-type"
	labelArch         = "kubernetes.io/arch"
	labelOS           = "kubernetes.io/os"

	labelProduct      = "nvidia.com/gpu.product"
	labelMemory       = "nvidia.com/gpu.memory"
	labelCount        = "nvidia.com/gpu.count"
	labelReplicas     = "nvidia.com/gpu.replicas"
	labelSharing      = "nvidia.com/gpu.sharing-strategy"
	labelComputeMajor = "nvidia.com/gpu.compute.major"
	labelComputeMinor = "nvidia.com/gpu.compute.minor"
)

const (
	// nvidiaGPU is the resource of NVIDIA's device plugin.
	nvidiaGPU = "nvidia.com/gpu"
	// visibleShare is the part of the board's memory, as in the label, that programs can use. It is the smallest in the
	// catalogue: 14.56 of the 15.0 GiB of a T4.
	visibleShare = 0.97
	// mostConnectedBy is the largest number of GPUs that NVLink bridges connect. More GPUs need a switch.
	mostConnectedBy = 2
)

// UnidentifiedError explains why a node's GPUs are unknown or unused.
type UnidentifiedError struct{ Message string }

// Error returns a sentence without the node's name.
func (e *UnidentifiedError) Error() string { return e.Message }

func unidentified(format string, args ...any) error {
	return &UnidentifiedError{Message: fmt.Sprintf(format, args...)}
}

// Identify identifies a node: by the labels of GPU feature discovery, else by its instance type, else by the
// annotation modelberth.dev/gpu, else by the memory and the compute capability in the labels alone. The error is an
// *UnidentifiedError.
func (c *Catalog) Identify(n sku.Node) (sku.Machine, error) {
	if err := unfit(n); err != nil {
		return sku.Machine{}, err
	}
	known, typed := c.SKU(n.Labels[labelInstanceType])
	if out, err := c.sliced(&n, known); out.GPU.Name != "" || err != nil {
		return out, err
	}
	gpu, from, err := c.gpuOf(n, known)
	if err != nil {
		return sku.Machine{}, err
	}
	out := sku.Machine{GPU: gpu, From: from, SKU: sku.SKU{
		Name: n.Labels[labelInstanceType], GPU: gpu.Name, GPUs: n.GPUs, Resource: nvidiaGPU,
		VCPUs: n.VCPUs, MemoryGiB: n.MemoryGiB, Arch: n.Labels[labelArch],
	}}
	if typed && known.GPU == gpu.Name {
		out.SKU.Name, out.SKU.Cloud, out.SKU.NetworkGBs = known.Name, known.Cloud, known.NetworkGBs
		out.SKU.LinkedGPUs = min(known.LinkedGPUs, n.GPUs)
	} else if c.switched(gpu.Name) && n.GPUs > 1 {
		out.SKU.LinkedGPUs = n.GPUs
	}
	if out.SKU.LinkedGPUs < 2 {
		out.SKU.LinkedGPUs = 0
	}
	out.SKU.Name = cmp.Or(out.SKU.Name, fmt.Sprintf("%d × %s", n.GPUs, gpu.Class))
	return out, nil
}

// unfit returns an error if a node's GPUs are unusable, regardless of their model.
func unfit(n sku.Node) error {
	product, replicas := n.Labels[labelProduct], number(n.Labels[labelReplicas])
	counted := number(n.Labels[labelCount])
	switch system, arch := n.Labels[labelOS], n.Labels[labelArch]; {
	case system != "" && system != "linux":
		return unidentified("runs %s, but engines need linux", system)
	case arch != "" && arch != "amd64":
		return unidentified("has %s CPUs: this version has no images for them", arch)
	case n.GPUs > 0 && len(n.Slices) > 0, len(n.Slices) > 1:
		return unidentified("advertises GPUs or slices of several sizes, but this version only plans for nodes with one size")
	case n.GPUs == 0 && len(n.Slices) == 0:
		return unidentified("advertises no %s: it has no GPUs, or no working device plugin", nvidiaGPU)
	case replicas > 1, strings.HasSuffix(product, "-SHARED"), shares(n.Labels[labelSharing]):
		return unidentified("its GPUs are shared by %s, so none of their memory is guaranteed: have the administrator "+
			"turn off sharing in the device plugin's configuration", cmp.Or(n.Labels[labelSharing], "several pods"))
	case counted > 0 && n.GPUs > counted:
		return unidentified("advertises %d of %s for %d GPUs: the GPUs are shared, so none of their memory is guaranteed",
			n.GPUs, nvidiaGPU, counted)
	}
	return nil
}

// sliced returns the machine of a node with MIG slices; zero without slices. With the device plugin's strategy mixed,
// slices have their own resource. With single, they are advertised as whole GPUs.
func (c *Catalog) sliced(n *sku.Node, known sku.SKU) (sku.Machine, error) {
	product, profile, isSlice := strings.Cut(n.Labels[labelProduct], migMark)
	resource, number := nvidiaGPU, n.GPUs
	for name, announced := range n.Slices {
		number += announced
		profile, isSlice, resource = name, true, migResource+name
		product, _, _ = strings.Cut(cmp.Or(n.Labels[resource+".product"], n.Labels[labelProduct]), migMark)
	}
	if !isSlice {
		return sku.Machine{}, nil
	}
	from := "label " + labelProduct
	whole, ok := c.products[productKey(product)]
	if !ok {
		whole, ok = c.GPU(known.GPU)
		from = "label " + labelInstanceType
	}
	var slice sku.GPU
	if ok {
		slice, ok = whole.Slice(profile)
	}
	if !ok {
		return sku.Machine{}, unidentified("its GPUs are cut into MIG slices (%s), whose shares of the GPU are not in the catalogue", profile)
	}
	return sku.Machine{GPU: slice, From: from, SKU: sku.SKU{
		Name: cmp.Or(n.Labels[labelInstanceType], fmt.Sprintf("%d × %s", number, slice.Class)), GPU: slice.Name, GPUs: number,
		Resource: resource, VCPUs: n.VCPUs, MemoryGiB: n.MemoryGiB, Arch: n.Labels[labelArch],
	}}, nil
}

const (
	// migMark separates a GPU's product from the profile of its slices.
	migMark = "-MIG-"
	// migResource is the prefix of the resources of slices.
	migResource = "nvidia.com/mig-"
)

func shares(strategy string) bool { return strategy != "" && strategy != "none" }

// gpuOf returns a node's GPU and the source of it. known is its machine type, if the catalogue has it.
func (c *Catalog) gpuOf(n sku.Node, known sku.SKU) (gpu sku.GPU, from string, err error) {
	product, label := n.Labels[labelProduct], labelledGiB(n)
	if g, ok := c.products[productKey(product)]; ok && holds(g, label) {
		return g.Clone(), "label " + labelProduct, nil
	}
	if g, ok := c.GPU(known.GPU); ok && known.GPU != "" && known.Unusable == "" && holds(g, label) {
		return g, "label " + labelInstanceType, nil
	}
	if name := n.Annotations[v1beta1.AnnotationGPU]; name != "" {
		g, ok := c.GPU(name)
		switch {
		case !ok:
			return sku.GPU{}, "", unidentified("annotation %s: %q is not the name of a GPU%s",
				v1beta1.AnnotationGPU, name, suggestion(c.SimilarGPUs(name)))
		case !holds(g, label):
			return sku.GPU{}, "", unidentified("annotation %s: %s has %g GiB of memory, but the label %s says %.1f GiB: "+
				"correct the annotation",
				v1beta1.AnnotationGPU, g.Name, g.MemoryGiB, labelMemory, label)
		}
		return g, "annotation " + v1beta1.AnnotationGPU, nil
	}
	return unknownGPU(n, known)
}

// unknownGPU describes a GPU outside the catalogue from a node's labels.
func unknownGPU(n sku.Node, known sku.SKU) (gpu sku.GPU, from string, err error) {
	product, label, major := n.Labels[labelProduct], labelledGiB(n), n.Labels[labelComputeMajor]
	capability := major + "." + cmp.Or(n.Labels[labelComputeMinor], "0")
	wayOut := fmt.Sprintf("install GPU feature discovery, or annotate the node with %s: NAME, for example A100-80-SXM", v1beta1.AnnotationGPU)
	switch {
	case product == "" && label == 0 && known.Unusable != "":
		return gpu, "", unidentified("the catalogue excludes its machine type %s: %s; %s", known.Name, known.Unusable, wayOut)
	case product == "" && label == 0:
		return gpu, "", unidentified("its GPUs are unknown, because it has neither labels of GPU feature discovery nor a known instance type: %s", wayOut)
	case label == 0:
		return gpu, "", unidentified("its GPU %q is not in the catalogue, and the node has no label %s with its memory: %s",
			product, labelMemory, wayOut)
	case !isCapability(capability):
		return gpu, "", unidentified("its GPU %q is not in the catalogue, and the node has no label %s with its compute capability: %s",
			product, labelComputeMajor, wayOut)
	}
	name := cmp.Or(product, "GPU-"+capability)
	return sku.GPU{Name: name, Class: name, MemoryGiB: label * visibleShare, ComputeCapability: capability}, "label " + labelMemory, nil
}

// holds reports whether a GPU of the catalogue matches the memory in a label. A slice of the GPU has less. 0 means no
// label.
func holds(g sku.GPU, labelled float64) bool { return labelled == 0 || labelled >= g.MemoryGiB }

// labelledGiB returns the memory of each GPU from the label; 0 without a label.
func labelledGiB(n sku.Node) float64 { return float64(number(n.Labels[labelMemory])) / 1024 }

// number parses a label; 0 if it is not a plausible number.
func number(text string) int {
	const most = mostMemoryGiB * 1024
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > most {
		return 0
	}
	return value
}

// switched reports whether a switch connects all GPUs in every machine type of the catalogue with more than two of a
// GPU. If so, other machines with the GPU count as switched, too.
func (c *Catalog) switched(gpu string) bool {
	many := 0
	for i := range c.sortedSKUs {
		if s := &c.sortedSKUs[i]; s.GPU == gpu && s.GPUs > mostConnectedBy {
			if s.LinkedGPUs < s.GPUs {
				return false
			}
			many++
		}
	}
	return many > 0
}

// productKey returns the key of a GPU's product name. It removes the maker, because older drivers omit it.
func productKey(product string) string {
	return strings.TrimPrefix(strings.ToLower(product), "nvidia-")
}

// indexProducts indexes GPUs by their product names.
func (m *merger) indexProducts(c *Catalog) error {
	for _, o := range m.gpus.sorted() {
		for _, product := range slices.Compact(slices.Sorted(slices.Values(o.entry.Products))) {
			if other, taken := c.products[productKey(product)]; taken {
				return fmt.Errorf("catalogue file %q: GPU %q: the product %q already belongs to %q", o.file, o.entry.Name, product, other.Name)
			}
			c.products[productKey(product)] = o.entry
		}
	}
	return nil
}
