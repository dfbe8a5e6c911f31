// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/revision"
)

// Request returns the request for the machines of the open attempt.
func (e *Executor) Request(s *scope.Scope) capacity.Request {
	return e.requestFor(s, s.OpenAttempt(), s.Revision)
}

// requestFor returns the request for the machines of an attempt for a plan.
func (e *Executor) requestFor(s *scope.Scope, open *v1beta1.Attempt, made *revision.Revision) capacity.Request {
	plan := &made.Plan
	out := capacity.Request{
		Owner:        s.Owner,
		Attempt:      open.Number,
		InstanceType: plan.InstanceType,
		Count:        plan.Nodes,
		GPUResource:  plan.GPUResource,
		GPUs:         plan.MachineGPUs,
		DiskGiB:      plan.DiskGiB,
		CapacityType: plan.CapacityType,
		HourlyPrice:  purchase.MachinePrice(plan),
		Zones:        plan.Zones,
		OneZone:      made.IsGroup(),
		NodeClass:    made.NodeClass,
		Labels:       made.NodeLabels,
		Keep:         s.ServingNames(),
		MakePods:     func(ctx context.Context) error { return e.Effects.ApplyPods(ctx, s) },
		Confirm:      func(ctx context.Context) error { return e.Effects.Confirm(ctx, s) },
	}
	if made.IsGroup() { // for a single machine, the provisioner itself changes the zone
		offer := e.Market.Offering(open.InstanceType, open.Zone, open.CapacityType, open.NodeClassName)
		out.AvoidZones = e.Memory.Zones(e.Clock.Now(), lessons.Asker(s.Workspace), offer)
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

// PinPods makes pods run on the machines of the open attempt. Without such an attempt, or with a plan for existing
// nodes, pods stay unchanged. If the back end has only the serving attempt, pods stay on its machines.
func (e *Executor) PinPods(s *scope.Scope, pods *corev1.PodTemplateSpec) error {
	open, made := s.OpenAttempt(), s.Revision
	if open == nil && !s.Surge.IsPossible && s.Previous != nil {
		open, made = s.ServingAttempt(), s.Previous
	}
	if s.IsOnNodes() || open == nil {
		return nil
	}
	return e.Provisioner.PinPods(e.requestFor(s, open, made), pods)
}
