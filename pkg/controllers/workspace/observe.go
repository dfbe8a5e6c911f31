// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// observe reads the world once, from caches. Nobody writes to the revisions and pods: the cache's own are read.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	if err := r.observeRevisions(ctx, s); err != nil {
		return err
	}
	if err := r.observeWorkload(ctx, s); err != nil {
		return err
	}
	if err := r.observeMachines(ctx, s); err != nil {
		return err
	}
	s.observed = true
	return nil
}

// observeRevisions lists the revisions of this Workspace, oldest first.
func (r *Reconciler) observeRevisions(ctx context.Context, s *scope) error {
	list := &appsv1.ControllerRevisionList{}
	err := r.Client.List(ctx, list, client.InNamespace(s.ws.Namespace),
		client.MatchingLabels{v1beta1.LabelRevisionOwner: s.ws.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	s.revisions = slices.DeleteFunc(list.Items, func(item appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(&item, s.ws)
	})
	slices.SortFunc(s.revisions, func(a, b appsv1.ControllerRevision) int {
		if a.Revision != b.Revision {
			return int(a.Revision - b.Revision)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return nil
}

// observeWorkload reads the StatefulSets that are ours, and their pods.
func (r *Reconciler) observeWorkload(ctx context.Context, s *scope) error {
	var err error
	if s.statefulSet, err = r.observeSet(ctx, s, s.ws.Name); err != nil {
		return err
	}
	if s.workers, err = r.observeSet(ctx, s, workload.WorkerName(s.ws)); err != nil {
		return err
	}
	s.group = workload.GroupOf(s.statefulSet)
	if s.statefulSet == nil && s.workers == nil {
		return nil
	}
	pods := &corev1.PodList{}
	err = r.Client.List(ctx, pods, client.InNamespace(s.ws.Namespace),
		client.MatchingLabels{v1beta1.LabelWorkspace: s.ws.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	s.pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(s.sets(), func(set *appsv1.StatefulSet) bool { return metav1.IsControlledBy(&pod, set) })
	})
	slices.SortFunc(s.pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// observeSet reads one StatefulSet; nil if it is not there or not ours.
func (r *Reconciler) observeSet(ctx context.Context, s *scope, name string) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := client.IgnoreNotFound(r.Client.Get(ctx, client.ObjectKey{Namespace: s.ws.Namespace, Name: name}, set))
	if err != nil {
		return nil, fmt.Errorf("reading StatefulSet %s: %w", name, err)
	}
	if !metav1.IsControlledBy(set, s.ws) {
		return nil, nil
	}
	return set, nil
}

func (r *Reconciler) observeMachines(ctx context.Context, s *scope) error {
	gpuResource, names := "", []string(nil)
	if accepted := s.accepted(); accepted != nil {
		gpuResource, names = accepted.Plan.GPUResource, accepted.Plan.NodeNames
		s.leftNodes = r.stillLeft(accepted)
	}
	machines, err := r.Provisioner.Observe(ctx, s.owner, s.knownMachines(), gpuResource)
	if err != nil {
		return err
	}
	s.machines, s.machineKind = machines, r.Provisioner.Kind(s.owner)
	return r.observeNodes(ctx, s, names)
}
