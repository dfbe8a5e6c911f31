// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/sku"
)

const (
	bytesPerGiB = 1 << 30
	gbPerGiB    = float64(bytesPerGiB) / 1e9

	// azureDefaultGB is the OS disk of an AKSNodeClass without a size (karpenter-provider-azure v1.10.2,
	// pkg/apis/v1beta1/aksnodeclass.go).
	azureDefaultGB = 128
	// awsDefaultGiB is the root volume of an EC2NodeClass without mappings, of every AMI family
	// (karpenter-provider-aws v1.10.0, DefaultEBS in pkg/providers/amifamily).
	awsDefaultGiB = 20

	// autoMode is the API group of EKS Auto Mode. Its NodeClass has the size of the disk in spec.ephemeralStorage.size
	// (Amazon EKS user guide, "Create a Node Class").
	autoMode = "eks.amazonaws.com"

	// podsShare is the share of a disk for pods and images: a kubelet evicts pods when a tenth is left, and the system
	// needs some space, too. It affects only the recommended size.
	podsShare = 0.85
)

// Disk is the need for disk space on a machine, and the size of its local disks.
type Disk struct {
	// GiB of weights and image.
	GiB int
	// LocalGiB of the local disks of the machine type, without its OS disk.
	LocalGiB float64
}

// isDescribed reports whether a node class sets the size of its machines' disk.
func isDescribed(ref v1beta1.NodeClassReference) bool {
	provider := refusal.ProviderOf(ref.Group, ref.Kind)
	return provider == refusal.KarpenterAzure || provider == refusal.KarpenterAWS
}

// LacksDisk returns a sentence with the setting to change if the disk of a node class's machines is too small:
// Karpenter would find no suitable machine. It is empty if the disk is large enough, or if its size is unknown.
func LacksDisk(class *unstructured.Unstructured, need Disk) string {
	gvk := class.GroupVersionKind()
	switch refusal.ProviderOf(gvk.Group, gvk.Kind) {
	case refusal.KarpenterAzure:
		return need.onAzure(class)
	case refusal.KarpenterAWS:
		if gvk.Group == autoMode {
			return need.onAutoMode(class)
		}
		return need.onAWS(class)
	case refusal.UnknownProvider, refusal.GPUProvisioner: // a claim for gpu-provisioner requests its disk size
	}
	return ""
}

// onAzure is LacksDisk for an AKSNodeClass: only the OS disk counts.
func (d Disk) onAzure(class *unstructured.Unstructured) string {
	size, found, err := unstructured.NestedInt64(class.Object, "spec", "osDiskSizeGB")
	if err != nil {
		return ""
	}
	isDefault := ""
	if !found {
		size, isDefault = azureDefaultGB, ", the default"
	}
	if float64(d.GiB)*gbPerGiB <= float64(size) {
		return ""
	}
	return fmt.Sprintf("%s %q gives its machines an OS disk of %d GB%s, but weights and image need %d GiB: set spec.osDiskSizeGB of the class to %.0f or more",
		class.GetKind(), class.GetName(), size, isDefault, d.GiB, math.Ceil(float64(d.GiB)*gbPerGiB/podsShare))
}

// onAWS is LacksDisk for an EC2NodeClass: local disks count if RAID0 joins them for pods, otherwise the root volume.
func (d Disk) onAWS(class *unstructured.Unstructured) string {
	policy, _, err := unstructured.NestedString(class.Object, "spec", "instanceStorePolicy")
	if err != nil || policy == "RAID0" && d.LocalGiB > 0 {
		return d.onLocalDisk(class, err == nil)
	}
	size, isKnown := rootVolume(class)
	if !isKnown || float64(d.GiB) <= size {
		return ""
	}
	way := fmt.Sprintf("map a root volume of %.0fGi or more in spec.blockDeviceMappings of the class (ebs.volumeSize)", math.Ceil(float64(d.GiB)/podsShare))
	if d.LocalGiB >= float64(d.GiB) {
		way += fmt.Sprintf(", or set spec.instanceStorePolicy of the class to RAID0, which uses the machine's local disks (%.0f GiB in total)",
			d.LocalGiB)
	}
	return fmt.Sprintf("%s %q gives its machines a root volume of %.0f GiB, but weights and image need %d GiB: %s",
		class.GetKind(), class.GetName(), math.Floor(size), d.GiB, way)
}

// onAutoMode is LacksDisk for a NodeClass of EKS Auto Mode. It counts the local disks of the machine type, too, because
// the image decides whether pods use them.
func (d Disk) onAutoMode(class *unstructured.Unstructured) string {
	text, _, err := unstructured.NestedString(class.Object, "spec", "ephemeralStorage", "size")
	volume, parseErr := resource.ParseQuantity(text)
	if err != nil || parseErr != nil {
		return ""
	}
	size := float64(volume.Value()) / bytesPerGiB
	if float64(d.GiB) <= max(size, d.LocalGiB) {
		return ""
	}
	return fmt.Sprintf("%s %q gives its machines %.0f GiB of ephemeral storage, but weights and image need %d GiB: "+
		"set its spec.ephemeralStorage.size to %.0fGi or more", class.GetKind(), class.GetName(), math.Floor(size), d.GiB, math.Ceil(float64(d.GiB)/podsShare))
}

func (d Disk) onLocalDisk(class *unstructured.Unstructured, isKnown bool) string {
	if !isKnown || float64(d.GiB) <= d.LocalGiB {
		return ""
	}
	return fmt.Sprintf("%s %q puts pods on the machine's local disks (%.0f GiB in total), but weights and image need %d GiB: "+
		"allow another machine type, or unset the node class's spec.instanceStorePolicy and map a root volume of %.0fGi or more",
		class.GetKind(), class.GetName(), math.Floor(d.LocalGiB), d.GiB, math.Ceil(float64(d.GiB)/podsShare))
}

// rootVolume returns the size in GiB of the volume for pods: the marked root volume, or else the largest volume,
// because the image decides which one is the root. A custom image without mappings may have any size.
func rootVolume(class *unstructured.Unstructured) (size float64, isKnown bool) {
	mappings, _, err := unstructured.NestedSlice(class.Object, "spec", "blockDeviceMappings")
	if err != nil {
		return 0, false
	}
	for _, item := range mappings {
		mapping, ok := item.(map[string]any)
		if !ok {
			return 0, false
		}
		text, _, err := unstructured.NestedString(mapping, "ebs", "volumeSize")
		volume, parseErr := resource.ParseQuantity(text)
		if err != nil || parseErr != nil {
			return 0, false // for example, the volume has the size of its snapshot
		}
		gib := float64(volume.Value()) / bytesPerGiB
		if mapping["rootVolume"] == true {
			return gib, true
		}
		size = max(size, gib)
	}
	if family, _, _ := unstructured.NestedString(class.Object, "spec", "amiFamily"); len(mappings) == 0 && family != "Custom" {
		return awsDefaultGiB, true
	}
	return size, len(mappings) > 0
}

// LocalDisk returns the size of the local disks of a machine type, in GiB; 0 if the catalogue lacks it.
func LocalDisk(known Catalog) func(string) float64 {
	return func(instanceType string) float64 {
		machine, err := known.ResolveSKU(instanceType)
		if err != nil {
			return 0
		}
		return machine.LocalDiskGiB
	}
}

// Catalog has machine types.
type Catalog interface {
	ResolveSKU(name string) (sku.SKU, error)
}
