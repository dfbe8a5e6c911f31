// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// observe reads the cluster's state once from caches, and live where the status names an object the caches lack.
// Revisions and pods are the cache's own: nobody writes to them.
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
	namespace, err := observeNamespace(ctx, r.Client, s.ws.Namespace)
	if err != nil {
		return err
	}
	s.namespace = namespace
	if len(s.pods) > 0 {
		r.preflight.Settle(s.ws.UID)
	}
	s.observed = true
	return nil
}

// observeRevisions lists the revisions of this Workspace. If the status names none, it may have been lost; then the
// newest counts, and the cache may lack it. Revisions in the status are read live if the cache lacks them: an older
// one would pass for the accepted one, and machines be bought or released for an outdated plan.
func (r *Reconciler) observeRevisions(ctx context.Context, s *scope) error {
	known, err := r.revisions.List(ctx, s.ws)
	if err != nil {
		return err
	}
	if s.ws.Status.Plan == nil && len(known.Objects) > 0 {
		s.revisions, err = r.revisions.ListLive(ctx, s.ws)
		return err
	}
	s.revisions, err = r.revisions.Complete(ctx, s.ws, known, s.namedRevisions())
	return err
}

// observeUnshown reads the StatefulSets live if the cache has none although machines work: the serving machines would
// be released before others have taken their place.
func (r *Reconciler) observeUnshown(ctx context.Context, s *scope) error {
	wasUsable := slices.ContainsFunc(s.attempts.Open(), func(open *v1beta1.Attempt) bool { return open.ReadyTime != nil }) ||
		slices.ContainsFunc(s.machines.Standing(), func(machine capacity.Machine) bool { return machine.Initialized })
	if s.statefulSet != nil || !wasUsable {
		return nil
	}
	return r.observeWorkload(ctx, r.Live, s)
}

// observeWorkload reads our StatefulSets, from the cache or live, and their pods.
func (r *Reconciler) observeWorkload(ctx context.Context, from client.Reader, s *scope) error {
	var err error
	if s.statefulSet, err = observeSet(ctx, from, s.ws, s.ws.Name); err != nil {
		return err
	}
	if s.workers, err = observeSet(ctx, from, s.ws, workload.WorkerName(s.ws)); err != nil {
		return err
	}
	if s.statefulSet != nil {
		isOurs, err := r.foreign.IsOurs(ctx, s.statefulSet, len(s.revisions.Objects) > 0)
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

// observeSet reads one StatefulSet of the Workspace, whoever made it; nil if there is none.
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
		s.leftNodes = stillLeft(accepted, r.Clock.Now())
	}
	machines, err := r.Provisioner.Observe(ctx, s.owner, s.attempts.Noted(), gpuResource)
	if err != nil {
		return err
	}
	s.machines, s.machineKind = machines, r.Provisioner.Kind(s.owner)
	return r.observeNodes(ctx, s, names)
}

// observeNodes reads the machines of the Workspace, the named nodes, and those of its pods.
func (r *Reconciler) observeNodes(ctx context.Context, s *scope, names []string) error {
	list := &corev1.NodeList{}
	err := r.Client.List(ctx, list, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(s.ws.UID)})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	s.nodes = list.Items
	names = slices.Clone(names)
	for i := range s.pods {
		names = append(names, s.pods[i].Spec.NodeName)
	}
	for _, name := range names {
		if name == "" || s.node(name) != nil {
			continue
		}
		node := &corev1.Node{}
		err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading node %q: %w", name, err)
		}
		s.nodes = append(s.nodes, *node)
	}
	slices.SortFunc(s.nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return r.listen(ctx, s)
}

// stillLeft returns the nodes that a plan avoids, until that expires.
func stillLeft(accepted *revision, now time.Time) []render.LeftNode {
	return slices.DeleteFunc(slices.Clone(accepted.LeftNodes), func(n render.LeftNode) bool { return !now.Before(n.Until.Time) })
}

// listen finds out whether the silence of the Workspace's nodes is their own.
func (r *Reconciler) listen(ctx context.Context, s *scope) error {
	s.silence = nodehealth.Silence{}
	isSilent := func(node corev1.Node) bool {
		isReady, _ := nodehealth.Ready(&node)
		return !isReady
	}
	if !slices.ContainsFunc(s.nodes, isSilent) {
		return nil
	}
	var err error
	s.silence, err = silenceOf(ctx, r.Client)
	return err
}

// silenceOf returns the silence of all nodes, from the cache.
func silenceOf(ctx context.Context, from client.Reader) (nodehealth.Silence, error) {
	all := &corev1.NodeList{}
	if err := from.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nodehealth.Silence{}, fmt.Errorf("listing nodes: %w", err)
	}
	return nodehealth.Listen(all.Items), nil
}

// observeNamespace reads the labels and annotations of a namespace.
func observeNamespace(ctx context.Context, from client.Reader, name string) (metav1.ObjectMeta, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := client.IgnoreNotFound(from.Get(ctx, client.ObjectKey{Name: name}, object)); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return object.ObjectMeta, nil
}
