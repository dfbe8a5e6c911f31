// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// workloads writes the serving objects of Workspaces, and removes pods that cannot run.
type workloads struct {
	Client    client.Client
	Live      client.Reader
	Applier   Applier
	Endpoints Endpoints
	Settings  workload.Settings
	Clock     clock.PassiveClock
	// NodeGrace is how long a node may be not Ready before it counts as lost; 0 means no limit.
	NodeGrace time.Duration
	// PinPods makes pods run on the machines of the open attempt.
	PinPods func(*scope.Scope, *corev1.PodTemplateSpec) error
	// IsGone reports whether the API server has no node of that name.
	IsGone func(ctx context.Context, name string) (bool, error)

	// adapters changes the adapters of running engines.
	adapters *adapterLists
}

// ensureNames checks before a purchase that the names of the Workspace's objects are free or ours. For a running
// Workspace, it writes its Services and policies, whatever happens to its machines.
func (w *workloads) ensureNames(ctx context.Context, s *scope.Scope) error {
	around := w.network(s)
	if s.StatefulSet != nil {
		if err := w.ensureGuards(ctx, s, around[1:]); err != nil {
			return err
		}
		return w.ensureEndpoint(ctx, s, around[0])
	}
	for _, object := range around {
		if _, err := w.Applier.State(ctx, s.Workspace, object); err != nil {
			return classify(err)
		}
	}
	if len(s.Machines) > 0 {
		return nil
	}
	for _, pods := range s.DesiredSets() {
		if err := w.Applier.Check(ctx, s.Workspace, pods); err != nil {
			return classify(err)
		}
	}
	return nil
}

// network returns the objects around the pods, for the accepted revision and for the revision that the pods still
// run. The Service of the endpoint comes first.
func (w *workloads) network(s *scope.Scope) []render.Object {
	var runs *render.Revision
	if serving := s.RevisionOf(s.StatefulSet); serving != nil {
		runs = &serving.Revision
	}
	return s.Revision.Network(s.Workspace, w.Settings, runs)
}

// ensureEndpoint requests the Service of the Workspace unless it is up to date. Pods start without this Service.
func (w *workloads) ensureEndpoint(ctx context.Context, s *scope.Scope, service render.Object) error {
	state, err := w.Applier.State(ctx, s.Workspace, service)
	if err != nil || state == apply.Applied { // the result of an earlier try says nothing about the next one
		w.Endpoints.Forget(client.ObjectKeyFromObject(s.Workspace))
	}
	if err != nil {
		return classify(err)
	}
	s.HasService = state != apply.Missing
	if state == apply.Applied {
		return nil
	}
	s.LookAgain(acquire.CacheLag) // in case it vanishes before the cache shows it
	return classify(w.Endpoints.Order(s.Workspace, service))
}

// ensureGuards writes the objects that must precede the pods: the policies, and the Service through which the
// members of a group find each other.
func (w *workloads) ensureGuards(ctx context.Context, s *scope.Scope, objects []render.Object) error {
	for _, object := range objects {
		if _, err := w.Applier.Apply(ctx, s.Workspace, object); err != nil && !mayLack(s, object, err) {
			return classify(err)
		}
	}
	return nil
}

// mayLack reports whether a running Workspace continues without a policy whose name an object of the user has.
func mayLack(s *scope.Scope, object render.Object, err error) bool {
	_, isTaken := errors.AsType[*apply.TakenError](err)
	_, isPolicy := object.(*networkingv1.NetworkPolicy)
	_, isBudget := object.(*policyv1.PodDisruptionBudget)
	return isTaken && (isPolicy || isBudget) && s.StatefulSet != nil
}

// ensureWorkload writes the StatefulSets while the machines are still on their way. No autoscaler buys for these
// pods, because they fit only this Workspace's machines. The pass that requests machines writes no StatefulSets,
// so that it reports the status first. If pods request the machines, that request has already written the
// StatefulSets.
func (w *workloads) ensureWorkload(ctx context.Context, s *scope.Scope) error {
	if s.StatefulSet == nil && (len(s.Created) > 0 || !s.HasMachines()) {
		return nil
	}
	if err := s.CheckVerified(); err != nil {
		return err
	}
	if !s.IsOnNodes() && s.OpenAttempt() == nil && s.ServingAttempt() == nil {
		return nil // running pods stay: their machines are unknown
	}
	var around []render.Object
	if s.StatefulSet == nil { // otherwise ensureNames has written them
		around = w.network(s)
		if err := w.ensureGuards(ctx, s, around[1:]); err != nil {
			return err
		}
	}
	if err := w.ApplyPods(ctx, s); err != nil {
		return classify(err)
	}
	if s.StatefulSet == nil {
		if err := w.ensureEndpoint(ctx, s, around[0]); err != nil {
			return err
		}
	}
	if s.IsGroup() || s.Workers == nil {
		return nil
	}
	return deleteSet(ctx, w.Client, s.Workers) // left from a plan with several machines
}

// ApplyPods writes the desired StatefulSets, with their pods pinned to the machines of the open attempt.
func (w *workloads) ApplyPods(ctx context.Context, s *scope.Scope) error {
	desired, err := w.pinned(s)
	if err != nil {
		return err
	}
	s.Group = s.RevisionGroup()
	for _, object := range desired {
		wrote, err := w.Applier.Apply(ctx, s.Workspace, object)
		if err != nil {
			return err
		}
		s.IsRolling = s.IsRolling || wrote
	}
	return nil
}

// pinned returns the desired StatefulSets, with their pods pinned to the machines of the open attempt.
func (w *workloads) pinned(s *scope.Scope) ([]render.Object, error) {
	desired := s.DesiredSets()
	for _, object := range desired {
		if set, isSet := object.(*appsv1.StatefulSet); isSet {
			if err := w.PinPods(s, &set.Spec.Template); err != nil {
				return nil, fmt.Errorf("pinning the pods of %s to its machines: %w", set.Name, err)
			}
		}
	}
	return desired, nil
}

// DeletePods deletes pods by their UIDs.
func (w *workloads) DeletePods(ctx context.Context, namespace string, pods []group.Leaving, why string) error {
	return deletePods(ctx, w.Client, namespace, pods, why)
}
