// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// shortageGrace is how long GPUs may be missing. A kubelet counts those of a stopped device plugin as capacity for five
// minutes (pkg/kubelet/cm/devicemanager, endpointStopGracePeriod, 1.35), so a plugin that restarts is no fault.
const shortageGrace = 7 * time.Minute

// labelMIGState is set by NVIDIA's MIG manager, docs of the GPU operator, 26.3. While it divides the GPUs of a node anew, it
// stops the device plugin.
const labelMIGState = "nvidia.com/mig.config.state"

// Shortage describes the GPUs that a node has and cannot allocate; empty if it can allocate all. The device plugin announces
// them under the given resource. GPUs of a plugin that has not registered yet are neither capacity nor allocatable, so a
// new node lacks none.
func Shortage(node *corev1.Node, resource corev1.ResourceName) string {
	if resource == "" || slices.Contains([]string{"pending", "rebooting"}, node.Labels[labelMIGState]) {
		return ""
	}
	has, usable := node.Status.Capacity[resource], node.Status.Allocatable[resource]
	if usable.Cmp(has) >= 0 {
		return ""
	}
	return fmt.Sprintf("node %s can allocate %d of its %d %s: its device plugin reports the others as unhealthy",
		node.Name, usable.Value(), has.Value(), resource)
}

// Concerns returns a node's fault for pods that request a number of GPUs. Broken GPUs do not concern them while the node
// offers only others, and enough of these.
func Concerns(node *corev1.Node, resource corev1.ResourceName, needed int) Fault {
	whole, ofGPUs := Split(node)
	usable := node.Status.Allocatable[resource]
	if Shortage(node, resource) != "" && usable.Value() >= int64(needed) {
		return whole
	}
	return Sooner(whole, ofGPUs)
}

// Lasting is the fault of a shortage since some time.
func Lasting(shortage string, since time.Time) Fault {
	return Fault{Message: shortage, Since: since, Grace: shortageGrace}
}
