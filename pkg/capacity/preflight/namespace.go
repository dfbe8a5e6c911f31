// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/progress"
)

// retryNamespace is the time to the next check after a namespace refused the pods of a Workspace. It is long because
// watches report changes of the rules.
const retryNamespace = 10 * time.Minute

// checkNamespace returns an error if the namespace would refuse the pods. Otherwise it reserves room for them in the
// namespace's quotas.
func (c *Checker) checkNamespace(ctx context.Context, p Purchase) error {
	_, err := c.CheckNamespace(ctx, p, nothingBought)
	return err
}

// CheckNamespace is checkNamespace for other callers, with their prefix for its message. It reports whether it has
// compared the pods with the rules at all.
func (c *Checker) CheckNamespace(ctx context.Context, p Purchase, prefix string) (isChecked bool, err error) {
	if c.policy.Admission == nil {
		return false, nil
	}
	c.setRefused(p.Workspace, true) // before the rules are read, so that a change from now on wakes the Workspace
	rules, err := c.rules(ctx, p)
	if err != nil {
		return false, err
	}
	problem := c.policy.Admission.Reserve(c.clock.Now(), p.UID, rules, p.Pods)
	if problem == nil {
		c.setRefused(p.Workspace, false)
		return true, nil
	}
	return true, refusedBy(problem, prefix)
}

func refusedBy(problem *admission.Problem, prefix string) error {
	reason, message := admissionReason(problem.Rule), prefix+problem.Message
	if problem.Transient {
		return &progress.WaitingError{Reason: reason, Message: message, After: retryNamespace}
	}
	return &progress.StalledError{Reason: reason, Message: message, RetryAfter: retryNamespace}
}

// rules reads the namespace's rules for pods from caches.
func (c *Checker) rules(ctx context.Context, p Purchase) (admission.Namespace, error) {
	name := p.Workspace.Namespace
	out := admission.Namespace{Name: name, Labels: p.NamespaceLabels}
	quotas, limits := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
	if err := c.cluster.Cached.List(ctx, quotas, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing the ResourceQuotas of namespace %s: %w", name, err)
	}
	if err := c.cluster.Cached.List(ctx, limits, client.InNamespace(name), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing the LimitRanges of namespace %s: %w", name, err)
	}
	out.Quotas, out.Limits = quotas.Items, limits.Items
	return out, nil
}

// Refused returns the Workspaces whose pods a namespace refuses, sorted by name.
func (c *Checker) Refused(namespace string) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []types.NamespacedName
	for key := range c.refused {
		if key.Namespace == namespace {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (c *Checker) setRefused(workspace types.NamespacedName, isRefused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isRefused {
		c.refused[workspace] = struct{}{}
	} else {
		delete(c.refused, workspace)
	}
}

func admissionReason(rule admission.Rule) string {
	switch rule {
	case admission.PodSecurity:
		return v1beta1.ReasonPodSecurityViolation
	case admission.LimitRange:
		return v1beta1.ReasonLimitRangeViolation
	default:
		return v1beta1.ReasonResourceQuotaExceeded
	}
}
