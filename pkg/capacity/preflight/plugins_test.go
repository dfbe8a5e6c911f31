// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

func TestTrustedDaemonSets(t *testing.T) {
	in := func(namespace string) appsv1.DaemonSet {
		return appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nvidia"}}
	}
	all := []appsv1.DaemonSet{in("kube-system"), in("kube-system-2"), in("gpu-operator"), in("team-a")}
	tests := []struct {
		reason     string
		namespaces []string
		want       []appsv1.DaemonSet
	}{
		{"no namespace is trusted", nil, nil},
		{"a name", []string{"kube-system"}, []appsv1.DaemonSet{in("kube-system")}},
		{"a beginning", []string{"gpu-*", "kube-s*"}, []appsv1.DaemonSet{in("kube-system"), in("kube-system-2"), in("gpu-operator")}},
		{"all", []string{"*"}, all},
		{"an empty name", []string{""}, nil},
	}
	for _, test := range tests {
		got := preflight.TrustedDaemonSets(all, test.namespaces)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
	}
}

func TestMissing(t *testing.T) {
	daemonSet := func(name, image string, tolerations ...corev1.Toleration) appsv1.DaemonSet {
		return appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: name},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Image: image}}, Tolerations: tolerations,
			}}},
		}
	}
	const image = "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"
	ours := corev1.Toleration{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	usual := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}
	none := "nothing would advertise nvidia.com/gpu on a node with the taint sku=gpu:NoSchedule: " +
		"set the chart's devicePlugin.enabled, or install a device plugin or GPU operator that tolerates the taint, in a namespace of capacity.daemonSetNamespaces, or set the chart's capacity.gpuPluginCheck to false " +
		"if the nodes' images contain a device plugin"
	refuses := "nothing would advertise nvidia.com/gpu on a node with the taint sku=gpu:NoSchedule: " +
		"add a toleration of the taint to DaemonSet gpus/nvidia, or set the chart's capacity.gpuPluginCheck to false " +
		"if the nodes' images contain a device plugin"
	tests := []struct {
		reason     string
		daemonSets []appsv1.DaemonSet
		want       string
	}{
		{"there is none", nil, none},
		{"something else tolerates all", []appsv1.DaemonSet{daemonSet("logs", "logs:1", corev1.Toleration{Operator: corev1.TolerationOpExists})}, none},
		{"that of another vendor", []appsv1.DaemonSet{daemonSet("amd", "docker.io/rocm/k8s-device-plugin:1", ours)}, none},
		{"it tolerates NVIDIA's taint only", []appsv1.DaemonSet{daemonSet("nvidia", image, usual)}, refuses},
		{"another value", []appsv1.DaemonSet{daemonSet("nvidia", image, corev1.Toleration{Key: "sku", Value: "cpu"})}, refuses},
		{"another effect", []appsv1.DaemonSet{daemonSet("nvidia", image, corev1.Toleration{Key: "sku", Value: "gpu", Effect: "NoExecute"})}, refuses},
		{"it tolerates ours, too", []appsv1.DaemonSet{daemonSet("nvidia", image, usual, ours)}, ""},
		{"whatever the value", []appsv1.DaemonSet{daemonSet("x", image, corev1.Toleration{Key: "sku", Operator: corev1.TolerationOpExists})}, ""},
		{"everything", []appsv1.DaemonSet{daemonSet("nvidia-gpu-device-plugin", "mirror/plugin", corev1.Toleration{Operator: corev1.TolerationOpExists})}, ""},
		{"one of two", []appsv1.DaemonSet{daemonSet("nvidia", image, usual), daemonSet("nvidia-2", image, ours)}, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, preflight.MissingPlugin(test.daemonSets, "nvidia.com/gpu")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
