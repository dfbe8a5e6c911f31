// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo" // a widely used, maintained library of generic helpers
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// countSets is the resource with which ResourceQuotas count StatefulSets.
const countSets = corev1.ResourceName("count/statefulsets.apps")

// Usage is how much equal pods and their StatefulSet use of the ResourceQuotas of their namespace.
type Usage struct {
	spec  *corev1.PodSpec
	count int64
	// sets is 1 if the StatefulSet does not exist yet.
	sets int64
}

// UsageOf returns the usage of a demand's missing pods and StatefulSets.
func UsageOf(namespace Namespace, demand Demand) []Usage {
	wanted := podsOf(demand.Sets)
	missing, missingSets := -int64(len(demand.Pods)), int64(len(wanted)-demand.ExistingSets)
	for _, pods := range wanted {
		missing += pods.count
	}
	var out []Usage
	for _, pods := range slices.Backward(wanted) { // the leader's set is first, and its pod is created first
		usage := Usage{withDefaults(pods.spec, namespace.Limits), max(0, min(missing, pods.count)), max(0, min(missingSets, 1))}
		if usage.count > 0 || usage.sets > 0 {
			out = append(out, usage)
		}
		missing, missingSets = missing-usage.count, missingSets-usage.sets
	}
	return out
}

// checkQuotas compares pods with the ResourceQuotas that count them. Existing pods of the Workspace already count as
// used, so only the room for the missing pods must be free.
func checkQuotas(namespace Namespace, wanted []pods, demand Demand, promised []Usage) *Problem {
	for i := range namespace.Quotas {
		quota := &namespace.Quotas[i]
		whole, others := corev1.ResourceList{}, corev1.ResourceList{}
		for _, pods := range wanted {
			if !counts(quota, pods.spec) {
				continue
			}
			if why := unspecified(quota, pods.spec); why != "" {
				return quotaProblem(namespace, quota, why, false)
			}
			addTo(whole, usage(pods.spec), pods.count)
		}
		need := maps.Clone(whole)
		for k := range demand.Pods {
			if spec := withDefaults(&demand.Pods[k].Spec, nil); counts(quota, spec) {
				addTo(need, usage(spec), -1)
			}
		}
		for _, usages := range promised {
			if counts(quota, usages.spec) {
				addTo(others, usage(usages.spec), usages.count)
			}
		}
		if len(quota.Spec.Scopes) == 0 && quota.Spec.ScopeSelector == nil {
			whole[countSets] = *resource.NewQuantity(int64(len(wanted)), resource.DecimalSI)
			need[countSets] = *resource.NewQuantity(int64(len(wanted)-demand.ExistingSets), resource.DecimalSI)
			others[countSets] = *resource.NewQuantity(lo.SumBy(promised, func(u Usage) int64 { return u.sets }), resource.DecimalSI)
		}
		if problem := short(namespace, quota, whole, need, others); problem != nil {
			return problem
		}
	}
	return nil
}

// short returns the exhausted resource of a quota, or nil.
func short(namespace Namespace, quota *corev1.ResourceQuota, whole, need, others corev1.ResourceList) *Problem {
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		hard, missing, all := quota.Spec.Hard[name], need[name], whole[name]
		if all.Sign() <= 0 {
			continue
		}
		if all.Cmp(hard) > 0 { // even if existing pods use as much: the new pods are created after those are gone
			return quotaProblem(namespace, quota, fmt.Sprintf(
				"its limit of %s is %s, and the pods need %s; raise the limit, or allow only smaller machine types in resource.placement.instanceTypes",
				name, hard.String(), all.String()), false)
		}
		rest := missing
		if rest.Sign() <= 0 {
			rest = all
		}
		used := quota.Status.Used[name]
		used.Add(others[name])
		used.Add(missing)
		if used.Cmp(hard) > 0 {
			return quotaProblem(namespace, quota, fmt.Sprintf(
				"the pods need %s of %s, but less than that is free under its limit of %s; raise the limit, or delete unused objects",
				rest.String(), name, hard.String()), true)
		}
	}
	return nil
}

func quotaProblem(namespace Namespace, quota *corev1.ResourceQuota, why string, transient bool) *Problem {
	return &Problem{
		Rule: ResourceQuota, Transient: transient,
		Message: fmt.Sprintf("ResourceQuota %s/%s refuses the pods: %s", namespace.Name, quota.Name, why),
	}
}

// counts reports whether a quota counts a pod.
func counts(quota *corev1.ResourceQuota, spec *corev1.PodSpec) bool {
	for _, scope := range quota.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, spec) {
			return false
		}
	}
	if quota.Spec.ScopeSelector == nil {
		return true
	}
	return !slices.ContainsFunc(quota.Spec.ScopeSelector.MatchExpressions, func(r corev1.ScopedResourceSelectorRequirement) bool {
		return !inScope(r, spec)
	})
}

// inScope reports whether a pod is certainly in a scope. A pod without a priority class may get the cluster's
// default one, and scopes of later versions are unknown.
func inScope(scope corev1.ScopedResourceSelectorRequirement, spec *corev1.PodSpec) bool {
	class := spec.PriorityClassName
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(spec)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(spec)
	case corev1.ResourceQuotaScopePriorityClass:
		switch scope.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != ""
		case corev1.ScopeSelectorOpIn:
			return class != "" && slices.Contains(scope.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return class != "" && !slices.Contains(scope.Values, class)
		case corev1.ScopeSelectorOpDoesNotExist:
		}
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass:
	}
	return false
}

// isBestEffort reports whether no container requests CPU or memory.
func isBestEffort(spec *corev1.PodSpec) bool {
	return !slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(container corev1.Container) bool {
		for _, list := range []corev1.ResourceList{container.Resources.Requests, container.Resources.Limits} {
			if !list.Cpu().IsZero() || !list.Memory().IsZero() {
				return true
			}
		}
		return false
	})
}

// unspecified names a resource with the remedy: the quota requires it of every container, and a container does not
// specify it. It is empty if there is no such resource. inference.pod has requests and no limits.
func unspecified(quota *corev1.ResourceQuota, spec *corev1.PodSpec) string {
	explicit := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}
	for _, name := range explicit {
		if _, isCounted := quota.Spec.Hard[name]; !isCounted {
			continue
		}
		for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
			if _, isGiven := computed(container.Resources.Requests, container.Resources.Limits)[name]; !isGiven {
				remedy := "give the namespace a LimitRange with defaults"
				if !strings.HasPrefix(string(name), "limits.") {
					remedy = "set inference.pod.cpu and inference.pod.memory, or " + remedy
				}
				return fmt.Sprintf("it counts %s, but container %q does not specify it; %s", name, container.Name, remedy)
			}
		}
	}
	return ""
}

// usage returns the usage of one pod.
func usage(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec}
	out := computed(helper.PodRequests(pod, helper.PodResourcesOptions{}), helper.PodLimits(pod, helper.PodResourcesOptions{}))
	out[corev1.ResourcePods], out["count/pods"] = resource.MustParse("1"), resource.MustParse("1")
	return out
}

// computed returns requests and limits by the names in quotas. A request also counts under the plain name of its
// resource, unless that is an extended resource.
func computed(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, request := range requests {
		out[corev1.DefaultResourceRequestsPrefix+name] = request
		if !strings.Contains(string(name), "/") {
			out[name] = request
		}
	}
	for name, limit := range limits {
		out["limits."+name] = limit
	}
	return out
}

func addTo(sum, usage corev1.ResourceList, count int64) {
	for name, one := range usage {
		total := sum[name].DeepCopy()
		one = one.DeepCopy()
		one.Mul(count)
		total.Add(one)
		sum[name] = total
	}
}
