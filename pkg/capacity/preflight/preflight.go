// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks, before a machine is bought, that it can become useful: the cluster runs, the node class
// is ready and gives enough disk, a device plugin will advertise the GPUs, and the namespace admits the pods.
//
// It decides from a purchase, from caches and from a few live reads that all Workspaces share. It must not know
// attempts, prices or how machines are bought.
package preflight

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// retry is the interval at which a failed check runs again, where no watch reports the remedy.
const retry = time.Minute

// nothingBought begins every message, because the first question is whether money was spent.
const nothingBought = "nothing is bought yet: "

// Classes reads the state of node classes.
type Classes interface {
	// Class returns the state of a node class and, unless it is ready, a phrase that describes the problem.
	Class(ctx context.Context, class v1beta1.NodeClassReference) (refusal.ClassState, string, error)
}

// Policy is what the administrator decides about the checks.
type Policy struct {
	// DevicePlugins refuses machines with GPUs while no device plugin would advertise them.
	DevicePlugins bool
	// Dedication decides whether machines get the taint of their Workspace; empty means Disabled.
	Dedication Dedication
	// Admission checks the pods against the rules of their namespace; nil checks nothing.
	Admission *admission.Book
}

// Cluster is where the Checker reads.
type Cluster struct {
	// Cached reads from caches: nodes, ResourceQuotas and LimitRanges.
	Cached client.Client
	// Live reads node classes and DaemonSets, of which there is no cache.
	Live    client.Reader
	Classes Classes
	// LocalDiskGiB returns the size of the local disks of a machine type; 0 where the type is unknown.
	LocalDiskGiB func(instanceType string) float64
}

// Purchase is what a Workspace is about to buy.
type Purchase struct {
	Workspace types.NamespacedName
	UID       types.UID
	// NamespaceLabels are the labels of the Workspace's namespace.
	NamespaceLabels map[string]string

	InstanceType string
	// DiskGiB of weights and image that each machine has to hold; 0 where that is unknown.
	DiskGiB int
	// GPUResource of the machines; empty where they have no GPUs.
	GPUResource string
	NodeClass   v1beta1.NodeClassReference
	// ToleratesDedication reports whether the pods may run on machines with the taint of their Workspace.
	ToleratesDedication bool
	// Pods that the Workspace wants to create, and those that it has.
	Pods admission.Demand
}

// Checker runs the checks. It may be used from several goroutines.
type Checker struct {
	policy  Policy
	cluster Cluster
	clock   clock.PassiveClock
	reads   *readCache

	mu sync.Mutex
	// refused are the Workspaces whose namespaces do not admit their pods.
	refused map[types.NamespacedName]struct{}
	// logged is the reason that was logged last for machines without the taint of their Workspace.
	logged string
}

// New returns a Checker.
func New(policy Policy, cluster Cluster, clock clock.PassiveClock) *Checker {
	return &Checker{
		policy: policy, cluster: cluster, clock: clock, reads: newReadCache(clock), refused: map[types.NamespacedName]struct{}{},
	}
}

// Check returns nil if the purchase can become useful. Otherwise it returns a *progress.StalledError where somebody
// must act, a *progress.WaitingError where the cluster may recover by itself, or the error of a failed read.
func (c *Checker) Check(ctx context.Context, p Purchase) error {
	if err := c.checkNodes(ctx); err != nil {
		return err
	}
	if err := c.checkClass(ctx, p); err != nil {
		return err
	}
	if err := c.checkPlugins(ctx, p); err != nil {
		return err
	}
	if _, err := c.IsDedicated(ctx, p); err != nil {
		return err
	}
	return c.checkNamespace(ctx, p)
}

// Settle ends the reservation of a Workspace in its namespace's quotas: its pods exist, or are not wanted any more.
func (c *Checker) Settle(workspace types.UID) {
	if c.policy.Admission != nil {
		c.policy.Admission.Settle(workspace)
	}
}

// Forget drops everything about a Workspace that was deleted.
func (c *Checker) Forget(workspace types.NamespacedName, uid types.UID) {
	c.setRefused(workspace, false)
	c.Settle(uid)
}

// checkNodes returns an error while none of the nodes is Ready that were not bought for a Workspace: the cluster has just
// been started, or its control plane has lost contact with the nodes. They may be back within a minute, with GPUs that are
// free, and before that a machine has neither DNS nor a device plugin. A cluster without any such node may be one whose
// first nodes are ours. The cache answers, so each purchase looks.
func (c *Checker) checkNodes(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := c.cluster.Cached.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	others, isUnheard := nodehealth.Listen(nodes.Items).Unheard()
	if !isUnheard {
		return nil
	}
	return &progress.WaitingError{After: retry, Message: nothingBought + fmt.Sprintf(
		"none of the cluster's own nodes is Ready (there are %d): the cluster is starting, or its control plane has lost contact with their kubelets; "+
			"kubectl get nodes shows them; the controller continues once one is Ready", others)}
}

// misconfigured returns the error for a problem that the administrator must fix; nil where there is none.
func misconfigured(problem string) error {
	if problem == "" {
		return nil
	}
	return &progress.StalledError{Reason: v1beta1.ReasonMisconfigured, Message: nothingBought + problem, RetryAfter: retry}
}
