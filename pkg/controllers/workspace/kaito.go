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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
)

// retryKAITO is the time to the next look for a Deployment of KAITO's. No watch covers them.
const retryKAITO = 5 * time.Minute

// KAITO finds and releases the machines of KAITO's controller for a Workspace.
type KAITO interface {
	// Of names them, from a cache.
	Of(ctx context.Context, workspace types.NamespacedName) ([]string, error)
	// Release deletes them, and names the remaining ones.
	Release(ctx context.Context, workspace types.NamespacedName) ([]string, error)
}

// ensureNotKAITOs stops the pass of a Workspace that KAITO's controller serves. Nothing is written to its objects and
// nothing is bought for it.
//
// KAITO's StatefulSet stops every pass, because ours would have the same name. KAITO's other objects stop only a
// Workspace that this controller has never planned: one that it serves goes on beside what was left behind.
func (r *Reconciler) ensureNotKAITOs(ctx context.Context, s *scope) error {
	var err error
	if s.kaito, err = r.kaitoObjects(ctx, s); err != nil || len(s.kaito) == 0 {
		return err
	}
	stall := &progress.StalledError{
		Reason: v1beta1.ReasonServedByKAITO,
		Message: fmt.Sprintf("KAITO's controller made %s for this Workspace, and this version takes nothing over: all of it is left as it is. "+
			"To serve the model from here, delete the Workspace, which also deletes KAITO's machines, and create it again; "+
			"to keep it as it is, run KAITO's controller instead of this one", strings.Join(s.kaito, ", ")),
	}
	if s.kaitoSet == nil {
		stall.RetryAfter = retryKAITO
	}
	return stall
}

// kaitoObjects names the objects of KAITO's for a Workspace; empty if there are none.
func (r *Reconciler) kaitoObjects(ctx context.Context, s *scope) ([]string, error) {
	if s.kaitoSet == nil && len(s.revisions.Objects) > 0 {
		return nil, nil
	}
	var out []string
	if s.kaitoSet != nil {
		out = append(out, "StatefulSet "+s.kaitoSet.Name)
	}
	if r.KAITO != nil {
		machines, err := r.KAITO.Of(ctx, client.ObjectKeyFromObject(s.ws))
		if err != nil {
			return nil, err
		}
		out = append(out, machines...)
	}
	if len(out) > 0 || !s.wasKAITOs() {
		return out, nil
	}
	hasDeployment, err := hasDeployment(ctx, r.Live, s.ws)
	if hasDeployment {
		out = append(out, "Deployment "+s.ws.Name)
	}
	return out, err
}

// wasKAITOs reports whether the Workspace bears marks of KAITO's controller: its annotations, or conditions or a
// finalizer from another writer. Without them no request is made.
func (s *scope) wasKAITOs() bool {
	_, hasHash := s.ws.Annotations[v1beta1.AnnotationHash]
	_, hasRevision := s.ws.Annotations[v1beta1.AnnotationRevision]
	hadFinalizer := slices.Contains(s.ws.Finalizers, v1beta1.Finalizer) && !s.isNew
	planned := meta.FindStatusCondition(s.ws.Status.Conditions, v1beta1.ConditionPlanned)
	if planned == nil {
		return hasHash || hasRevision || hadFinalizer || len(s.ws.Status.Conditions) > 0
	}
	return hasHash || hasRevision || planned.Reason == v1beta1.ReasonServedByKAITO
}

// hasDeployment reports whether a Deployment of an early KAITO version serves the Workspace. The cache has no
// Deployments.
func hasDeployment(ctx context.Context, live client.Reader, ws *v1beta1.Workspace) (bool, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := client.IgnoreNotFound(live.Get(ctx, client.ObjectKeyFromObject(ws), found))
	if err != nil {
		return false, fmt.Errorf("reading Deployment %s: %w", ws.Name, err)
	}
	return metav1.IsControlledBy(found, ws), nil
}

// isOurs reports whether this controller made a StatefulSet of a Workspace. The cache drops labels and annotations of
// objects without our label, so a set that lost it is read anew.
func (r *Reconciler) isOurs(ctx context.Context, s *scope, set *appsv1.StatefulSet) (bool, error) {
	if set.Labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy {
		return true, nil
	}
	if len(s.revisions.Objects) == 0 {
		return false, nil
	}
	newest := &appsv1.StatefulSet{}
	if err := client.IgnoreNotFound(r.Live.Get(ctx, client.ObjectKeyFromObject(set), newest)); err != nil {
		return false, fmt.Errorf("reading StatefulSet %s: %w", set.Name, err)
	}
	if newest.UID != set.UID || newest.Annotations[v1beta1.AnnotationAppliedHash] == "" {
		return false, nil
	}
	*set = *newest
	return true, nil
}

// releaseKAITOs deletes what KAITO's controller holds for a Workspace, whose finalizer has the same name here and
// there, and names what is left. It asks the API server only where the cache, or the Workspace, shows traces.
func (r *Reconciler) releaseKAITOs(ctx context.Context, s *scope) ([]string, error) {
	if r.KAITO == nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(s.ws)
	known, err := r.KAITO.Of(ctx, key)
	if err != nil || len(known) == 0 && s.kaitoSet == nil && !s.wasKAITOs() {
		return nil, err
	}
	return r.KAITO.Release(ctx, key)
}
