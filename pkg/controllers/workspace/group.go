// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// sets are the StatefulSets that are there.
func (o *observation) sets() []*appsv1.StatefulSet {
	var sets []*appsv1.StatefulSet
	for _, set := range []*appsv1.StatefulSet{o.statefulSet, o.workers} {
		if set != nil {
			sets = append(sets, set)
		}
	}
	return sets
}

// isGroup says whether several machines serve the model together.
func (a *acceptance) isGroup() bool { return a.running().IsGroup() }

// groupOfRevision is what counts of the remembered group: what failed under another revision does not.
func (s *scope) groupOfRevision() workload.Group {
	if s.statefulSet != nil && s.statefulSet.Annotations[v1beta1.AnnotationRevision] != s.running().Name {
		return workload.Group{Number: s.group.Number}
	}
	return s.group
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
	// The number of the group is carried over from what was read: from any other version it would go back.
	for _, set := range s.sets() {
		for _, object := range desired {
			if object.GetName() == set.Name {
				object.SetResourceVersion(set.ResourceVersion)
			}
		}
	}
	return desired
}

// ensureGroup replaces the members of a group together. The number of the next group is written before any
// pod goes: whoever takes over finds the pods of the former one by their template, and deletes them.
func (r *Reconciler) ensureGroup(ctx context.Context, s *scope) error {
	if !s.isGroup() || s.rolling {
		return nil // sets that were just written say nothing yet about which pods are former ones
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

// awaitSets returns an error while the cache shows other templates than the API server has: the pods of the newest ones
// would be taken for former ones, and so would each of their successors.
func awaitSets(ctx context.Context, live client.Reader, sets []*appsv1.StatefulSet) error {
	for _, shown := range sets {
		newest := &appsv1.StatefulSet{}
		if err := client.IgnoreNotFound(live.Get(ctx, client.ObjectKeyFromObject(shown), newest)); err != nil {
			return fmt.Errorf("reading StatefulSet %s: %w", shown.Name, err)
		}
		// Pods of a new template may be there before the status tells of it.
		if newest.UID != shown.UID || newest.Generation != shown.Generation ||
			newest.Status.UpdateRevision != shown.Status.UpdateRevision {
			return progress.Behind("StatefulSets")
		}
	}
	return nil
}

// deletePods deletes pods by their UIDs: the cache may lag behind their successors.
func deletePods(ctx context.Context, from client.Writer, namespace string, pods []group.Leaving, why string) error {
	for _, leaving := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaving.Name}}
		err := from.Delete(ctx, pod, &client.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &leaving.UID}, GracePeriodSeconds: leaving.GraceSeconds,
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s: %w", leaving.Name, err)
		}
		log.FromContext(ctx).Info("deleted a pod", "pod", leaving.Name, "reason", why)
	}
	return nil
}

// replacement says that all members of a group are replaced, and why; empty where they are not.
func (s *scope) replacement() string {
	if !s.isGroup() {
		return ""
	}
	return s.groupStep.Describe(s.running().Plan.Nodes)
}
