// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/preflight"
)

func daemonSet(name string, tolerations ...corev1.Toleration) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: name},
		Spec:       appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Tolerations: tolerations}}},
	}
}

// TestTaintKeepsNoDaemonSetAway: a DaemonSet that runs on a machine with the taint sku=gpu also runs on a machine with
// a second taint. Otherwise the message names it, with the missing toleration.
func TestTaintKeepsNoDaemonSetAway(t *testing.T) {
	const key = "modelberth.dev/workspace-uid"
	gpus := corev1.Toleration{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	nvidias := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	ours := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	sentence := func(names string) string {
		return "the taint modelberth.dev/workspace-uid=UID:NoSchedule keeps DaemonSet " + names + " off the machine, because the DaemonSet tolerates only " +
			"sku=gpu:NoSchedule: add the toleration {key: modelberth.dev/workspace-uid, operator: Exists, effect: NoSchedule} to the DaemonSet"
	}
	tests := []struct {
		reason     string
		daemonSets []appsv1.DaemonSet
		want       string
	}{
		{"there are none", nil, ""},
		{"one that tolerates everything", []appsv1.DaemonSet{daemonSet("nvidia-device-plugin", everything)}, ""},
		{"one with both tolerations", []appsv1.DaemonSet{daemonSet("nvidia-device-plugin", gpus, ours)}, ""},
		{"one that does not come to our machines", []appsv1.DaemonSet{daemonSet("nvidia-device-plugin", nvidias)}, ""},
		{"a device plugin", []appsv1.DaemonSet{daemonSet("nvidia-device-plugin", gpus)}, sentence("gpus/nvidia-device-plugin")},
		{"what a device plugin needs", []appsv1.DaemonSet{daemonSet("nfd-worker", gpus), daemonSet("plugin", gpus, ours)}, sentence("gpus/nfd-worker")},
		{"several", []appsv1.DaemonSet{daemonSet("b", gpus), daemonSet("a", nvidias, gpus)}, sentence("gpus/a, gpus/b")},
		{"the taint of one Workspace", []appsv1.DaemonSet{
			daemonSet("a", gpus, corev1.Toleration{Key: key, Value: "11111111-2222-3333-4444-555555555555"}),
		}, sentence("gpus/a")},
		{"no value", []appsv1.DaemonSet{daemonSet("a", gpus, corev1.Toleration{Key: key})}, sentence("gpus/a")},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, preflight.ExcludedDaemonSets(test.daemonSets)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
