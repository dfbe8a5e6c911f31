// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclass reads what the node classes of known clouds give to their machines. It decides
// from an object alone; one that it does not know rules out nothing. It must not know models, plans
// or a client.
package nodeclass

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

const (
	bytesPerGiB = 1 << 30
	gbPerGiB    = float64(bytesPerGiB) / 1e9

	// azureDefaultGB is the OS disk of an AKSNodeClass that names none (karpenter-provider-azure v1.10.2,
	// pkg/apis/v1beta1/aksnodeclass.go).
	azureDefaultGB = 128
	// awsDefaultGiB is the root volume of an EC2NodeClass that maps none, of every AMI family
	// (karpenter-provider-aws v1.10.0, DefaultEBS in pkg/providers/amifamily).
	awsDefaultGiB = 20

	// podsShare of a disk is what a kubelet leaves to pods and images: it evicts pods when a tenth is left,
	// and the system needs something, too. Nothing is refused for it; it is what is advised.
	podsShare = 0.85
)

// Need is what the disk of a machine has to hold.
type Need struct {
	// GiB of weights and image.
	GiB int
	// LocalDiskGiB is what the machine type has beside its OS disk.
	LocalDiskGiB float64
}

// Tells says whether classes of a kind tell how large a disk they give.
func Tells(group, kind string) bool {
	provider := refusal.ProviderOf(group, kind)
	return provider == refusal.KarpenterAzure || provider == refusal.KarpenterAWS
}

// LacksDisk says in one sentence that the machines of a class have too small a disk, and what to set
// instead: Karpenter would find no machine that fits. It is empty where they have room, or nobody knows.
func LacksDisk(class *unstructured.Unstructured, need Need) string {
	gvk := class.GroupVersionKind()
	switch refusal.ProviderOf(gvk.Group, gvk.Kind) {
	case refusal.KarpenterAzure:
		return need.onAzure(class)
	case refusal.KarpenterAWS:
		return need.onAWS(class)
	case refusal.UnknownProvider, refusal.GPUProvisioner: // the latter's claims say how large a disk they need
	}
	return ""
}

// onAzure judges an AKSNodeClass: all that counts there is the OS disk.
func (n Need) onAzure(class *unstructured.Unstructured) string {
	size, found, err := unstructured.NestedInt64(class.Object, "spec", "osDiskSizeGB")
	if err != nil {
		return ""
	}
	isDefault := ""
	if !found {
		size, isDefault = azureDefaultGB, ", the default"
	}
	if float64(n.GiB)*gbPerGiB <= float64(size) {
		return ""
	}
	return fmt.Sprintf("%s %q gives its machines an OS disk of %d GB%s, and weights and image need %d GiB: set its spec.osDiskSizeGB to %.0f or more",
		class.GetKind(), class.GetName(), size, isDefault, n.GiB, math.Ceil(float64(n.GiB)*gbPerGiB/podsShare))
}

// onAWS judges an EC2NodeClass: local disks count where they are joined for pods, else the root volume does.
func (n Need) onAWS(class *unstructured.Unstructured) string {
	policy, _, err := unstructured.NestedString(class.Object, "spec", "instanceStorePolicy")
	if err != nil || policy == "RAID0" && n.LocalDiskGiB > 0 {
		return n.onLocalDisk(class, err == nil)
	}
	size, isKnown := rootVolume(class)
	if !isKnown || float64(n.GiB) <= size {
		return ""
	}
	way := fmt.Sprintf("map a root volume of %.0fGi or more in its spec.blockDeviceMappings (ebs.volumeSize)", math.Ceil(float64(n.GiB)/podsShare))
	if n.LocalDiskGiB >= float64(n.GiB) {
		way += fmt.Sprintf(", or set its spec.instanceStorePolicy to RAID0, which uses the machine's local disks of %.0f GiB", n.LocalDiskGiB)
	}
	return fmt.Sprintf("%s %q gives its machines a root volume of %.0f GiB, and weights and image need %d GiB: %s",
		class.GetKind(), class.GetName(), size, n.GiB, way)
}

func (n Need) onLocalDisk(class *unstructured.Unstructured, isKnown bool) string {
	if !isKnown || float64(n.GiB) <= n.LocalDiskGiB {
		return ""
	}
	return fmt.Sprintf("%s %q puts pods on the machine's local disks of %.0f GiB, and weights and image need %d GiB: "+
		"allow another machine type, or unset its spec.instanceStorePolicy and map a root volume of %.0fGi or more",
		class.GetKind(), class.GetName(), n.LocalDiskGiB, n.GiB, math.Ceil(float64(n.GiB)/podsShare))
}

// rootVolume returns the size in GiB of the volume that pods live on: the one that is called root, else
// the largest, because which one it is depends on the image. An image of one's own may bring any size.
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
			return 0, false // of a snapshot's size, for one
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
