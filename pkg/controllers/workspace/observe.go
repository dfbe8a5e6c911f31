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
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/workload"
)

// observe reads the world once, from caches, and past them what the status tells of and they do not show yet. Nobody
// writes to the revisions and pods: the cache's own are read.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	if err := r.observeRevisions(ctx, s); err != nil {
		return err
	}
	if err := r.observeWorkload(ctx, r.Client, s); err != nil {
		return err
	}
	if err := r.observeMachines(ctx, s); err != nil {
		return err
	}
	if err := r.observeUnshown(ctx, s); err != nil {
		return err
	}
	if err := r.observeNamespace(ctx, s); err != nil {
		return err
	}
	if len(s.pods) > 0 {
		r.settlePods(s.ws.UID)
	}
	s.observed = true
	return nil
}

// observeRevisions lists the revisions of this Workspace, oldest first. Where the status names none, it may have been lost,
// unless it is known not to be written yet, and then the newest counts, which the cache may not show yet.
func (r *Reconciler) observeRevisions(ctx context.Context, s *scope) error {
	if err := r.listRevisions(ctx, r.Client, s); err != nil {
		return err
	}
	if s.ws.Status.Plan == nil && !s.isUntold && len(s.revisions) > 0 {
		return r.listRevisions(ctx, r.Live, s)
	}
	return r.observeNamed(ctx, s)
}

// listRevisions lists the revisions of this Workspace from the cache or past it, oldest first.
func (r *Reconciler) listRevisions(ctx context.Context, from client.Reader, s *scope) error {
	list := &appsv1.ControllerRevisionList{}
	ours := client.MatchingLabels{v1beta1.LabelRevisionOwner: s.ws.Name, v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	err := from.List(ctx, list, client.InNamespace(s.ws.Namespace), ours, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	s.revisions = slices.DeleteFunc(list.Items, func(item appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(&item, s.ws)
	})
	s.sortRevisions()
	return nil
}

func (s *scope) sortRevisions() {
	slices.SortFunc(s.revisions, func(a, b appsv1.ControllerRevision) int {
		if a.Revision != b.Revision {
			return int(a.Revision - b.Revision)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// observeNamed reads the revisions that the status names and the cache does not show yet: an older one would be taken
// for the accepted one, and machines be bought, or let go, for a plan that is past.
func (r *Reconciler) observeNamed(ctx context.Context, s *scope) error {
	for _, name := range s.namedRevisions() {
		isShown := slices.ContainsFunc(s.revisions, func(known appsv1.ControllerRevision) bool { return known.Name == name })
		if isShown {
			continue
		}
		unshown := appsv1.ControllerRevision{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.ws.Namespace, Name: name}, &unshown)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading ControllerRevision %s: %w", name, err)
		}
		if metav1.IsControlledBy(&unshown, s.ws) {
			s.revisions = append(s.revisions, unshown)
			s.sortRevisions()
		}
	}
	return nil
}

// observeUnshown reads the StatefulSets past the cache where that shows none although machines work: those that pods
// serve on would be let go before others have taken their place.
func (r *Reconciler) observeUnshown(ctx context.Context, s *scope) error {
	wasUsable := slices.ContainsFunc(s.openAttempts(), func(open *v1beta1.Attempt) bool { return open.ReadyTime != nil }) ||
		slices.ContainsFunc(s.heldMachines(), func(machine capacity.Machine) bool { return machine.Initialized })
	if s.statefulSet != nil || !wasUsable {
		return nil
	}
	return r.observeWorkload(ctx, r.Live, s)
}

// observeWorkload reads the StatefulSets that are ours, from the cache or past it, and their pods.
func (r *Reconciler) observeWorkload(ctx context.Context, from client.Reader, s *scope) error {
	var err error
	if s.statefulSet, err = observeSet(ctx, from, s.ws, s.ws.Name); err != nil {
		return err
	}
	if s.workers, err = observeSet(ctx, from, s.ws, workload.WorkerName(s.ws)); err != nil {
		return err
	}
	if s.statefulSet != nil {
		isOurs, err := r.isOurs(ctx, s, s.statefulSet)
		if err != nil {
			return err
		}
		if !isOurs {
			s.statefulSet, s.kaitoSet = nil, s.statefulSet
		}
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

// observeSet reads one StatefulSet that the Workspace controls, whoever made it; nil where there is none.
func observeSet(ctx context.Context, from client.Reader, ws *v1beta1.Workspace, name string) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := client.IgnoreNotFound(from.Get(ctx, client.ObjectKey{Namespace: ws.Namespace, Name: name}, set))
	if err != nil {
		return nil, fmt.Errorf("reading StatefulSet %s: %w", name, err)
	}
	if !metav1.IsControlledBy(set, ws) {
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
	machines, err := r.Provisioner.Observe(ctx, s.owner, s.notedMachines(), gpuResource)
	if err != nil {
		return err
	}
	s.machines, s.machineKind = machines, r.Provisioner.Kind(s.owner)
	return r.observeNodes(ctx, s, names)
}
