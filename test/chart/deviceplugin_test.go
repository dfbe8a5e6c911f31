// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

// TestDevicePlugin: the chart's plugin runs on bought machines, and passes the controller's check before a purchase.
func TestDevicePlugin(t *testing.T) {
	for enabled, want := range map[string]int{"false": 0, "true": 1} {
		rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set", "devicePlugin.enabled="+enabled)
		if err != nil {
			t.Fatal(err)
		}
		plugins := find[*appsv1.DaemonSet](t, rendered)
		if len(plugins) != want {
			t.Fatalf("enabled %s: %d DaemonSets, want %d", enabled, len(plugins), want)
		}
		for _, plugin := range plugins {
			confined := plugin.Spec.Template.Spec.Containers[0].SecurityContext.SeccompProfile
			if confined == nil || confined.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("its system calls are confined by %v, want the runtime's default", confined)
			}
			if missing := preflight.MissingPlugin([]appsv1.DaemonSet{*plugin}, "nvidia.com/gpu"); missing != "" {
				t.Errorf("the controller does not know it: %s", missing)
			}
			terms := plugin.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if on := terms[0].MatchExpressions[0]; len(terms) != 1 || on.Key != v1beta1.LabelWorkspaceUID || on.Operator != corev1.NodeSelectorOpExists {
				t.Errorf("it runs on nodes with %v, want those with the label %s", terms, v1beta1.LabelWorkspaceUID)
			}
			controller := find[*appsv1.Deployment](t, rendered)[0]
			if selector, err := metav1.LabelSelectorAsSelector(controller.Spec.Selector); err != nil || selector.Matches(labels.Set(plugin.Spec.Template.Labels)) {
				t.Errorf("its pods are taken for the controller's (%v): %v", err, plugin.Spec.Template.Labels)
			}
		}
	}
}

// TestRegistry: registry is the registry of images without one in their repository. A released chart sets it, and the
// device plugin's image is not in that registry.
func TestRegistry(t *testing.T) {
	for _, tc := range []struct{ reason, registry, plugin, want string }{
		{"no registry", "", "nvcr.io/nvidia/k8s-device-plugin", "nvcr.io/nvidia/k8s-device-plugin"},
		{"the default of a released chart", "registry.example/modelberth", "nvcr.io/nvidia/k8s-device-plugin", "nvcr.io/nvidia/k8s-device-plugin"},
		{"a mirrored image", "registry.example/modelberth/", "nvidia/k8s-device-plugin", "registry.example/modelberth/nvidia/k8s-device-plugin"},
		{"a registry with a port", "registry.example", "mirror:5000/k8s-device-plugin", "mirror:5000/k8s-device-plugin"},
		{"a registry on this machine", "registry.example", "localhost/k8s-device-plugin", "localhost/k8s-device-plugin"},
		{"a dot behind the first path element", "registry.example", "nvidia/plugin.v1", "registry.example/nvidia/plugin.v1"},
		{"a name with a dot is no registry", "registry.example", "plugin.v1", "registry.example/plugin.v1"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			rendered, err := template(t, "--values", "testdata/minimal.values.yaml", "--set", "devicePlugin.enabled=true,devicePlugin.image.tag=v1",
				"--set", "registry="+tc.registry, "--set", "devicePlugin.image.repository="+tc.plugin)
			if err != nil {
				t.Fatal(err)
			}
			got := find[*appsv1.DaemonSet](t, rendered)[0].Spec.Template.Spec.Containers[0].Image
			if diff := cmp.Diff(tc.want+":v1", got); diff != "" {
				t.Errorf("image (-want +got):\n%s", diff)
			}
		})
	}
}
