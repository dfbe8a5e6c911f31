// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// shortageGrace is how long GPUs may be missing. After a device plugin stops, the kubelet still counts its GPUs as
// capacity for five minutes (pkg/kubelet/cm/devicemanager, endpointStopGracePeriod, 1.35), so a restart of the plugin
// is not a fault.
const shortageGrace = 7 * time.Minute

// labelMIGState is a label from NVIDIA's MIG manager (docs of the GPU operator, 26.3). While the manager repartitions
// the GPUs of a node, it stops the device plugin.
const labelMIGState = "nvidia.com/mig.config.state"

// Shortage describes the GPUs that a node has but cannot allocate; empty if it can allocate all. The device plugin
// advertises them under the given resource. GPUs of a plugin that has not registered yet are neither capacity nor
// allocatable, so a new node lacks none.
func Shortage(node *corev1.Node, resource corev1.ResourceName) string {
	if resource == "" || slices.Contains([]string{"pending", "rebooting"}, node.Labels[labelMIGState]) {
		return ""
	}
	has, usable := node.Status.Capacity[resource], node.Status.Allocatable[resource]
	if usable.Cmp(has) >= 0 {
		return ""
	}
	return fmt.Sprintf("node %s can allocate %d of its %d %s: the device plugin reports the other GPUs as unhealthy",
		node.Name, usable.Value(), has.Value(), resource)
}

// Concerns returns the fault of a node that matters to pods with a number of requested GPUs. Broken GPUs do not matter
// while the node does not offer them, and its other GPUs are enough for the pods.
func Concerns(node *corev1.Node, resource corev1.ResourceName, needed int) Fault {
	whole, ofGPUs := Split(node)
	usable := node.Status.Allocatable[resource]
	if Shortage(node, resource) != "" && usable.Value() >= int64(needed) {
		return whole
	}
	return Sooner(whole, ofGPUs)
}

// Lasting returns the fault of a shortage that began at a time.
func Lasting(shortage string, since time.Time) Fault {
	return Fault{Message: shortage, Since: since, Grace: shortageGrace}
}
