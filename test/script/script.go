// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package script is a test's instructions to a cloud for the requested machines: refuse them in a real cloud's words,
// keep them back, or let them fail afterwards. It decides the rule for a request and the cloud's words. It must not
// know how a fault is produced, or who plays the cloud: the local cloud with the real Karpenter, or a stand-in on a
// bare API server.
package script

import (
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is the result of a request for a machine.
type Outcome string

// The outcomes. The first ones answer the request, the others are the fate of a sold machine.
const (
	// Accept sells a working machine.
	Accept Outcome = "accept"
	// NoCapacity refuses: the cloud has none of these machines left here.
	NoCapacity Outcome = "noCapacity"
	// Quota refuses: the customer may not have more of these machines.
	Quota Outcome = "quota"
	// APIError fails without an answer to the question, like a throttled API or one out of order.
	APIError Outcome = "apiError"
	// SlowCreate sells the machine after Delay; the request waits for as long: see Rule.KeepsWaiting.
	SlowCreate Outcome = "slowCreate"
	// Hang never answers, for as long as the rule holds.
	Hang Outcome = "hang"

	// Slow machines take Delay longer to start.
	Slow Outcome = "slow"
	// NeverRegisters is a running machine that never becomes a node.
	NeverRegisters Outcome = "neverRegisters"
	// NoGPUs is a node with only GPUs of its GPUs visible, by default none.
	NoGPUs Outcome = "noGPUs"
	// Dies is a machine gone After its start.
	Dies Outcome = "dies"
	// Evicted is a machine with its end announced After its start; it is gone Notice later.
	Evicted Outcome = "evicted"
	// NotReady is a node silent forever, After its machine's start; the machine stays.
	NotReady Outcome = "notReady"
	// GPUFault is a node reporting Condition, After its machine's start.
	GPUFault Outcome = "gpuFault"
	// GPUsLost is a node whose device plugin reports all but GPUs of its GPUs as unhealthy, After its machine's start.
	GPUsLost Outcome = "gpusLost"
	// Stuck is a machine with a deletion of Delay, by default an endless one.
	Stuck Outcome = "stuck"
)

// Cloud is the cloud of a refusal's words and habits.
type Cloud string

// The clouds. Plain is no real one.
const (
	Plain Cloud = ""
	// Azure is Karpenter on Azure. Its provider names reasons from release 1.14 on.
	Azure Cloud = "azure"
	// AzureARM is Karpenter on Azure before that: one reason for all, and Resource Manager's words.
	AzureARM Cloud = "azure-arm"
	// AWS is Karpenter on AWS.
	AWS Cloud = "aws"
	// GPUProvisioner is Azure's; it never gives a request up.
	GPUProvisioner Cloud = "gpu-provisioner"
)

// Condition is a node's condition for broken GPUs. Empty fields take the cloud's own values.
type Condition struct {
	Type    string                 `json:"type,omitempty"`
	Status  metav1.ConditionStatus `json:"status,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
}

// Rule gives the outcome of the matching requests.
type Rule struct {
	// SKU, Zone and CapacityType are patterns (*, ? and […]); an empty one matches all.
	SKU          string `json:"sku,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// Skip is the number of attempts the rule lets pass first, and Times the number it holds for afterwards; 0 is for
	// ever. A claim's attempt counts once, however many places it tries.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Cloud is the script's by default.
	Cloud Cloud `json:"cloud,omitempty"`
	// Kind selects one of several refusals with the same outcome: see words.yaml.
	Kind string `json:"kind,omitempty"`
	// Reason and Message replace the cloud's own.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Delay is how long the answer takes; of slow the machine's start, of stuck its deletion.
	Delay metav1.Duration `json:"delay,omitzero"`
	// After is the time from the machine's start.
	After metav1.Duration `json:"after,omitzero"`
	// Notice is the time from the announcement of an eviction to the end.
	Notice metav1.Duration `json:"notice,omitzero"`
	// GPUs is the number of visible GPUs on a node.
	GPUs int `json:"gpus,omitempty"`
	// RemoveNode has the cloud take the dead machine's node off the cluster at once, as its controller
	// manager does; else the node stays until somebody misses the machine.
	RemoveNode bool `json:"removeNode,omitempty"`
	// Condition of a GPU fault.
	Condition Condition `json:"condition,omitzero"`
}

// Script is the rules, in the order of their trial.
type Script struct {
	// Cloud is the cloud of the rules' words.
	Cloud Cloud  `json:"cloud,omitempty"`
	Rules []Rule `json:"rules"`
}

// Offer is one machine type in one zone, sold in one way.
type Offer struct {
	SKU          string
	Zone         string
	CapacityType string
}

func (r Rule) isFor(offer Offer) bool {
	return glob(r.SKU, offer.SKU) && glob(r.Zone, offer.Zone) && glob(r.CapacityType, offer.CapacityType)
}

// glob matches a pattern; parsing has checked it.
func glob(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

// KeepsWaiting reports whether a request is answered only when the machine is there. inPool means its NodeClaim names
// a NodePool: Azure's provider answers such a claim as soon as the cloud has accepted the request, and waits for the
// machine only if it has no pool to name (karpenter-provider-azure v1.10.2, pkg/cloudprovider/cloudprovider.go,
// handleInstancePromise).
func (r Rule) KeepsWaiting(inPool bool) bool {
	isAnswered := inPool && (r.Cloud == Azure || r.Cloud == AzureARM)
	return r.Outcome == SlowCreate && !isAnswered
}

// Refuses reports whether there is no machine.
func (o Outcome) Refuses() bool { return o == NoCapacity || o == Quota || o == APIError }
