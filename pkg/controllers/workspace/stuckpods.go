// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

// ensureNoStuckPods deletes pods whose kubelet is permanently gone, so that their StatefulSet creates others.
func (w *workloads) ensureNoStuckPods(ctx context.Context, s *scope.Scope) error {
	for i := range s.Pods {
		pod := &s.Pods[i]
		why, err := w.stuck(ctx, s, pod)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		err = w.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
		log.FromContext(ctx).Info("deleted a pod whose kubelet is gone", "pod", pod.Name, "node", pod.Spec.NodeName, "reason", why)
	}
	return nil
}

// stuck explains why no kubelet will ever report the end of a pod; empty if a kubelet may.
func (w *workloads) stuck(ctx context.Context, s *scope.Scope, pod *corev1.Pod) (string, error) {
	if pod.Spec.NodeName == "" {
		return "", nil
	}
	node := s.Node(pod.Spec.NodeName)
	if node == nil {
		return w.lostMachine(ctx, s, pod)
	}
	if pod.DeletionTimestamp.IsZero() || node.Labels[v1beta1.LabelWorkspaceUID] != "" {
		return "", nil
	}
	if isReady, _ := nodehealth.Ready(node); isReady || s.Unfit(node, w.Clock.Now(), w.NodeGrace) == "" {
		return "", nil
	}
	if left := pod.DeletionTimestamp.Sub(w.Clock.Now()); left > 0 {
		s.LookAgain(left)
		return "", nil
	}
	return "its node does not answer", nil
}

// lostMachine explains that the machine of a pod is permanently gone; empty if that is not certain. Kubernetes' own
// garbage collector deletes a pod without a node only after 40 to 60 seconds.
//
// A StatefulSet's pod must not run twice. Here it cannot: the pod fits only nodes labeled with this Workspace's UID,
// and only this Workspace's machines have that label. The finalizer karpenter.sh/termination keeps the Node until the
// cloud no longer has the machine, and keeps the NodeClaim until the Node is gone. Once both are gone, nothing can run
// the pod. If somebody deletes a Node by hand, its NodeClaim still shows that the machine exists. If this Workspace did
// not buy the node, the absence of the node proves nothing about its machine.
func (w *workloads) lostMachine(ctx context.Context, s *scope.Scope, pod *corev1.Pod) (string, error) {
	isBought := pod.Spec.NodeSelector[v1beta1.LabelWorkspaceUID] == string(s.Workspace.UID)
	isHeld := slices.ContainsFunc(s.Machines, func(m capacity.Machine) bool { return m.NodeName == pod.Spec.NodeName })
	if !isBought || isHeld {
		return "", nil
	}
	isGone, err := w.IsGone(ctx, pod.Spec.NodeName) // the cache may not show a new node yet
	if err != nil || !isGone {
		return "", err
	}
	return "its machine and its node are gone", nil
}
