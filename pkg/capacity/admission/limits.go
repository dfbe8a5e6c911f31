// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// withDefaults returns a pod as the API server completes it: a missing request becomes the limit, and LimitRanges
// fill in the rest.
func withDefaults(spec *corev1.PodSpec, limits []corev1.LimitRange) *corev1.PodSpec {
	out := spec.DeepCopy()
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			own := &containers[i].Resources
			own.Requests = filled(own.Requests, own.Limits)
			for _, item := range itemsOf(limits, corev1.LimitTypeContainer) {
				own.Requests = filled(own.Requests, item.DefaultRequest)
				own.Limits = filled(own.Limits, item.Default)
			}
		}
	}
	return out
}

// filled adds missing values from the defaults.
func filled(own, defaults corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(defaults)
	if out == nil {
		return own
	}
	maps.Copy(out, own)
	return out
}

func itemsOf(limits []corev1.LimitRange, kind corev1.LimitType) []corev1.LimitRangeItem {
	var out []corev1.LimitRangeItem
	for i := range limits {
		for _, item := range limits[i].Spec.Limits {
			if item.Type == kind {
				out = append(out, item)
			}
		}
	}
	return out
}

// measured is an object to which a LimitRange applies: a container, or a whole pod.
type measured struct {
	kind             corev1.LimitType
	what             string
	requests, limits corev1.ResourceList
}

// checkLimits compares a completed pod with the minima and maxima of LimitRanges.
func checkLimits(namespace Namespace, spec *corev1.PodSpec) *Problem {
	pod := &corev1.Pod{Spec: *spec}
	all := []measured{{
		corev1.LimitTypePod, "a pod",
		helper.PodRequests(pod, helper.PodResourcesOptions{}), helper.PodLimits(pod, helper.PodResourcesOptions{}),
	}}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		all = append(all, measured{
			corev1.LimitTypeContainer, fmt.Sprintf("container %q", container.Name), container.Resources.Requests, container.Resources.Limits,
		})
	}
	for i := range namespace.Limits {
		limit := &namespace.Limits[i]
		for _, item := range limit.Spec.Limits {
			for _, one := range all {
				if why, remedy := one.violates(item); why != "" {
					return &Problem{Rule: LimitRange, Message: fmt.Sprintf(
						"LimitRange %s/%s refuses the pods: %s; %s", namespace.Name, limit.Name, why, remedy)}
				}
			}
		}
	}
	return nil
}

// otherRequests is the remedy for pods that request too much or too little.
const otherRequests = "set inference.pod.cpu or inference.pod.memory, allow other machine types, or have the administrator change the LimitRange"

// violates returns the violated bound of a LimitRange with the remedy; empty if there is none. The API server gives an item
// of type Container with a max a default, too, so a limit is missing only for items of type Pod.
func (m measured) violates(item corev1.LimitRangeItem) (why, remedy string) {
	if item.Type != m.kind {
		return "", ""
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		most := item.Max[name]
		limit, isLimited := m.limits[name]
		request := m.requests[name]
		switch {
		case !isLimited:
			return fmt.Sprintf("its max %s is %s, and %s has no limit", name, most.String(), m.what),
				fmt.Sprintf("inference.pod sets no limits, so have the administrator remove this max, or add a default %s of type "+
					"Container to a LimitRange of the namespace: this default becomes the limit of each container, and must not be below the container's request", name)
		case limit.Cmp(most) > 0 || request.Cmp(most) > 0:
			return fmt.Sprintf("its max %s is %s, and %s has %s", name, most.String(), m.what, larger(limit, request)), otherRequests
		}
	}
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		least := item.Min[name]
		request, isRequested := m.requests[name]
		limit, isLimited := m.limits[name]
		switch {
		case !isRequested:
			return fmt.Sprintf("its min %s is %s, and %s requests none", name, least.String(), m.what), otherRequests
		case request.Cmp(least) < 0:
			return fmt.Sprintf("its min %s is %s, and %s requests %s", name, least.String(), m.what, request.String()), otherRequests
		case isLimited && limit.Cmp(least) < 0:
			return fmt.Sprintf("its min %s is %s, and %s has a limit of %s", name, least.String(), m.what, limit.String()), otherRequests
		}
	}
	return "", ""
}

func larger(a, b resource.Quantity) string {
	if a.Cmp(b) >= 0 {
		return a.String()
	}
	return b.String()
}
