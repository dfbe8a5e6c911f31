// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/modelberth/modelberth/pkg/workload"
)

// TestKeep: diagnosis and back ends can read only the cached parts of a pod.
func TestKeep(t *testing.T) {
	gpu := corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}
	probe := &corev1.Probe{FailureThreshold: 9}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "chat-0", Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", NodeSelector: map[string]string{"c": "d"}, Tolerations: []corev1.Toleration{{Key: "k"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "gate"}}, TerminationGracePeriodSeconds: ptr.To[int64](30),
			Volumes: []corev1.Volume{{Name: "models"}}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			InitContainers: []corev1.Container{{
				Name: "proxy", Image: "p", RestartPolicy: always, Args: []string{"--serve"}, Env: []corev1.EnvVar{{Name: "HOME", Value: "/"}},
			}},
			Containers: []corev1.Container{{
				Name: "engine", Image: "e", Resources: gpu, StartupProbe: probe, LivenessProbe: probe, ReadinessProbe: probe,
				Command: []string{"serve"}, Args: []string{"--model", "m"}, Env: []corev1.EnvVar{{Name: "HOME", Value: "/"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "models"}}, SecurityContext: &corev1.SecurityContext{},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "chat-0", Labels: map[string]string{"a": "b"}},
		Spec: corev1.PodSpec{
			NodeName: "n", NodeSelector: map[string]string{"c": "d"}, Tolerations: []corev1.Toleration{{Key: "k"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "gate"}}, TerminationGracePeriodSeconds: ptr.To[int64](30),
			Affinity:       &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			InitContainers: []corev1.Container{{Name: "proxy", Image: "p", RestartPolicy: always, Env: []corev1.EnvVar{}}},
			Containers:     []corev1.Container{{Name: "engine", Image: "e", Resources: gpu, StartupProbe: probe, Env: []corev1.EnvVar{}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, time := range []string{"first", "second"} {
		got, err := workload.Keep(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("the %s time (-want +got):\n%s", time, diff)
		}
	}
	if other, err := workload.Keep("tombstone"); other != "tombstone" || err != nil {
		t.Errorf("another object became %v (%v)", other, err)
	}
}
