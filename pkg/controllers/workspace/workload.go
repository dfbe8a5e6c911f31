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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ensureNames checks before a purchase that the names of the Workspace's Services are free or ours. The Services of a
// running Workspace stay, whatever happens to its machines.
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

// network returns the objects around the pods of the accepted revision, and of the one they still run.
func (r *Reconciler) network(s *scope) []render.Object {
	var runs *render.Revision
	if serving := s.revisionOf(s.statefulSet); serving != nil {
		runs = &serving.Revision
	}
	return s.revision.Network(s.ws, r.Render.Workload, runs)
}

// ensureEndpoint requests the Service of the Workspace unless it is up to date. Pods start without it.
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

// ensureGuards makes the objects that precede pods: NetworkPolicies, and the Service by which members find each
// other.
func (r *Reconciler) ensureGuards(ctx context.Context, s *scope, objects []render.Object) error {
	for _, object := range objects {
		if _, err := r.Applier.Apply(ctx, s.ws, object); err != nil && !s.mayLack(object, err) {
			return classify(err)
		}
	}
	return nil
}

// mayLack reports whether a running Workspace continues without an object: its name may belong to an object of the
// user.
func (s *scope) mayLack(object render.Object, err error) bool {
	_, isTaken := errors.AsType[*apply.TakenError](err)
	_, isPolicy := object.(*networkingv1.NetworkPolicy)
	_, isBudget := object.(*policyv1.PodDisruptionBudget)
	return isTaken && (isPolicy || isBudget) && s.statefulSet != nil
}

// ensureWorkload makes the StatefulSets while the machines are on their way, unless pods request the machines: the
// pods fit this Workspace's machines only, so no autoscaler buys for them meanwhile. The pass that requests machines
// leaves that to the next one, so that the status comes first.
func (r *Reconciler) ensureWorkload(ctx context.Context, s *scope) error {
	if s.statefulSet == nil && (len(s.created) > 0 || !s.hasMachines()) {
		return nil
	}
	if err := s.checkVerified(); err != nil {
		return err
	}
	if !s.isOnNodes() && s.openAttempt() == nil && s.heldAttempt() == nil {
		return nil // running pods stay: their machines are unknown
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

// request is for the machines of the open attempt.
func (r *Reconciler) request(s *scope) capacity.Request {
	open, plan := s.openAttempt(), &s.revision.Plan
	out := capacity.Request{
		Owner:        s.owner,
		Attempt:      open.Number,
		InstanceType: plan.InstanceType,
		Count:        plan.Nodes,
		GPUResource:  plan.GPUResource,
		GPUs:         plan.MachineGPUs,
		DiskGiB:      plan.DiskGiB,
		CapacityType: plan.CapacityType,
		HourlyPrice:  purchase.MachinePrice(plan),
		Zones:        plan.Zones,
		OneZone:      s.revision.IsGroup(),
		NodeClass:    s.revision.NodeClass,
		Labels:       s.revision.NodeLabels,
		Keep:         s.keptNames(),
		MakePods:     func(ctx context.Context) error { return r.applyPods(ctx, s) },
		Confirm:      func(ctx context.Context) error { return r.confirm(ctx, s) },
	}
	if s.revision.IsGroup() { // a provisioner of single machines changes the zone by itself
		offer := r.market.Offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
		out.AvoidZones = r.Memory.Zones(r.Clock.Now(), lessons.Asker(s.ws), offer)
	}
	for _, claim := range open.Claims {
		if claim.UID != "" {
			out.Existed = append(out.Existed, claim.Name)
		}
		if claim.Lost != nil {
			out.Replaced = append(out.Replaced, types.UID(claim.Lost.UID))
		}
	}
	return out
}

// desiredSets are the StatefulSets as they are to be.
func (s *scope) desiredSets() []render.Object {
	runs := s.running()
	desired := runs.Pods(s.ws, runs.Name, s.groupOfRevision())
	for _, object := range desired {
		if set, ok := object.(*appsv1.StatefulSet); ok && s.runsOn > 0 {
			workload.PinToAttempt(set, s.runsOn)
		}
	}
	if !s.isGroup() {
		return desired
	}
	// The number of the group is that of the read version: from any other it would go back.
	for _, set := range s.sets() {
		for _, object := range desired {
			if object.GetName() == set.Name {
				object.SetResourceVersion(set.ResourceVersion)
			}
		}
	}
	return desired
}

// groupOfRevision returns the stored group without failures of other revisions.
func (s *scope) groupOfRevision() workload.Group {
	if s.statefulSet != nil && s.statefulSet.Annotations[v1beta1.AnnotationRevision] != s.running().Name {
		return workload.Group{Number: s.group.Number}
	}
	return s.group
}
