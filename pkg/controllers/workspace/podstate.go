// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// diagnosed is what there is to see of the pods.
func (s *scope) diagnosed() diagnosis.Input {
	in := diagnosis.Input{Pods: s.pods, Nodes: s.nodes, Words: s.words, Warnings: s.warnings}
	if runs := s.running(); runs != nil {
		in.Want, in.Plan = runs.Plan.Nodes, &runs.Plan
	}
	return in
}

// isCurrent says whether the pods are those of the StatefulSet as it is to be.
func (s *scope) isCurrent() bool {
	return !s.rolling && (!s.isGroup() || s.workers != nil) && s.isRolledOut()
}

// isRolledOut says whether the pods are those of the sets as they were read.
func (o *observation) isRolledOut() bool {
	for _, set := range o.sets() {
		if set.Status.ObservedGeneration != set.Generation {
			return false
		}
	}
	return !slices.ContainsFunc(o.pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(o.sets(), func(set *appsv1.StatefulSet) bool {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
		})
	})
}
