// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodehealth decides whether a node's machine is broken or about to be reclaimed, and whether a node counts as
// lost because it is not Ready.
//
// It is pure, and contains the conditions and taints of the clouds. It must not depend on the reaction to them.
package nodehealth

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Fault is a fault that a node reports. The zero Fault is none.
type Fault struct {
	// Message on one line; empty if there is none.
	Message string
	// Since is when the fault began, and Grace is how long it may last before it counts.
	Since time.Time
	Grace time.Duration
	// Announced: the cloud is about to reclaim the machine, whatever runs on it.
	Announced bool
}

// Expires returns the time from which a fault counts.
func (f Fault) Expires() time.Time { return f.Since.Add(f.Grace) }

// HasExpired reports whether there is a fault that counts.
func (f Fault) HasExpired(now time.Time) bool { return f.Message != "" && !now.Before(f.Expires()) }

// Recovery is how long a node must be healthy before a fault that counts is over. It equals the grace of a shortage.
const Recovery = shortageGrace

// rule is a condition that reports a fault.
type rule struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	grace     time.Duration
	// ofGPUs: the condition is about single GPUs, and the others may still work.
	ofGPUs bool
}

// nvSentinelGrace is the time for NVSentinel to repair a machine. It clears the condition afterwards.
const nvSentinelGrace = 5 * time.Minute

// preemption is the condition from Karpenter's provider for Azure before the cloud reclaims a spot machine.
const preemption corev1.NodeConditionType = "PreemptionScheduled"

// rules returns the conditions that report faults. They come from the repair policies of Karpenter's providers, from
// AKS's node problem detector on nodes with GPUs, and from NVSentinel. Conditions about single errors of an
// application are left out, such as GPUXIDErrors of AKS: a faulty program can cause an XID, too.
func rules() []rule {
	return []rule{
		// Karpenter's provider for Azure, RepairPolicies, 2026-08.
		{"kubernetes.azure.com/NodeHealthy", corev1.ConditionFalse, 0, false},
		{preemption, corev1.ConditionTrue, 0, false},
		// Karpenter's provider for AWS, RepairPolicies, 1.10.
		{"AcceleratedHardwareReady", corev1.ConditionFalse, 10 * time.Minute, false},
		{"StorageReady", corev1.ConditionFalse, 30 * time.Minute, false},
		{"NetworkingReady", corev1.ConditionFalse, 30 * time.Minute, false},
		{"KernelReady", corev1.ConditionFalse, 30 * time.Minute, false},
		{"ContainerRuntimeReady", corev1.ConditionFalse, 30 * time.Minute, false},
		// AKS, GPU health monitoring by the node problem detector.
		{"GPUMissing", corev1.ConditionTrue, 5 * time.Minute, true},
		{"NVLinkStatusInactive", corev1.ConditionTrue, 10 * time.Minute, false},
		// NVSentinel, docs/INTEGRATIONS.md, read 2026-11-25. It sets a condition only for a fatal fault. Its
		// conditions about heat and power limits are left out: these slow GPUs down, and pass.
		{"GpuMemWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuPcieWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuInforomWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuSmWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuNvlinkWatch", corev1.ConditionTrue, nvSentinelGrace, false},
		{"GpuMcuWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuPmuWatch", corev1.ConditionTrue, nvSentinelGrace, true},
		{"GpuDriverWatch", corev1.ConditionTrue, nvSentinelGrace, false},
		{"SysLogsXIDError", corev1.ConditionTrue, nvSentinelGrace, true},
		{"SysLogsSXIDError", corev1.ConditionTrue, nvSentinelGrace, false},
		{"SysLogsGPUFallenOff", corev1.ConditionTrue, nvSentinelGrace, true},
		{"NVSwitchFatalError", corev1.ConditionTrue, nvSentinelGrace, false},
		{"NVSwitchDown", corev1.ConditionTrue, nvSentinelGrace, false},
	}
}

// evictions returns the taints of machines that the cloud is about to reclaim, from AWS's node termination handler and
// from GKE.
func evictions() []string {
	return []string{"aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination"}
}

// Of returns a node's fault. Of several, it returns an announced one, or else the one that expires first.
func Of(node *corev1.Node) Fault {
	whole, ofGPUs := Split(node)
	return Sooner(whole, ofGPUs)
}

// Split returns the fault of a node as a whole, and the fault of single GPUs.
func Split(node *corev1.Node) (whole, ofGPUs Fault) {
	for _, taint := range node.Spec.Taints {
		if slices.Contains(evictions(), taint.Key) {
			whole = Sooner(whole, evicted(node, taint))
		}
	}
	for _, known := range rules() {
		for _, condition := range node.Status.Conditions {
			if condition.Type != known.condition || condition.Status != known.status {
				continue
			}
			found := Fault{
				Message: fmt.Sprintf("node %s reports %s=%s: %s", node.Name, condition.Type, condition.Status, words(condition)),
				Since:   condition.LastTransitionTime.Time, Grace: known.grace, Announced: known.condition == preemption,
			}
			if known.ofGPUs {
				ofGPUs = Sooner(ofGPUs, found)
			} else {
				whole = Sooner(whole, found)
			}
		}
	}
	return whole, ofGPUs
}

// evicted returns the fault that a taint reports.
func evicted(node *corev1.Node, taint corev1.Taint) Fault {
	out := Fault{
		Message:   fmt.Sprintf("node %s has the taint %s: the cloud is about to reclaim the node's machine", node.Name, taint.Key),
		Announced: true,
	}
	if taint.TimeAdded != nil {
		out.Since = taint.TimeAdded.Time
	}
	return out
}

// Sooner returns the fault that expires first. A fault without a message is none. An announced fault comes before all
// others, because its machine is lost in any case.
func Sooner(a, b Fault) Fault {
	switch {
	case b.Message == "":
		return a
	case a.Message == "":
		return b
	case a.Announced != b.Announced:
		if a.Announced {
			return a
		}
		return b
	case b.Expires().Before(a.Expires()):
		return b
	default:
		return a
	}
}

func words(condition corev1.NodeCondition) string {
	if condition.Message == "" {
		return condition.Reason
	}
	return condition.Message
}
