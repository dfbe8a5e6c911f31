// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpuplugin tells from the DaemonSets of a cluster whether anything will advertise the GPUs of a
// node that is bought, and whether a further taint would keep it away: a node without a device plugin is paid for and
// never usable.
//
// It is pure, and must not know where the DaemonSets come from.
package gpuplugin

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Missing says why nothing would advertise a resource on our nodes, and what to do; empty where something
// would.
func Missing(daemonSets []appsv1.DaemonSet, resource string) string {
	vendor, _, _ := strings.Cut(resource, ".")
	var intolerant []string
	for i := range daemonSets {
		daemonSet := &daemonSets[i]
		if !isPlugin(daemonSet, vendor) {
			continue
		}
		if tolerates(daemonSet.Spec.Template.Spec.Tolerations, ours()) {
			return ""
		}
		intolerant = append(intolerant, daemonSet.Namespace+"/"+daemonSet.Name)
	}
	sentence := fmt.Sprintf("nothing would advertise %s on a node with the taint %s: ", resource, ours().ToString())
	const otherwise = ", or set the chart's capacity.gpuPluginCheck to false if the nodes bring one of their own"
	if len(intolerant) == 0 {
		return sentence + "set the chart's devicePlugin.enabled, or install a device plugin or GPU operator that tolerates it" + otherwise
	}
	slices.Sort(intolerant)
	return sentence + "add the toleration to DaemonSet " + strings.Join(intolerant, ", ") + otherwise
}

// isPlugin says whether a DaemonSet is a vendor's device plugin, by its name or its images.
func isPlugin(daemonSet *appsv1.DaemonSet, vendor string) bool {
	names := []string{daemonSet.Name}
	for _, container := range daemonSet.Spec.Template.Spec.Containers {
		names = append(names, container.Image)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(name, "device-plugin") && strings.Contains(name, vendor)
	})
}

// ours is the taint of all machines that are bought.
func ours() *corev1.Taint {
	return &corev1.Taint{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue, Effect: corev1.TaintEffectNoSchedule}
}

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return corev1helpers.TolerationsTolerateTaint(klog.Logger{}, tolerations, taint, false)
}
