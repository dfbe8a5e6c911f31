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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/takeover"
	"github.com/modelberth/modelberth/pkg/workload"
)

// observer reads the state of the cluster for a pass.
type observer struct {
	Client      client.Client
	Live        client.Reader
	Provisioner capacity.Observer
	Revisions   *revision.Store
	Foreign     *foreign.Guard
	Preflight   *preflight.Checker
	Clock       clock.PassiveClock
	// NodeGrace is how long a node may be not Ready before its machine counts as lost; 0 means forever.
	NodeGrace time.Duration
}

// observe reads the cluster's state once from caches. Where the caches lack objects that the status implies, it
// reads them from the API server. The revisions and pods belong to the cache and must not be changed.
func (o *observer) observe(ctx context.Context, s *scope.Scope) error {
	if err := o.observeRevisions(ctx, s); err != nil {
		return err
	}
	if err := o.observeWorkload(ctx, s); err != nil {
		return err
	}
	if err := o.observeMachines(ctx, s); err != nil {
		return err
	}
	if err := o.awaitSet(ctx, s); err != nil {
		return err
	}
	namespace, err := observeNamespace(ctx, o.Client, s.Workspace.Namespace)
	if err != nil {
		return err
	}
	s.Namespace = namespace
	if len(s.Pods) > 0 {
		o.Preflight.Settle(s.Workspace.UID)
	}
	s.IsObserved = true
	return nil
}

// observeRevisions lists the revisions of this Workspace. In two cases it reads them from the API server. First, if the
// status names no plan, the status may have been lost: then the newest revision counts, and the cache may lack it.
// Second, if the cache lacks a revision that the status names, an older one would take its place, and the controller
// would buy or release machines for an outdated plan. A frozen Workspace has no plan, but keeps the revisions of
// reverted edits.
func (o *observer) observeRevisions(ctx context.Context, s *scope.Scope) error {
	known, err := o.Revisions.List(ctx, s.Workspace)
	isLost := s.Workspace.Status.Plan == nil && len(known.Objects) > 0 && !isFrozen(s.Workspace)
	isMissing := func(name string) bool { return known.Object(name) == nil }
	if err == nil && (isLost || slices.ContainsFunc(s.NamedRevisions(), isMissing)) {
		known, err = o.Revisions.ListLive(ctx, s.Workspace)
	}
	s.Revisions = known
	return err
}

// isFrozen reports whether the stored status says that a Workspace is frozen after a takeover, and this is still
// so.
func isFrozen(ws *v1beta1.Workspace) bool {
	planned := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned)
	return planned != nil && planned.Reason == v1beta1.ReasonFrozen && takeover.StateOf(ws) == takeover.Frozen
}

// awaitSet returns an error while machines are usable but the cache lacks the StatefulSet. Without it, the pass
// would release the serving machines before others replace them.
func (o *observer) awaitSet(ctx context.Context, s *scope.Scope) error {
	wasUsable := slices.ContainsFunc(s.Attempts.Open(), func(open *v1beta1.Attempt) bool { return open.ReadyTime != nil }) ||
		slices.ContainsFunc(s.Machines.Standing(), func(machine capacity.Machine) bool { return machine.Initialized })
	if s.StatefulSet != nil || s.KAITO.Set != nil || !wasUsable {
		return nil
	}
	hidden, err := observeSet(ctx, o.Live, s.Workspace, s.Workspace.Name)
	if err == nil && hidden != nil {
		err = progress.Behind("StatefulSets")
	}
	return err
}

// observeWorkload reads the StatefulSets of the Workspace and their pods.
func (o *observer) observeWorkload(ctx context.Context, s *scope.Scope) error {
	var err error
	if s.StatefulSet, err = observeSet(ctx, o.Client, s.Workspace, s.Workspace.Name); err != nil {
		return err
	}
	if s.Workers, err = observeSet(ctx, o.Client, s.Workspace, workload.WorkerName(s.Workspace)); err != nil {
		return err
	}
	if s.StatefulSet != nil {
		isOurs, err := o.Foreign.IsOurs(ctx, s.StatefulSet, len(s.Revisions.Objects) > 0)
		if err != nil {
			return err
		}
		if !isOurs {
			s.StatefulSet, s.KAITO.Set = nil, s.StatefulSet
		}
	}
	s.Group = workload.GroupOf(s.StatefulSet)
	if s.StatefulSet == nil && s.Workers == nil {
		return nil
	}
	pods := &corev1.PodList{}
	err = o.Client.List(ctx, pods, client.InNamespace(s.Workspace.Namespace),
		client.MatchingLabels{v1beta1.LabelWorkspace: s.Workspace.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	s.Pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(s.Sets(), func(set *appsv1.StatefulSet) bool { return metav1.IsControlledBy(&pod, set) })
	})
	slices.SortFunc(s.Pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return o.observeEndpoints(ctx, s)
}

// observeEndpoints reads the pods that get the requests to the Service, until the Workspace is Ready.
func (o *observer) observeEndpoints(ctx context.Context, s *scope.Scope) error {
	if meta.IsStatusConditionTrue(s.Workspace.Status.Conditions, v1beta1.ConditionReady) {
		return nil
	}
	found := &discoveryv1.EndpointSliceList{}
	err := o.Client.List(ctx, found, client.InNamespace(s.Workspace.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: s.Workspace.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing EndpointSlices: %w", err)
	}
	s.Endpoints = workload.ReadyEndpoints(found.Items...)
	return nil
}

// observeSet reads a StatefulSet that the Workspace owns, whether this controller or KAITO's made it; nil if
// there is none.
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

func (o *observer) observeMachines(ctx context.Context, s *scope.Scope) error {
	gpuResource, names, plans := "", []string(nil), []*render.Revision(nil)
	if running := s.RevisionOf(s.StatefulSet); running != nil {
		plans = append(plans, &running.Revision)
	}
	if accepted := s.Accepted(); accepted != nil {
		plans = append(plans, &accepted.Revision)
		gpuResource, names = accepted.Plan.GPUResource, accepted.Plan.NodeNames
		s.LeftNodes = stillLeft(accepted, o.Clock.Now())
	}
	machines, err := o.Provisioner.Observe(ctx, s.Owner, s.Attempts.Noted(), gpuResource)
	if err != nil {
		return err
	}
	s.Machines, s.MachineKind = machines, o.Provisioner.Kind(s.Owner)
	if after := s.Attempts.NoteFaults(s.Machines, plans, o.Clock.Now()); after > 0 {
		s.LookAgain(after)
	}
	if s.HasAnsweringPod() {
		s.Attempts.NoteAnswered(workload.PinnedAttempt(s.StatefulSet), s.IsRolledOut(), o.Clock.Now())
	}
	if err := o.ObserveNodes(ctx, s, names); err != nil {
		return err
	}
	nodes := s.MachineNodes(o.NodeGrace)
	if after := s.Attempts.WithholdSilent(s.Machines, &nodes, o.Clock.Now()); after > 0 {
		s.LookAgain(after)
	}
	return nil
}

// ObserveNodes reads the nodes of the Workspace's machines, the named nodes, and the nodes of its pods.
func (o *observer) ObserveNodes(ctx context.Context, s *scope.Scope, names []string) error {
	list := &corev1.NodeList{}
	err := o.Client.List(ctx, list, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(s.Workspace.UID)})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	s.Nodes = list.Items
	names = slices.Clone(names)
	for i := range s.Pods {
		names = append(names, s.Pods[i].Spec.NodeName)
	}
	for _, name := range names {
		if name == "" || s.Node(name) != nil {
			continue
		}
		node := &corev1.Node{}
		err := o.Client.Get(ctx, types.NamespacedName{Name: name}, node)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading node %q: %w", name, err)
		}
		s.Nodes = append(s.Nodes, *node)
	}
	slices.SortFunc(s.Nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return o.listen(ctx, s)
}

// stillLeft returns the nodes that a plan still avoids.
func stillLeft(accepted *revision.Revision, now time.Time) []render.LeftNode {
	return slices.DeleteFunc(slices.Clone(accepted.LeftNodes), func(n render.LeftNode) bool { return !now.Before(n.Until.Time) })
}

// listen sets the Silence of the pass if a node of the Workspace is not Ready, and clears it otherwise.
func (o *observer) listen(ctx context.Context, s *scope.Scope) error {
	s.Silence = nodehealth.Silence{}
	isSilent := func(node corev1.Node) bool {
		isReady, _ := nodehealth.Ready(&node)
		return !isReady
	}
	if !slices.ContainsFunc(s.Nodes, isSilent) {
		return nil
	}
	var err error
	s.Silence, err = silenceOf(ctx, o.Client)
	return err
}

// silenceOf returns the Silence of all nodes in the cache.
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

// IsGone reports whether the API server has no node of that name. It reads past the cache, because a move away
// from a node may buy a machine.
func (o *observer) IsGone(ctx context.Context, name string) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := o.Live.List(ctx, nodes, client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for node %q: %w", name, err)
	}
	return len(nodes.Items) == 0, nil
}
