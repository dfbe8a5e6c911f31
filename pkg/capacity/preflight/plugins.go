// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// checkPlugins returns an error if no device plugin would advertise the GPUs of the machines.
func (c *Checker) checkPlugins(ctx context.Context, p Purchase) error {
	if !c.policy.DevicePlugins || p.GPUResource == "" {
		return nil
	}
	problem, err := problemOf(ctx, c.reads, c.plugins(), func(found plugins) string {
		// An operator creates its DaemonSets once a node needs them.
		if found.hasOperator || !found.isListed {
			return ""
		}
		return MissingPlugin(found.daemonSets, p.GPUResource)
	})
	return cmp.Or(err, misconfigured(problem))
}

// plugins are the trusted DaemonSets and operators for GPUs in a cluster.
type plugins struct {
	// hasOperator reports whether NVIDIA's GPU operator is installed.
	hasOperator bool
	daemonSets  []appsv1.DaemonSet
	// isListed is false if the controller may not list DaemonSets.
	isListed bool
}

// plugins reads the DaemonSets once for both checks: of device plugins and of tolerated taints.
func (c *Checker) plugins() source[plugins] {
	return source[plugins]{name: "device plugins", read: func(ctx context.Context) (plugins, error) {
		_, err := c.cluster.Cached.RESTMapper().RESTMapping(schema.GroupKind{Group: "nvidia.com", Kind: "ClusterPolicy"})
		if err != nil && !meta.IsNoMatchError(err) {
			return plugins{}, fmt.Errorf("looking for a GPU operator: %w", err)
		}
		out, list := plugins{hasOperator: err == nil}, &appsv1.DaemonSetList{}
		err = c.cluster.Live.List(ctx, list)
		if apierrors.IsForbidden(err) {
			return out, nil
		}
		if err != nil {
			return plugins{}, fmt.Errorf("listing DaemonSets: %w", err)
		}
		out.daemonSets, out.isListed = TrustedDaemonSets(list.Items, c.policy.DaemonSetNamespaces), true
		return out, nil
	}}
}

// TrustedDaemonSets returns the DaemonSets in the given namespaces. These are names, or prefixes that end with *.
func TrustedDaemonSets(daemonSets []appsv1.DaemonSet, namespaces []string) []appsv1.DaemonSet {
	return slices.DeleteFunc(slices.Clone(daemonSets), func(each appsv1.DaemonSet) bool {
		return !slices.ContainsFunc(namespaces, func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return each.Namespace == pattern || isPrefix && strings.HasPrefix(each.Namespace, prefix)
		})
	})
}

// MissingPlugin returns why no DaemonSet would advertise a resource on our nodes, and the remedy; empty if a DaemonSet
// would.
func MissingPlugin(daemonSets []appsv1.DaemonSet, resource string) string {
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
	const otherwise = ", or set the chart's capacity.gpuPluginCheck to false if the nodes' images contain a device plugin"
	if len(intolerant) == 0 {
		return sentence + "set the chart's devicePlugin.enabled, or install a device plugin or GPU operator that tolerates the taint, " +
			"in a namespace of capacity.daemonSetNamespaces" + otherwise
	}
	slices.Sort(intolerant)
	return sentence + "add a toleration of the taint to DaemonSet " + strings.Join(intolerant, ", ") + otherwise
}

// isPlugin reports whether the name or an image of a DaemonSet is that of a vendor's device plugin.
func isPlugin(daemonSet *appsv1.DaemonSet, vendor string) bool {
	names := []string{daemonSet.Name}
	for _, container := range daemonSet.Spec.Template.Spec.Containers {
		names = append(names, container.Image)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(name, "device-plugin") && strings.Contains(name, vendor)
	})
}

// ours is the taint of every bought machine.
func ours() *corev1.Taint {
	return &corev1.Taint{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue, Effect: corev1.TaintEffectNoSchedule}
}

func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return corev1helpers.TolerationsTolerateTaint(klog.Logger{}, tolerations, taint, false)
}
