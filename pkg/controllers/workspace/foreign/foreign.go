// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreign recognizes the Workspaces that KAITO's controller serves. It checks whether a user has agreed to a
// takeover, and releases the objects that KAITO's controller made.
//
// It changes none of these objects before the Workspace is deleted, or edited after a takeover. It must not depend on
// plans or on this controller's machines.
package foreign

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
	"github.com/modelberth/modelberth/pkg/takeover"
)

// retry is the interval for looking for KAITO's Deployments, because no watch covers them.
const retry = 5 * time.Minute

// Machines finds and releases the machines of KAITO's controller for a Workspace.
type Machines interface {
	// Of returns the names of the machines, from a cache.
	Of(ctx context.Context, workspace types.NamespacedName) ([]string, error)
	// Release deletes the machines, and returns the names of the remaining ones.
	Release(ctx context.Context, workspace types.NamespacedName) ([]string, error)
}

// Guard recognizes the Workspaces of KAITO's controller.
type Guard struct {
	// Cached reads pods from the cache. Live reads past the caches.
	Cached client.Reader
	Live   client.Reader
	// Machines is nil if the cluster lacks the kinds of KAITO's machines.
	Machines Machines
}

// Seen holds the facts of a pass about a Workspace.
type Seen struct {
	Workspace *v1beta1.Workspace
	// Set is the StatefulSet of KAITO's controller, or nil.
	Set *appsv1.StatefulSet
	// IsPlanned reports whether this controller has stored plans for it, and IsNew whether this pass added the
	// finalizer.
	IsPlanned, IsNew bool
}

// Look returns KAITO's objects for a Workspace. While they must stay as they are, this controller writes nothing to
// them and buys nothing for the Workspace: then the error is a *progress.StalledError, or a *progress.WaitingError
// after a takeover.
//
// KAITO's StatefulSet concerns every pass, because ours would have the same name. KAITO's other objects concern only a
// Workspace without a plan of this controller: a planned Workspace goes on serving beside the objects that KAITO left.
func (g *Guard) Look(ctx context.Context, seen Seen) (takeover.Holding, error) {
	held := takeover.Holding{Set: seen.Set, State: takeover.StateOf(seen.Workspace)}
	objects, deployment, err := g.objects(ctx, seen, held.State)
	held.Objects = objects
	if err != nil || len(objects) == 0 {
		return held, err
	}
	switch held.State {
	case takeover.Frozen:
		held.Pods, err = g.pods(ctx, seen)
		if err == nil {
			err = &progress.WaitingError{Message: "the Workspace runs as KAITO's controller left it", After: g.lookAgain(seen)}
		}
		return held, err
	case takeover.Edited:
		if deployment == "" {
			held.Members, err = g.members(ctx, seen)
			return held, err
		}
		held.State = takeover.Unadopted // its pods have other names: they would serve together with ours
		return held, g.stall(seen, fmt.Sprintf("the Workspace was edited, but %s of an early version of KAITO serves it, and the controller "+
			"never replaces a Deployment: to continue, run kubectl delete deployment %s -n %s; or revert the edit",
			deployment, seen.Workspace.Name, seen.Workspace.Namespace))
	default:
		return held, g.stall(seen, fmt.Sprintf("KAITO's controller made %s for this Workspace, so Modelberth changes nothing. "+
			"To take the Workspace over without a restart, run: kubectl berth adopt "+
			"%s -n %s; to leave it with KAITO, run KAITO's controller instead of Modelberth's",
			strings.Join(objects, ", "), seen.Workspace.Name, seen.Workspace.Namespace))
	}
}

func (g *Guard) stall(seen Seen, message string) error {
	return &progress.StalledError{Reason: v1beta1.ReasonServedByKAITO, Message: message, RetryAfter: g.lookAgain(seen)}
}

// lookAgain returns the time to the next look for objects without a watch; 0 if a StatefulSet shows the changes.
func (g *Guard) lookAgain(seen Seen) time.Duration {
	if seen.Set != nil {
		return 0
	}
	return retry
}

// objects returns the names of KAITO's objects, and the name of the Deployment among them.
func (g *Guard) objects(ctx context.Context, seen Seen, state takeover.State) (all []string, deployment string, err error) {
	if seen.Set == nil && seen.IsPlanned {
		return nil, "", nil
	}
	if seen.Set != nil {
		all = append(all, "StatefulSet "+seen.Set.Name)
	}
	if g.Machines != nil {
		machines, err := g.Machines.Of(ctx, client.ObjectKeyFromObject(seen.Workspace))
		if err != nil {
			return nil, "", err
		}
		all = append(all, machines...)
	}
	isKnown := len(all) > 0 && (state == takeover.Unadopted || seen.Set != nil)
	if isKnown || !seen.wasServed() {
		return all, "", nil
	}
	hasDeployment, err := hasDeployment(ctx, g.Live, seen.Workspace)
	if hasDeployment {
		deployment = "Deployment " + seen.Workspace.Name
		all = append(all, deployment)
	}
	return all, deployment, err
}

// wasServed reports whether the Workspace bears marks of KAITO's controller: its annotations, or conditions or a
// finalizer from another writer. Without such marks, the guard makes no request.
func (s *Seen) wasServed() bool {
	_, hasHash := s.Workspace.Annotations[v1beta1.AnnotationHash]
	_, hasRevision := s.Workspace.Annotations[v1beta1.AnnotationRevision]
	hadFinalizer := slices.Contains(s.Workspace.Finalizers, v1beta1.Finalizer) && !s.IsNew
	planned := meta.FindStatusCondition(s.Workspace.Status.Conditions, v1beta1.ConditionPlanned)
	if planned == nil {
		return hasHash || hasRevision || hadFinalizer || len(s.Workspace.Status.Conditions) > 0
	}
	return hasHash || hasRevision || planned.Reason == v1beta1.ReasonServedByKAITO || planned.Reason == v1beta1.ReasonFrozen
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

// IsOurs reports whether this controller made a StatefulSet of a Workspace. The cache drops labels and annotations of
// objects without our label, so IsOurs reads a set again that has lost its label.
func (g *Guard) IsOurs(ctx context.Context, set *appsv1.StatefulSet, isPlanned bool) (bool, error) {
	if set.Labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy {
		return true, nil
	}
	if !isPlanned {
		return false, nil
	}
	newest := &appsv1.StatefulSet{}
	if err := client.IgnoreNotFound(g.Live.Get(ctx, client.ObjectKeyFromObject(set), newest)); err != nil {
		return false, fmt.Errorf("reading StatefulSet %s: %w", set.Name, err)
	}
	if newest.UID != set.UID || newest.Annotations[v1beta1.AnnotationAppliedHash] == "" {
		return false, nil
	}
	*set = *newest
	return true, nil
}

// Release deletes the machines of KAITO's controller for a Workspace, and returns the names of the remaining ones. Both
// controllers use the same finalizer, so Modelberth's controller must do KAITO's cleanup. Release makes no request
// unless the cache or the Workspace shows traces of KAITO.
func (g *Guard) Release(ctx context.Context, seen Seen) ([]string, error) {
	if g.Machines == nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(seen.Workspace)
	known, err := g.Machines.Of(ctx, key)
	if err != nil || len(known) == 0 && seen.Set == nil && !seen.wasServed() {
		return nil, err
	}
	return g.Machines.Release(ctx, key)
}
