// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// pods counts the ready pods in the cache, because the cache drops the fields of KAITO's StatefulSet.
func (g *Guard) pods(ctx context.Context, seen Seen) (takeover.Pods, error) {
	out := takeover.Pods{Wanted: takeover.WantedPods(seen.Workspace)}
	all, err := g.list(ctx, seen)
	for i := range all {
		if isReady(&all[i]) && (seen.Set == nil || metav1.IsControlledBy(&all[i], seen.Set)) {
			out.Ready++
		}
	}
	return out, err
}

// members returns the pods of KAITO's StatefulSet.
func (g *Guard) members(ctx context.Context, seen Seen) ([]corev1.Pod, error) {
	if seen.Set == nil {
		return nil, nil
	}
	all, err := g.list(ctx, seen)
	return slices.DeleteFunc(all, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, seen.Set) }), err
}

func (g *Guard) list(ctx context.Context, seen Seen) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := g.Cached.List(ctx, list, client.InNamespace(seen.Workspace.Namespace),
		client.MatchingLabels{v1beta1.LabelWorkspace: seen.Workspace.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp.IsZero()
		}
	}
	return false
}
