// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLifecycleOfHollowMachines has the real Karpenter buy a mere Node for a machine: a pod runs there, and both go
// on deletion.
func TestLifecycleOfHollowMachines(t *testing.T) {
	const sku = "Standard_NC24ads_A100_v4"
	c := newTestCloud(t)
	c.up(t, "--hollow")
	t.Cleanup(func() { c.run(t, "down") })
	kube := c.kube(t)
	machine := &watcher{kube: kube, name: "hollow"}
	if err := kube.Create(t.Context(), machine.claim(sku)); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "hollow"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelInstanceTypeStable: sku},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: "engine", Image: "registry.example/never-pulled"}},
		},
	}
	await(t, time.Minute, func() error { // the namespace's account has to exist first
		return client.IgnoreAlreadyExists(kube.Create(t.Context(), pod.DeepCopy()))
	})
	await(t, time.Minute, func() error {
		seen, err := machine.look(t)
		if err == nil && seen != "Launched Registered Initialized 1 GPUs" {
			err = fmt.Errorf("the machine is %s", seen)
		}
		return err
	})
	await(t, time.Minute, func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.Status.PodIP != "" {
				return nil
			}
		}
		return fmt.Errorf("the pod is %s: %+v", pod.Status.Phase, pod.Status.Conditions)
	})
	for _, object := range []client.Object{pod, machine.claim(sku)} {
		if err := kube.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		await(t, time.Minute, func() error {
			err := kube.Get(t.Context(), client.ObjectKeyFromObject(object), object)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return cmp.Or(err, fmt.Errorf("%T is not gone", object))
		})
	}
}
