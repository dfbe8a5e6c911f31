// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ensureGroup replaces all members of a group together. It writes the number of the next group before it deletes
// a pod: later passes recognize the pods of the former group by their template, and delete them.
func (w *workloads) ensureGroup(ctx context.Context, s *scope.Scope) error {
	if !s.IsGroup() || s.IsRolling {
		return nil // fresh sets do not yet identify former pods
	}
	now := w.Clock.Now()
	s.GroupStep = group.Decide(group.State{
		Sets: []*appsv1.StatefulSet{s.StatefulSet, s.Workers}, Pods: s.Pods,
		Failures: s.Group.Failures, NotBefore: s.Group.NotBefore, Now: now,
	})
	switch step := s.GroupStep; step.Do {
	case group.Wait:
		s.LookAgain(step.Until.Sub(now))
		return nil
	case group.Replace:
		log.FromContext(ctx).Info("replacing a group", "number", s.Group.Number+1, "reason", step.Failure)
		s.Group = workload.Group{Number: s.Group.Number + 1, NotBefore: step.Until, Failures: step.Failures, Failure: step.Failure}
		return w.ensureWorkload(ctx, s)
	case group.Delete:
		// If the cache lacks the newest templates, their pods and all later pods would count as pods of a former
		// group.
		var sets []client.Object
		for _, set := range s.Sets() {
			sets = append(sets, set)
		}
		if err := stale.Confirm(ctx, w.Live, sets...); err != nil {
			return err
		}
		s.IsRolling = s.IsRolling || len(step.Leaving) > 0
		return deletePods(ctx, w.Client, s.Workspace.Namespace, step.Leaving, "it belongs to an earlier group")
	default:
		return nil
	}
}

// ensureIsolation allows the engines of a group to start once a probe shows that other pods cannot reach the
// group.
func (r *Reconciler) ensureIsolation(ctx context.Context, s *scope.Scope) error {
	if !s.IsGroup() {
		return nil
	}
	again, err := r.isolate.Start(ctx, isolation.Group(client.ObjectKeyFromObject(s.Workspace)), s.CurrentPods(), s.Running().Plan.Nodes)
	if again > 0 {
		s.LookAgain(again)
	}
	return err
}
