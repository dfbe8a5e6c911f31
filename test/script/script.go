// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package script is what a test tells a cloud to do to the machines that it is asked for: refuse
// them in a real cloud's words, keep them back, or let them fail afterwards. It decides which rule
// meets a request and what the cloud says then. Who plays the cloud (the local cloud with the real
// Karpenter, a stand-in on a bare API server) and how a fault is brought about it must not know.
package script

import (
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what becomes of a request for a machine.
type Outcome string

// The outcomes. The first ones answer the request, the others are the fate of a machine that is sold.
const (
	// Accept sells a machine that works.
	Accept Outcome = "accept"
	// NoCapacity refuses: the cloud has none of these machines left here.
	NoCapacity Outcome = "noCapacity"
	// Quota refuses: the customer may not have more of these machines.
	Quota Outcome = "quota"
	// APIError fails without an answer to the question, as an API does that is throttled or down.
	APIError Outcome = "apiError"
	// SlowCreate sells the machine after Delay, for which the request is kept waiting: see Rule.KeepsWaiting.
	SlowCreate Outcome = "slowCreate"
	// Hang never answers, for as long as the rule holds.
	Hang Outcome = "hang"

	// Slow machines take Delay longer to start.
	Slow Outcome = "slow"
	// NeverRegisters is a machine that runs and never becomes a node.
	NeverRegisters Outcome = "neverRegisters"
	// NoGPUs is a node that shows only GPUs of its GPUs, none where it is not given.
	NoGPUs Outcome = "noGPUs"
	// Dies is a machine that is gone After it started.
	Dies Outcome = "dies"
	// Evicted is a machine whose end is announced After it started, and which is gone Notice later.
	Evicted Outcome = "evicted"
	// NotReady is a node that is never heard of again, After its machine started; the machine stays.
	NotReady Outcome = "notReady"
	// GPUFault is a node that reports Condition, After its machine started.
	GPUFault Outcome = "gpuFault"
	// Stuck is a machine whose deletion takes Delay, or for ever where that is not given.
	Stuck Outcome = "stuck"
)

// Cloud is whose words and habits a refusal has.
type Cloud string

// The clouds. Plain is none that exists.
const (
	Plain Cloud = ""
	// Azure is Karpenter on Azure, whose provider names reasons (from its release 1.14).
	Azure Cloud = "azure"
	// AzureARM is Karpenter on Azure before that: one reason for all, and Resource Manager's words.
	AzureARM Cloud = "azure-arm"
	// AWS is Karpenter on AWS.
	AWS Cloud = "aws"
	// GPUProvisioner is Azure's, which never gives a request up.
	GPUProvisioner Cloud = "gpu-provisioner"
)

// Condition is what a node reports when its GPUs are broken. What is left out is the cloud's own.
type Condition struct {
	Type    string                 `json:"type,omitempty"`
	Status  metav1.ConditionStatus `json:"status,omitempty"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
}

// Rule says what becomes of the requests that it is for.
type Rule struct {
	// SKU, Zone and CapacityType are patterns (*, ? and […]); one that is left out is for all.
	SKU          string `json:"sku,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// Skip is how many attempts the rule lets pass first, and Times for how many it holds after that;
	// 0 is for ever. A claim's attempt counts once, however many places it tries.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	Outcome Outcome `json:"outcome"`
	// Cloud is that of the script where it is left out.
	Cloud Cloud `json:"cloud,omitempty"`
	// Kind tells refusals of one outcome apart: see words.yaml.
	Kind string `json:"kind,omitempty"`
	// Reason and Message stand in for the cloud's own.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Delay is how long the answer takes; of slow the machine's start, of stuck its deletion.
	Delay metav1.Duration `json:"delay,omitzero"`
	// After is the time from the machine's start.
	After metav1.Duration `json:"after,omitzero"`
	// Notice is the time from the announcement of an eviction to the end.
	Notice metav1.Duration `json:"notice,omitzero"`
	// GPUs that a node shows.
	GPUs int `json:"gpus,omitempty"`
	// RemoveNode has the cloud take the dead machine's node off the cluster at once, as its controller
	// manager does; else the node stays until somebody misses the machine.
	RemoveNode bool `json:"removeNode,omitempty"`
	// Condition of a GPU fault.
	Condition Condition `json:"condition,omitzero"`
}

// Script is the rules in the order in which they are tried.
type Script struct {
	// Cloud is whose words the rules speak.
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

// glob matches a pattern that was checked when it was read.
func glob(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

// KeepsWaiting reports whether a request is answered only when the machine is there. inPool says that
// its NodeClaim names a NodePool: Azure's provider answers such a claim as soon as the cloud has
// accepted the request, and waits for the machine only if it has no pool to name
// (karpenter-provider-azure v1.10.2, pkg/cloudprovider/cloudprovider.go, handleInstancePromise).
func (r Rule) KeepsWaiting(inPool bool) bool {
	isAnswered := inPool && (r.Cloud == Azure || r.Cloud == AzureARM)
	return r.Outcome == SlowCreate && !isAnswered
}

// Refuses says that there is no machine.
func (o Outcome) Refuses() bool { return o == NoCapacity || o == Quota || o == APIError }
