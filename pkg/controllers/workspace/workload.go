// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/render"
)

// ensureNames sees to it, before anything is bought, that the names which the Workspace leads to are
// free or ours. What leads to a Workspace that runs is kept, whatever becomes of its machines.
func (r *Reconciler) ensureNames(ctx context.Context, s *scope) error {
	around := r.network(s)
	if s.statefulSet != nil {
		if err := r.ensureGuards(ctx, s, around[1:]); err != nil {
			return err
		}
		return r.ensureEndpoint(ctx, s, around[0])
	}
	for _, object := range around {
		if _, err := r.Applier.State(ctx, s.ws, object); err != nil {
			return classify(err)
		}
	}
	if len(s.machines) > 0 {
		return nil
	}
	for _, pods := range s.desiredSets() {
		if err := r.Applier.Check(ctx, s.ws, pods); err != nil {
			return classify(err)
		}
	}
	return nil
}

// network are the objects around the pods of the accepted revision, and of the one that they still run from.
func (r *Reconciler) network(s *scope) []render.Object {
	var runs *render.Revision
	if serving := s.revisionOf(s.statefulSet); serving != nil {
		runs = &serving.Revision
	}
	return s.revision.Network(s.ws, r.Render.Workload, runs)
}

// ensureEndpoint orders the Service that leads to the Workspace, unless it stands as it is to be. Pods start without.
func (r *Reconciler) ensureEndpoint(ctx context.Context, s *scope, service render.Object) error {
	state, err := r.Applier.State(ctx, s.ws, service)
	if err != nil || state == apply.Applied { // how an earlier try ended tells nothing of the next one
		r.Endpoints.Forget(client.ObjectKeyFromObject(s.ws))
	}
	if err != nil {
		return classify(err)
	}
	s.named = state != apply.Missing
	if state == apply.Applied {
		return nil
	}
	s.lookAgain(acquire.CacheLag) // should it vanish before the cache shows it
	return classify(r.Endpoints.Order(s.ws, service))
}

// ensureGuards makes what has to stand before pods do: who may reach them, and where they find each other.
func (r *Reconciler) ensureGuards(ctx context.Context, s *scope, objects []render.Object) error {
	for _, object := range objects {
		if _, err := r.Applier.Apply(ctx, s.ws, object); err != nil && !s.mayLack(object, err) {
			return classify(err)
		}
	}
	return nil
}

// mayLack says that a Workspace that runs goes on without an object: earlier versions made no NetworkPolicy and
// no PodDisruptionBudget, so that its user may have made one under its name.
func (s *scope) mayLack(object render.Object, err error) bool {
	_, isTaken := errors.AsType[*apply.TakenError](err)
	_, isPolicy := object.(*networkingv1.NetworkPolicy)
	_, isBudget := object.(*policyv1.PodDisruptionBudget)
	return isTaken && (isPolicy || isBudget) && s.statefulSet != nil
}

// ensureWorkload makes the StatefulSets while the machines are on their way, unless it was they that asked for
// them: their pods fit this Workspace's machines only, so nothing else buys for them meanwhile. The pass that
// asks for machines leaves that to the next one, whose status comes first.
func (r *Reconciler) ensureWorkload(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && (len(s.created) > 0 || !s.hasMachines()) {
		return nil
	}
	if err := s.checkVerified(); err != nil {
		return err
	}
	if !s.isOnNodes() && s.openAttempt() == nil && s.heldAttempt() == nil {
		return nil // whatever runs goes on: nobody knows which machines it was made for
	}
	var around []render.Object
	if s.statefulSet == nil { // else they have been seen to with the names
		around = r.network(s)
		if err := r.ensureGuards(ctx, s, around[1:]); err != nil {
			return err
		}
	}
	if err := r.applyPods(ctx, s); err != nil {
		return classify(err)
	}
	if s.statefulSet == nil {
		if err := r.ensureEndpoint(ctx, s, around[0]); err != nil {
			return err
		}
	}
	if s.isGroup() || s.workers == nil {
		return nil
	}
	return deleteSet(ctx, r.Client, s.workers) // of a plan with several machines
}

// applyPods writes the StatefulSets as they are to be, aimed at the machines of the open attempt.
func (r *Reconciler) applyPods(ctx context.Context, s *scope) error {
	var asked *capacity.Request
	if !s.isOnNodes() && s.openAttempt() != nil {
		asked = new(r.request(s))
	}
	desired := s.desiredSets()
	s.group = s.groupOfRevision()
	for _, object := range desired {
		if set, isSet := object.(*appsv1.StatefulSet); isSet && asked != nil {
			if err := r.Provisioner.Aim(*asked, &set.Spec.Template); err != nil {
				return fmt.Errorf("aiming the pods of %s at its machines: %w", set.Name, err)
			}
		}
		wrote, err := r.Applier.Apply(ctx, s.ws, object)
		if err != nil {
			return err
		}
		s.rolling = s.rolling || wrote
	}
	return nil
}
