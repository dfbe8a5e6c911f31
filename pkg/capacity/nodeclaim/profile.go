// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// profile is the form of claims for one provisioner.
type profile string

const (
	// karpenter is for Karpenter: it reads the requirements of claims.
	karpenter profile = ""
	// gpuProvisioner is for gpu-provisioner: it creates an AKS agent pool with one machine for each claim. It reads
	// only the name, the machine type, the disk, the taints and the labels (v0.4.3,
	// pkg/providers/instance/instance.go).
	gpuProvisioner profile = "gpu-provisioner"
)

// profileOf returns the profile for claims of a node class. The kind of the class determines it.
func profileOf(class v1beta1.NodeClassReference) profile {
	if refusal.ProviderOf(class.Group, class.Kind) == refusal.GPUProvisioner {
		return gpuProvisioner
	}
	return karpenter
}

// Limits of names with Karpenter. nameLimit keeps them usable as VM names: Azure's machine mode hashes longer names.
// hashLength is in hexadecimal digits: 40 bits of the hash.
const (
	nameLimit  = 34
	hashLength = 10
)

// poolHashLength is the length of the hash in an agent pool's name. Such a name has at most 12 characters and no
// dash.
const poolHashLength = 11

// name returns the name of the claim for one machine of one attempt: deterministic, and valid.
func (f profile) name(owner capacity.Owner, attempt int32, ordinal int) string {
	identity := fmt.Sprintf("%s/%d/%d", owner.UID, attempt, ordinal)
	if f == gpuProvisioner {
		return "w" + hashOf(identity)[:poolHashLength]
	}
	return HashedName(owner.Name, identity, nameLimit)
}

// HashedName returns a name, truncated if necessary, with the hash of an identity. The result has at most the given
// number of characters.
func HashedName(name, identity string, most int) string {
	if limit := most - hashLength - 1; len(name) > limit {
		name = strings.TrimRight(name[:limit], "-.")
	}
	return name + "-" + hashOf(identity)[:hashLength]
}

func hashOf(identity string) string {
	sum := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(sum[:])
}

// readable removes from a request everything that the provisioner does not support.
func (f profile) readable(req capacity.Request) capacity.Request {
	if f == gpuProvisioner {
		req.Zones, req.OneZone = nil, false
	}
	return req
}

// labels returns the labels of a claim. Its node gets them, too.
func (f profile) labels(req capacity.Request) map[string]string {
	out := map[string]string{}
	maps.Copy(out, req.Labels)
	out[v1beta1.LabelWorkspaceUID] = string(req.Owner.UID)
	out[v1beta1.LabelMachineWorkspaceName] = req.Owner.Name
	out[v1beta1.LabelMachineWorkspaceNamespace] = req.Owner.Namespace
	out[v1beta1.LabelMachineAttempt] = strconv.Itoa(int(req.Attempt))
	out[v1beta1.LabelManagedBy] = v1beta1.ManagedBy
	if f == gpuProvisioner {
		// gpu-provisioner lists, and so keeps, only agent pools with the first label. A claim for Karpenter must not
		// have that label: if gpu-provisioner runs as well, both would create a machine.
		out[v1beta1.LabelWorkspace] = req.Owner.Name
		out[v1beta1.LabelWorkspaceNamespace] = req.Owner.Namespace
		out[karpv1.NodePoolLabelKey] = "kaito"
	}
	return out
}

func (f profile) requirements(req capacity.Request) []karpv1.NodeSelectorRequirementWithMinValues {
	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	out := []karpv1.NodeSelectorRequirementWithMinValues{in(corev1.LabelInstanceTypeStable, req.InstanceType)}
	if f == gpuProvisioner {
		return out
	}
	out = append(out,
		in(corev1.LabelOSStable, string(corev1.Linux)),
		in(karpv1.CapacityTypeLabelKey, string(req.CapacityType)),
	)
	if len(req.Zones) > 0 {
		out = append(out, in(corev1.LabelTopologyZone, slices.Sorted(slices.Values(req.Zones))...))
	}
	if len(req.AvoidZones) > 0 {
		avoid := in(corev1.LabelTopologyZone, slices.Sorted(slices.Values(req.AvoidZones))...)
		avoid.Operator = corev1.NodeSelectorOpNotIn
		out = append(out, avoid)
	}
	return out
}

func (f profile) requests(req capacity.Request) corev1.ResourceList {
	out := corev1.ResourceList{}
	if req.GPUs > 0 {
		// The machine is initialized only once its node advertises the requested resource.
		out[corev1.ResourceName(req.GPUResource)] = *resource.NewQuantity(int64(req.GPUs), resource.DecimalSI)
	}
	switch {
	case f == gpuProvisioner:
		out[corev1.ResourceStorage] = gibibytes(osDiskGiB(req.DiskGiB))
	case req.DiskGiB > 0:
		out[corev1.ResourceEphemeralStorage] = gibibytes(req.DiskGiB)
	}
	return out
}

// Parts of the OS disk of a gpu-provisioner machine: leastOSDiskGiB is AKS's default size, systemGiB is for the
// system, and podsShare is the share that the kubelet leaves to pods.
const (
	leastOSDiskGiB = 128
	systemGiB      = 30
	podsShare      = 0.85
)

// osDiskGiB returns the size of an OS disk with enough room for pods.
func osDiskGiB(need int) int {
	return max(leastOSDiskGiB, int(math.Ceil(float64(need+systemGiB)/podsShare)))
}

func gibibytes(count int) resource.Quantity {
	return *resource.NewQuantity(int64(count)<<30, resource.BinarySI)
}

// capacityTypeOf returns the capacity type of a claim's machine; empty if unknown. Claims for gpu-provisioner do not
// name it: they are on-demand.
func capacityTypeOf(claim *karpv1.NodeClaim) v1beta1.CapacityType {
	if asked := requirementValue(claim, karpv1.CapacityTypeLabelKey); asked != "" {
		return v1beta1.CapacityType(asked)
	}
	if ref := claim.Spec.NodeClassRef; ref != nil && refusal.ProviderOf(ref.Group, ref.Kind) == refusal.GPUProvisioner {
		return v1beta1.CapacityOnDemand
	}
	return ""
}
