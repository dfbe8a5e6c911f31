// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/workload"
)

// ensureGroup replaces the members of a group together. The number of the next group is written before any pod goes:
// a successor finds the pods of the former one by their template, and deletes them.
func (r *Reconciler) ensureGroup(ctx context.Context, s *scope) error {
	if !s.isGroup() || s.rolling {
		return nil // fresh sets do not yet identify former pods
	}
	now := r.Clock.Now()
	s.groupStep = group.Decide(group.State{
		Sets: []*appsv1.StatefulSet{s.statefulSet, s.workers}, Pods: s.pods,
		Failures: s.group.Failures, NotBefore: s.group.NotBefore, Now: now,
	})
	switch step := s.groupStep; step.Do {
	case group.Wait:
		s.lookAgain(step.Until.Sub(now))
		return nil
	case group.Replace:
		log.FromContext(ctx).Info("replacing a group", "number", s.group.Number+1, "reason", step.Failure)
		s.group = workload.Group{Number: s.group.Number + 1, NotBefore: step.Until, Failures: step.Failures, Failure: step.Failure}
		return r.ensureWorkload(ctx, s)
	case group.Delete:
		if err := awaitSets(ctx, r.Live, s.sets()); err != nil {
			return err
		}
		s.rolling = s.rolling || len(step.Leaving) > 0
		return deletePods(ctx, r.Client, s.ws.Namespace, step.Leaving, "it is of a former group")
	default:
		return nil
	}
}

// ensureIsolation lets the engines of a group start once strangers are found not to reach its pods.
func (r *Reconciler) ensureIsolation(ctx context.Context, s *scope) error {
	if !s.isGroup() {
		return nil
	}
	again, err := r.isolate.Start(ctx, s.currentPods(), s.running().Plan.Nodes)
	if again > 0 {
		s.lookAgain(again)
	}
	return err
}
