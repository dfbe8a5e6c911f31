// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelberth/modelberth/api/v1beta1"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/workload"
)

// restartLimit is how long a restarting pod still counts as serving.
const restartLimit = 5 * time.Minute

// diagnosed returns the input of a diagnosis of the pods.
func (s *scope) diagnosed() diagnosis.Input {
	in := diagnosis.Input{Pods: s.pods, Nodes: s.nodes, Signatures: s.words, Warnings: s.warnings}
	if runs := s.running(); runs != nil {
		in.Want, in.Plan = runs.Plan.Nodes, &runs.Plan
	}
	return in
}

// isCurrent says whether the pods are those of the StatefulSet as it is to be.
func (s *scope) isCurrent() bool {
	return !s.rolling && (!s.isGroup() || s.workers != nil) && s.isRolledOut()
}

// leader returns the answering pod once it is ready; nil before.
func (s *scope) leader() *corev1.Pod {
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Name == s.ws.Name+"-0" && pod.Status.PodIP != "" && isPodReady(pod) {
			return pod
		}
	}
	return nil
}

func isPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isServing says whether the pods answer, or do so again shortly.
func (s *scope) isServing(now time.Time) bool {
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Name != s.ws.Name+"-0" {
			continue
		}
		since := pod.CreationTimestamp.Time
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.LastTransitionTime.After(since) {
				since = condition.LastTransitionTime.Time
			}
		}
		return isPodReady(pod) || now.Sub(since) < restartLimit
	}
	return false
}

// answers reports whether a pod is ready for requests.
func (s *scope) answers() bool {
	if s.isGroup() {
		return s.leader() != nil
	}
	for i := range s.pods {
		if isPodReady(&s.pods[i]) {
			return true
		}
	}
	return false
}

// isHeldBack reports whether the engines of a group wait until strangers are found not to reach its pods.
func (s *scope) isHeldBack() bool {
	return s.isGroup() && slices.ContainsFunc(s.currentPods(), workload.IsHeld)
}

// observeWarnings reads the events about delayed pods and sets without a reason of their own.
func (r *Reconciler) observeWarnings(ctx context.Context, s *scope) error {
	was := meta.FindStatusCondition(s.before.Conditions, v1beta1.ConditionInferenceReady)
	isQuoted := was != nil && slices.Contains(diagnosis.PublishedReasons(), was.Reason)
	found, again, err := r.warnings.Read(ctx, s.ws, diagnosis.Silent(s.pods, s.sets()), isQuoted)
	s.warnings = append(s.warnings, found...)
	if again > 0 {
		s.lookAgain(again)
	}
	return err
}
