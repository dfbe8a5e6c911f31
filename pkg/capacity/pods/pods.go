// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods gets machines with pending pods: cluster autoscaler, a compute class or a person adds the nodes. The
// package itself buys nothing.
//
// It decides the node requirements of such pods, which pods count as machines, and how cluster autoscaler's events
// about them count. A machine is one ordinal of a StatefulSet, with the number of its attempt. The StatefulSets whose
// pods have an annotation with the request are the source of truth about a Workspace's machines. Pods of another
// attempt are gone before new ones are created. The package must not depend on models, plans, or how pods are
// rendered.
package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Provisioner creates, observes and deletes waiting pods.
type Provisioner struct {
	// cached reads from watches, and live from the API server.
	cached client.Client
	live   client.Reader
	clock  clock.PassiveClock
	prices Prices
	// isDeaf is set if no cache has events about pods.
	isDeaf bool
}

// New returns a Provisioner. The live reader must not be backed by a cache; the cache must find
// events by Subject.
func New(cached client.Client, live client.Reader, clock clock.PassiveClock, prices Prices) *Provisioner {
	return &Provisioner{cached: cached, live: live, clock: clock, prices: prices}
}

// NewRetired returns a Provisioner for pods from before the current back end was configured. It reads no events about
// them.
func NewRetired(cached client.Client, live client.Reader, clock clock.PassiveClock, prices Prices) *Provisioner {
	return &Provisioner{cached: cached, live: live, clock: clock, prices: prices, isDeaf: true}
}

// Kind returns the kind of object that represents a machine.
func (*Provisioner) Kind(capacity.Owner) string { return "pod" }

// Observe returns the machines held for a Workspace, by ordinal, from the cache.
func (p *Provisioner) Observe(
	ctx context.Context, owner capacity.Owner, _ []capacity.Created, gpuResource string,
) ([]capacity.Machine, error) {
	slots, err := slotsOf(ctx, p.cached, owner)
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	view, err := p.look(ctx, slots)
	if err != nil {
		return nil, err
	}
	machines := make([]capacity.Machine, 0, len(slots))
	for i := range slots {
		machines = append(machines, view.machine(&slots[i], corev1.ResourceName(gpuResource)))
	}
	return machines, nil
}

// Held returns the machines of a Workspace that are not being deleted, by name, from the StatefulSets and pods of the
// API server. It returns names only, and reads no reports of nodes or pods.
func (p *Provisioner) Held(ctx context.Context, owner capacity.Owner, _ []capacity.Created) ([]capacity.Machine, error) {
	slots, err := slotsOf(ctx, p.live, owner)
	if err != nil {
		return nil, err
	}
	var held []capacity.Machine
	for i := range slots {
		if !slots[i].isLeaving {
			held = append(held, capacity.Machine{Name: slots[i].name()})
		}
	}
	slices.SortFunc(held, func(a, b capacity.Machine) int { return strings.Compare(a.Name, b.Name) })
	return held, nil
}

// Names returns the names of the machines of one attempt, by ordinal.
func (*Provisioner) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	names := make([]string, 0, count)
	for ordinal := range count {
		names = append(names, nameOf(owner, attempt, ordinal))
	}
	return names, nil
}

// nameOf returns the name of a pod with the number of the attempt, because chat-0 is a different machine in each
// attempt.
func nameOf(owner capacity.Owner, attempt int32, ordinal int) string {
	return fmt.Sprintf("%s/%s-%d.%d", owner.Namespace, owner.Name, ordinal, attempt)
}

// Ensure creates the pods of a request once the pods of all other requests are gone. The outcome is valid even with an
// error.
func (p *Provisioner) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	var outcome capacity.Outcome
	slots, err := slotsOf(ctx, p.cached, req.Owner)
	if err == nil && decide(slots, req).isSettled {
		return outcome, nil
	}
	// The cache may lag behind our own writes, or those of an earlier leader.
	if err == nil {
		slots, err = slotsOf(ctx, p.live, req.Owner)
	}
	todo := decide(slots, req)
	if err != nil || todo.isSettled || len(todo.release) == 0 && todo.isOccupied {
		return outcome, err
	}
	if req.Confirm != nil {
		if err := req.Confirm(ctx); err != nil {
			return outcome, err
		}
	}
	if len(todo.release) > 0 {
		outcome.Released, err = p.release(ctx, todo.release)
		return outcome, err
	}
	if err := req.MakePods(ctx); err != nil {
		return outcome, err
	}
	for ordinal := range req.Count {
		outcome.Created = append(outcome.Created, capacity.Created{Name: nameOf(req.Owner, req.Attempt, ordinal)})
	}
	return outcome, nil
}

// decision is the next action on a Workspace's slots.
type decision struct {
	// release are the slots to delete, because they do not match the request.
	release []slot
	// isOccupied is set if slots are being deleted. isSettled is set if there is nothing to do.
	isOccupied, isSettled bool
}

func decide(slots []slot, req capacity.Request) decision {
	var out decision
	serving := 0
	for i := range slots {
		s := &slots[i]
		switch {
		case s.isLeaving:
			out.isOccupied = true
		case s.asked.Attempt != req.Attempt || s.asked.InstanceType != req.InstanceType || s.asked.CapacityType != req.CapacityType:
			out.release = append(out.release, *s)
		default:
			serving++
		}
	}
	out.isSettled = serving == req.Count && len(out.release) == 0 && !out.isOccupied
	return out
}

// CanSurge returns false: the pods of two attempts have the same names.
func (*Provisioner) CanSurge(capacity.Owner) bool { return false }

// Replaces returns ReplacesPod: once replaced, the pod of a lost machine requests another one.
func (*Provisioner) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesPod }

// ReleaseBut is Release: the machines belong to one attempt only.
func (p *Provisioner) ReleaseBut(ctx context.Context, owner capacity.Owner, _ []string) ([]string, error) {
	return p.Release(ctx, owner)
}

// Release deletes a Workspace's StatefulSets and their pods, and returns the remaining names. An empty result is
// confirmed by the API server. The nodes stay.
func (p *Provisioner) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	slots, err := slotsOf(ctx, p.cached, owner)
	if err == nil && len(slots) == 0 {
		slots, err = slotsOf(ctx, p.live, owner)
	}
	if err != nil {
		return nil, err
	}
	return p.release(ctx, slots)
}

func (p *Provisioner) release(ctx context.Context, slots []slot) ([]string, error) {
	var left []string
	deleted := map[types.UID]bool{}
	for i := range slots {
		s := &slots[i]
		left = append(left, s.name())
		var err error
		switch {
		case s.set != nil && deleted[s.setUID]:
		case s.set != nil:
			err, deleted[s.setUID] = p.delete(ctx, s.set), true
		case s.pod.DeletionTimestamp.IsZero(): // its set is gone, but the pod is not being deleted
			err = p.delete(ctx, s.pod)
		default:
			err = p.deleteStuck(ctx, s.pod)
		}
		if err != nil {
			return left, err
		}
	}
	slices.Sort(left)
	return left, nil
}

func (p *Provisioner) delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if !object.GetDeletionTimestamp().IsZero() && len(options) == 0 {
		return nil
	}
	uid := object.GetUID()
	err := p.cached.Delete(ctx, object, append(options, client.Preconditions{UID: &uid})...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one has taken its name since
	}
	if err != nil {
		return fmt.Errorf("deleting %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// deleteStuck force-deletes a terminating pod after its deadline if no kubelet can stop it: its node is gone, or not
// Ready.
func (p *Provisioner) deleteStuck(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" || p.clock.Now().Before(pod.DeletionTimestamp.Time) {
		return nil
	}
	node := &corev1.Node{}
	err := p.cached.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading node %q: %w", pod.Spec.NodeName, err)
	}
	if isReady, _ := nodehealth.Ready(node); err == nil && isReady {
		return nil
	}
	return p.delete(ctx, pod, client.GracePeriodSeconds(0))
}

// Owners returns the owners of objects among all Workspaces of a name: several if a Workspace was deleted and created
// again.
func (p *Provisioner) Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error) {
	labels := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspace: name}
	held, err := list(ctx, p.cached, client.InNamespace(namespace), labels)
	if err != nil {
		return nil, fmt.Errorf("looking for the pods of workspace %s/%s: %w", namespace, name, err)
	}
	return ownersOf(held.slots(nobody)), nil
}

// Holders returns the existing Workspaces with pods that request a machine, or with StatefulSets of such pods. It
// skips deleted Workspaces, because the garbage collector deletes their remains.
func (p *Provisioner) Holders(ctx context.Context) ([]capacity.Owner, error) {
	managed := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	pods, sets := &corev1.PodList{}, &appsv1.StatefulSetList{}
	if err := p.live.List(ctx, pods, managed, client.HasLabels{v1beta1.LabelWorkspaceUID}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	if err := p.cached.List(ctx, sets, managed, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing StatefulSets: %w", err)
	}
	isLive, err := living(ctx, p.live, bareWorkspaces())
	if err != nil {
		return nil, err
	}
	owners := ownersOf(slotsIn(sets.Items, pods.Items, nobody))
	return slices.DeleteFunc(owners, func(owner capacity.Owner) bool { return !isLive(owner) }), nil
}

// nobody reports no Workspace as live. Each StatefulSet then has one slot, which is enough to read its owner.
func nobody(capacity.Owner) bool { return false }

func ownersOf(slots []slot) []capacity.Owner {
	var owners []capacity.Owner
	for i := range slots {
		owners = append(owners, slots[i].owner)
	}
	return capacity.Distinct(owners)
}

// Events returns nothing, because Observe already includes the events about pods.
func (*Provisioner) Events(context.Context, []types.UID) ([]refusal.Event, error) { return nil, nil }

// Class returns nothing, because node groups have no node class.
func (*Provisioner) Class(context.Context, v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return refusal.ClassNotSeen, "", nil
}

// slotsOf returns the slots of one Workspace.
func slotsOf(ctx context.Context, from client.Reader, owner capacity.Owner) ([]slot, error) {
	labels := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy, v1beta1.LabelWorkspace: owner.Name}
	held, err := list(ctx, from, client.InNamespace(owner.Namespace), labels)
	if err != nil {
		return nil, fmt.Errorf("looking for the pods of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	slots := held.slots(func(other capacity.Owner) bool { return other == owner })
	return slices.DeleteFunc(slots, func(s slot) bool { return s.owner.UID != owner.UID }), nil
}

// holding has the objects from the API server or a cache.
type holding struct {
	sets []appsv1.StatefulSet
	pods []corev1.Pod
}

func (h holding) slots(isLive func(capacity.Owner) bool) []slot {
	return slotsIn(h.sets, h.pods, isLive)
}

// list reads the objects with some labels. It reads pods first: if a pod's set is missing afterwards, the pod is
// being deleted.
func list(ctx context.Context, from client.Reader, options ...client.ListOption) (holding, error) {
	pods, sets := &corev1.PodList{}, &appsv1.StatefulSetList{}
	if err := from.List(ctx, pods, options...); err != nil {
		return holding{}, fmt.Errorf("listing pods: %w", err)
	}
	if err := from.List(ctx, sets, options...); err != nil {
		return holding{}, fmt.Errorf("listing StatefulSets: %w", err)
	}
	return holding{sets: sets.Items, pods: pods.Items}, nil
}
