// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpuplugin tells from the DaemonSets of a cluster whether anything will advertise the GPUs of a
// node that is bought: one without a device plugin that tolerates our taint is paid for and never usable.
//
// It is pure, and must not know where the DaemonSets come from.
package gpuplugin

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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
		if slices.ContainsFunc(daemonSet.Spec.Template.Spec.Tolerations, tolerates) {
			return ""
		}
		intolerant = append(intolerant, daemonSet.Namespace+"/"+daemonSet.Name)
	}
	taint := fmt.Sprintf("%s=%s:%s", v1beta1.TaintKey, v1beta1.TaintValue, corev1.TaintEffectNoSchedule)
	sentence := fmt.Sprintf("nothing would advertise %s on a node with the taint %s: ", resource, taint)
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

// tolerates says whether a toleration is for our taint.
func tolerates(t corev1.Toleration) bool {
	isKey := t.Key == v1beta1.TaintKey || t.Key == "" && t.Operator == corev1.TolerationOpExists
	isValue := t.Operator == corev1.TolerationOpExists || t.Value == v1beta1.TaintValue
	return isKey && isValue && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
}
