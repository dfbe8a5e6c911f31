// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the local stand-in for a cloud's machine service: it sells
// machines of the catalogue's types, refuses when its script says so, keeps
// book of what it sold and ends what it is told to end. It decides what a
// machine is and when it is gone; how one is started, and what Kubernetes or
// Karpenter make of it, it must not know.
package cloud

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// Request asks for a machine.
type Request struct {
	// Name is the machine's and its node's. Asking twice for one name gives one machine.
	Name         string `json:"name"`
	SKU          string `json:"sku"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// Labels and Taints are what the node registers with, beside the cloud's own labels.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
}

// State is where a machine is in its life.
type State string

const (
	// Starting means sold and not up yet.
	Starting State = "Starting"
	// Running means that the machine's first process runs.
	Running State = "Running"
	// Stopping means that the machine was deleted and is not gone yet.
	Stopping State = "Stopping"
)

// Machine is one that was sold and is not gone.
type Machine struct {
	Request

	ID         string `json:"id"`
	ProviderID string `json:"providerID"`
	GPUs       int    `json:"gpus"`
	// GPUResource is what the node counts its GPUs as.
	GPUResource string             `json:"gpuResource,omitempty"`
	Network     layout.NodeNetwork `json:"network"`
	State       State              `json:"state"`
	Created     time.Time          `json:"created"`
	// PID is the machine's first process, seen from the host.
	PID int `json:"pid,omitempty"`
	// System marks the machine that belongs to the cloud itself.
	System bool `json:"system,omitempty"`
}

const providerPrefix = "local://"

// ProviderID is the name that a node carries for the machine with the id.
func ProviderID(id string) string { return providerPrefix + id }

// ParseProviderID returns the machine's id.
func ParseProviderID(providerID string) (string, error) {
	id, found := strings.CutPrefix(providerID, providerPrefix)
	if !found || id == "" {
		return "", fmt.Errorf("provider id %q does not start with %q", providerID, providerPrefix)
	}
	return id, nil
}

// Code tells refusals apart.
type Code string

const (
	// CodeNoCapacity is the answer when the cloud has no such machine left.
	CodeNoCapacity Code = "NoCapacity"
	// CodeQuota is the answer when the customer may not have more.
	CodeQuota Code = "QuotaExceeded"
	// CodeInvalid is the answer to a request that can never be met.
	CodeInvalid Code = "Invalid"
	// CodeConflict is the answer when the name belongs to another machine.
	CodeConflict Code = "Conflict"
	// CodeNotFound is the answer when there is no such machine.
	CodeNotFound Code = "NotFound"
	// CodeInternal is the answer when the cloud itself is in trouble.
	CodeInternal Code = "Internal"
)

// Error is a refusal.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Labels that the cloud puts on its nodes beside those asked for. The GPU labels
// are the ones that GPU feature discovery writes on real nodes.
const (
	labelCapacityType = "karpenter.sh/capacity-type"
	labelGPUProduct   = "nvidia.com/gpu.product"
	labelGPUCount     = "nvidia.com/gpu.count"
	labelGPUMemory    = "nvidia.com/gpu.memory"
	labelGPUPresent   = "nvidia.com/gpu.present"
)

// NodeLabels returns the labels that the node of a machine registers with.
func NodeLabels(request Request, s sku.SKU) map[string]string {
	labels := map[string]string{}
	for key, value := range request.Labels {
		if kubeletMaySet(key) {
			labels[key] = value
		}
	}
	labels[corev1.LabelInstanceTypeStable] = s.Name
	labels[corev1.LabelTopologyZone] = request.Zone
	labels[corev1.LabelTopologyRegion] = s.Region
	labels[labelCapacityType] = request.CapacityType
	if s.Product != "" {
		labels[labelGPUPresent] = "true"
		labels[labelGPUProduct] = s.Product
		labels[labelGPUCount] = fmt.Sprint(s.GPUs)
		labels[labelGPUMemory] = fmt.Sprint(s.MemoryMiB)
	}
	return labels
}

// kubeletMaySet says whether a kubelet is allowed to give its node the label:
// it refuses to start with most of Kubernetes' own.
func kubeletMaySet(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return true
	}
	for _, allowed := range []string{"node.kubernetes.io", "kubelet.kubernetes.io"} {
		if domain == allowed || strings.HasSuffix(domain, "."+allowed) {
			return true
		}
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}
