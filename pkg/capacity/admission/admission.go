// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission decides whether a namespace would admit the pods of a Workspace: its Pod Security level,
// LimitRanges and ResourceQuotas. Without admitted pods, a machine would be idle.
//
// It is pure: namespace, quotas, limits and pods are values. If the API server may decide otherwise for a reason
// outside these values, the package admits the pods: a missed refusal costs a machine until the deadline for failing
// pods, but a wrong refusal blocks a Workspace forever. It must not depend on clients, plans or machines.
package admission

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Rule is a kind of rule of a namespace.
type Rule string

// The rules of a namespace.
const (
	PodSecurity   Rule = "PodSecurity"
	LimitRange    Rule = "LimitRange"
	ResourceQuota Rule = "ResourceQuota"
)

// Problem is why the namespace would refuse a pod. Its message does not change with the usage of others.
type Problem struct {
	Rule Rule
	// Message names the object, the field, its value and the remedy.
	Message string
	// Transient reports whether other pods use the missing resource, so that it may become free.
	Transient bool
}

// Namespace has the rules for pods.
type Namespace struct {
	Name   string
	Labels map[string]string
	Quotas []corev1.ResourceQuota
	Limits []corev1.LimitRange
}

// Demand has the planned and the existing pods of a Workspace in its namespace.
type Demand struct {
	// Sets are the planned StatefulSets.
	Sets []*appsv1.StatefulSet
	// Pods and ExistingSets exist already: the used part of a quota includes them.
	Pods         []corev1.Pod
	ExistingSets int
}

// Checker checks pods against the rules of a namespace.
type Checker struct{ levels policy.Evaluator }

// New returns a Checker with the Pod Security checks of the Kubernetes library's version.
func New() (*Checker, error) {
	levels, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("building the Pod Security checks: %w", err)
	}
	return &Checker{levels: levels}, nil
}

// Check returns the first reason why the namespace would refuse a pod, or nil. promised are the usages reserved for
// others, whose pods do not exist yet and do not count as used.
func (c *Checker) Check(namespace Namespace, demand Demand, promised []Usage) *Problem {
	wanted := podsOf(demand.Sets)
	for _, pod := range wanted {
		if problem := c.checkLevel(namespace, pod.meta, pod.spec); problem != nil {
			return problem
		}
	}
	for i := range wanted {
		wanted[i].spec = withDefaults(wanted[i].spec, namespace.Limits)
		if problem := checkLimits(namespace, wanted[i].spec); problem != nil {
			return problem
		}
	}
	return checkQuotas(namespace, wanted, demand, promised)
}

// pods are the equal pods of one set.
type pods struct {
	meta  *metav1.ObjectMeta
	spec  *corev1.PodSpec
	count int64
}

func podsOf(sets []*appsv1.StatefulSet) []pods {
	out := make([]pods, 0, len(sets))
	for _, set := range sets {
		count := int64(1)
		if set.Spec.Replicas != nil {
			count = int64(*set.Spec.Replicas)
		}
		out = append(out, pods{meta: &set.Spec.Template.ObjectMeta, spec: &set.Spec.Template.Spec, count: count})
	}
	return out
}

// checkLevel compares a pod with the Pod Security level of the namespace. Invalid labels have the same effect as in
// the API server.
func (c *Checker) checkLevel(namespace Namespace, meta *metav1.ObjectMeta, spec *corev1.PodSpec) *Problem {
	privileged := psaapi.LevelVersion{Level: psaapi.LevelPrivileged, Version: psaapi.LatestVersion()}
	enforced, _ := psaapi.PolicyToEvaluate(namespace.Labels, psaapi.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	result := policy.AggregateCheckResults(c.levels.EvaluatePod(enforced.Enforce, meta, spec))
	if result.Allowed {
		return nil
	}
	return &Problem{Rule: PodSecurity, Message: fmt.Sprintf(
		"namespace %s enforces the Pod Security level %s (label %s), which refuses the pods: %s; "+
			"change inference.pod, inference.template or inference.weights, or have the administrator lower the level",
		namespace.Name, enforced.Enforce.Level, psaapi.EnforceLevelLabel, result.ForbiddenDetail())}
}
