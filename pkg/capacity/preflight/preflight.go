// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks before a purchase whether the machine can become useful: the cluster runs, the node class
// is ready and its disk is large enough, a device plugin will advertise the GPUs, and the namespace admits the pods.
//
// It decides from a purchase, from caches, and from a few live reads that all Workspaces share. It must not depend on
// attempts, prices or back ends.
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

// retry is the time until a failed check is repeated, if no watch reports a change before.
const retry = time.Minute

// nothingBought begins every message, because the first question is whether money was spent.
const nothingBought = "nothing is bought yet: "

// Classes reads the state of node classes.
type Classes interface {
	// Class returns the state of a node class and, unless it is ready, a phrase about the problem.
	Class(ctx context.Context, class v1beta1.NodeClassReference) (refusal.ClassState, string, error)
}

// Policy is the administrator's choice of checks.
type Policy struct {
	// DevicePlugins refuses machines with GPUs while no device plugin would advertise them.
	DevicePlugins bool
	// Dedication decides whether machines get the taint of their Workspace; empty means Disabled.
	Dedication Dedication
	// DaemonSetNamespaces are the namespaces whose DaemonSets count, as names or as prefixes that end with *. Others
	// do not count, because tenants may create DaemonSets in their own namespaces.
	DaemonSetNamespaces []string
	// Admission checks the pods against the rules of their namespace; nil checks nothing.
	Admission *admission.Book
}

// Cluster has the readers for the checks.
type Cluster struct {
	// Cached reads from caches: nodes, ResourceQuotas and LimitRanges.
	Cached client.Client
	// Live reads node classes and DaemonSets. They have no cache.
	Live    client.Reader
	Classes Classes
	// LocalDiskGiB returns the size of the local disks of a machine type; 0 if the type is unknown.
	LocalDiskGiB func(instanceType string) float64
}

// Purchase is the next purchase of a Workspace.
type Purchase struct {
	Workspace types.NamespacedName
	UID       types.UID
	// NamespaceLabels are the labels of the Workspace's namespace.
	NamespaceLabels map[string]string

	InstanceType string
	// DiskGiB is the size of weights and image on each machine; 0 if unknown.
	DiskGiB int
	// GPUResource of the machines; empty if they have no GPUs.
	GPUResource string
	NodeClass   v1beta1.NodeClassReference
	// ToleratesDedication reports whether the pods may run on machines with the taint of their Workspace.
	ToleratesDedication bool
	// Pods are the pods to create, and the existing ones.
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
	// logged is the last logged reason for machines without the taint of their Workspace.
	logged string
}

// New returns a Checker.
func New(policy Policy, cluster Cluster, clock clock.PassiveClock) *Checker {
	return &Checker{
		policy: policy, cluster: cluster, clock: clock, reads: newReadCache(clock), refused: map[types.NamespacedName]struct{}{},
	}
}

// Check returns nil if the purchased machines can become useful. Otherwise it returns a *progress.StalledError if a
// person must act, a *progress.WaitingError if the cluster may recover on its own, or the error of a failed read.
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

// Settle ends the reservation of a Workspace in its namespace's quotas: its pods exist, or are no longer wanted.
func (c *Checker) Settle(workspace types.UID) {
	if c.policy.Admission != nil {
		c.policy.Admission.Settle(workspace)
	}
}

// Forget drops everything about a deleted Workspace.
func (c *Checker) Forget(workspace types.NamespacedName, uid types.UID) {
	c.setRefused(workspace, false)
	c.Settle(uid)
}

// checkNodes returns an error while none of the cluster's own nodes is Ready: the cluster has just been started, or
// its control plane has lost contact with the nodes. They may be back within a minute, with free GPUs. Until then a
// new machine would have neither DNS nor a device plugin. A cluster with only nodes bought for Workspaces passes,
// because it may have started without nodes. The nodes come from the cache, so each purchase checks them.
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
		"none of the cluster's own nodes is Ready (0 of %d): the cluster is starting, or the control plane has lost contact with the kubelets; run kubectl "+
			"get nodes; the controller continues once a node is Ready", others)}
}

// misconfigured returns the error for a problem that the administrator must fix; nil without one.
func misconfigured(problem string) error {
	if problem == "" {
		return nil
	}
	return &progress.StalledError{Reason: v1beta1.ReasonMisconfigured, Message: nothingBought + problem, RetryAfter: retry}
}
