// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// HasAnsweringPod reports whether a pod that answers requests is ready. Workers of a group do not answer, and may be
// ready without their leader.
func (o *Observation) HasAnsweringPod() bool {
	return slices.ContainsFunc(o.Pods, func(pod corev1.Pod) bool {
		isWorker := o.Workers != nil && metav1.IsControlledBy(&pod, o.Workers)
		return !isWorker && IsPodReady(&pod)
	})
}

// LastFault returns the last known fault of the pods. The stored condition also includes faults from events.
func (s *Scope) LastFault() string {
	was := meta.FindStatusCondition(s.Before.Conditions, v1beta1.ConditionInferenceReady)
	if was != nil && was.Status != metav1.ConditionTrue && was.Message != "" {
		return was.Message
	}
	return diagnosis.Inference(s.Diagnosed()).Message
}
