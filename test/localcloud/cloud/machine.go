// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the local stand-in for a cloud's machine service: it sells machines of the catalogue's types,
// refuses when its script says so, records its sales and ends machines on request. It decides a machine's properties
// and the time of its end. It must not know how one starts, nor anything of Kubernetes or Karpenter.
package cloud

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/sku"
	"github.com/modelberth/modelberth/test/script"
)

// Request asks for a machine.
type Request struct {
	// Name is the machine's and its node's. Asking twice for one name gives one machine.
	Name         string `json:"name"`
	SKU          string `json:"sku"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// Labels and Taints are for the node at its registration, in addition to the cloud's own labels.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// Claim is the asking claim, and Attempt its turn; in one turn it may ask for several offers.
	Claim   string `json:"claim,omitempty"`
	Attempt string `json:"attempt,omitempty"`
}

// State is a machine's stage of life.
type State string

const (
	// Starting means sold and not up yet.
	Starting State = "Starting"
	// Running means the machine's first process runs.
	Running State = "Running"
	// Stopping means the machine was deleted and is not gone yet.
	Stopping State = "Stopping"
)

// Machine is a sold machine before its end.
type Machine struct {
	Request

	ID         string `json:"id"`
	ProviderID string `json:"providerID"`
	GPUs       int    `json:"gpus"`
	// GPUResource is the resource name of the node's GPUs.
	GPUResource string `json:"gpuResource,omitempty"`
	// CPUs and MemoryGiB are the processors and memory the node shows; zero means the host's.
	CPUs      int                `json:"cpus,omitempty"`
	MemoryGiB int                `json:"memoryGiB,omitempty"`
	Network   layout.NodeNetwork `json:"network"`
	State     State              `json:"state"`
	Created   time.Time          `json:"created"`
	// PID is the machine's first process, seen from the host.
	PID int `json:"pid,omitempty"`
	// System marks the cloud's own machine.
	System bool `json:"system,omitempty"`

	// Fate is the script's rule for the machine; nil means none.
	Fate *script.Rule `json:"fate,omitempty"`
	// Answered is the time for the answer about the sale.
	Answered time.Time `json:"answered,omitzero"`
	// Due means the fate's time has come, and Ends is the time of the machine's end after it.
	Due  bool      `json:"due,omitempty"`
	Ends time.Time `json:"ends,omitzero"`
}

// ShownGPUs is how many GPUs the node announces.
func (m Machine) ShownGPUs() int {
	if m.meets(script.NoGPUs) {
		return min(m.Fate.GPUs, m.GPUs)
	}
	return m.GPUs
}

// meets reports whether the machine's fate has the given outcome.
func (m Machine) meets(outcome script.Outcome) bool {
	return m.Fate != nil && m.Fate.Outcome == outcome
}

const providerPrefix = "local://"

// ProviderID returns the provider ID on the node of the machine with the id.
func ProviderID(id string) string { return providerPrefix + id }

// ParseProviderID returns the machine's id.
func ParseProviderID(providerID string) (string, error) {
	id, found := strings.CutPrefix(providerID, providerPrefix)
	if !found || id == "" {
		return "", fmt.Errorf("provider id %q does not start with %q", providerID, providerPrefix)
	}
	return id, nil
}

// Code is the kind of a refusal.
type Code string

const (
	// CodeNoCapacity is the answer when the cloud has no such machine left.
	CodeNoCapacity Code = "NoCapacity"
	// CodeQuota is the answer when the customer may not have more.
	CodeQuota Code = "QuotaExceeded"
	// CodeInvalid is the answer to an impossible request.
	CodeInvalid Code = "Invalid"
	// CodeConflict is the answer when the name belongs to another machine.
	CodeConflict Code = "Conflict"
	// CodeNotFound is the answer when there is no such machine.
	CodeNotFound Code = "NotFound"
	// CodeUnavailable is no answer: the cloud's API fails.
	CodeUnavailable Code = "Unavailable"
	// CodeSilent stands for a missing answer.
	CodeSilent Code = "Silent"
	// CodeInternal is the answer when the cloud itself is in trouble.
	CodeInternal Code = "Internal"
)

// Error is a refusal.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`

	// Cloud and Refusal are the source of a script's words and the words' other properties; Delay is the caller's
	// wait for them.
	Cloud   script.Cloud    `json:"cloud,omitempty"`
	Refusal *script.Refusal `json:"refusal,omitempty"`
	Delay   time.Duration   `json:"delay,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// labelNodePool is a request's label for its claim's pool.
const labelNodePool = "karpenter.sh/nodepool"

// The cloud's own labels on its nodes, in addition to the requested ones. GPU feature discovery sets the same GPU
// labels on real nodes.
const (
	labelCapacityType = "karpenter.sh/capacity-type"
	labelGPUProduct   = "nvidia.com/gpu.product"
	labelGPUCount     = "nvidia.com/gpu.count"
	labelGPUMemory    = "nvidia.com/gpu.memory"
	labelGPUPresent   = "nvidia.com/gpu.present"
)

// NodeLabels returns the labels of a machine's node at its registration.
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

// kubeletMaySet reports whether a kubelet is allowed to give its node the label:
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
