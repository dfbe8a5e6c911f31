// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inferenceset reconciles InferenceSets: it observes their Workspaces, creates, updates and deletes some of
// them, applies the common Service, and reports the status.
//
// It decides the order of these steps and a set's conditions. Package replicas decides about the Workspaces. This
// package must not depend on how a Workspace is planned, bought or served: it reads only a Workspace's spec and status,
// and the zones of its nodes.
package inferenceset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/replicas"
	"github.com/modelberth/modelberth/pkg/watched"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Delays after failures that no watch covers.
const (
	// leaving is the delay while an earlier object of a desired name is being deleted.
	leaving = 2 * time.Second
	// refused is the delay while another object has a desired name, or a policy refuses a Workspace.
	refused = time.Minute
)

// Applier writes this controller's objects, and never changes an object that somebody else owns.
type Applier interface {
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

// Loads has the requests of replicas; false if they are unknown.
type Loads interface {
	Of(set types.NamespacedName, replica types.UID, now time.Time) (float64, bool)
}

// Config holds the dependencies of a Reconciler.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client client.Client
	Live   client.Reader
	// Namespaces are the namespaces of the sets.
	Namespaces watched.Namespaces
	Applier    Applier
	Events     record.EventRecorder
	Clock      clock.PassiveClock
	// Loads is nil if no loads are known.
	Loads Loads
	// Routers is nil if there is no router. CompareEvery is the time between two looks at them; 0 means 15 seconds.
	Routers      Routers
	CompareEvery time.Duration
	// Settling is how long failures of a new template may be about something else; 0 means two minutes.
	Settling time.Duration
	// Schema is nil if the controller does not check for pruned fields.
	Schema pruned.Schema
}

// Reconciler reconciles InferenceSets.
type Reconciler struct {
	Config
	// reports remembers the published events about pruned fields.
	reports pruned.Reports
}

// New returns a Reconciler.
func New(config Config) *Reconciler { return &Reconciler{Config: config} }

// Reconcile moves one set a step closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil
	}
	set := &v1beta1.InferenceSet{}
	if err := r.Client.Get(ctx, request.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	isHeld, err := r.holdsPruned(ctx, set)
	var again time.Time
	if err == nil && !isHeld {
		again, err = r.reconcile(ctx, set)
	}
	if apierrors.IsConflict(err) { // the cache lags, and the event of the change is on its way
		return ctrl.Result{RequeueAfter: leaving / 10}, nil
	}
	if wait, ok := errors.AsType[*waitError](err); ok {
		return ctrl.Result{RequeueAfter: wait.after}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reconciling inferenceset %s: %w", request.NamespacedName, err)
	}
	if again.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

// waitError is a failure to report in the status, with the delay before another pass.
type waitError struct {
	problem problem
	after   time.Duration
	// blamesTemplate: the API server rejects a Workspace for what it contains.
	blamesTemplate bool
}

func (e *waitError) Error() string { return e.problem.Reason + ": " + e.problem.Message }

// reconcile returns the time of the next look; zero if an event leads to it.
func (r *Reconciler) reconcile(ctx context.Context, set *v1beta1.InferenceSet) (time.Time, error) {
	if !set.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(set, v1beta1.InferenceSetFinalizer) {
		return time.Time{}, nil
	}
	if text := unreadable(set); text != "" && set.DeletionTimestamp.IsZero() {
		return time.Time{}, r.report(ctx, newPass(set), &waitError{problem: problem{v1beta1.ReasonSpecInvalid, text}})
	}
	children, err := r.cached(ctx, set)
	if err != nil {
		return time.Time{}, err
	}
	p, err := r.assess(ctx, set, children)
	if err == nil && !p.isIdle() {
		// The cache may lag: a write is decided on a live read.
		if set, children, err = r.live(ctx, set, children); err != nil || set == nil {
			return time.Time{}, err
		}
		p, err = r.assess(ctx, set, children)
	}
	if err != nil {
		return time.Time{}, err
	}
	if !set.DeletionTimestamp.IsZero() && len(p.views) == 0 {
		return time.Time{}, r.patchFinalizers(ctx, set, controllerutil.RemoveFinalizer)
	}
	failure := p.decideRefusal(r.execute(ctx, p), metav1.NewTime(r.Clock.Now()), r.settling())
	if err := r.ensureRevision(ctx, p); err != nil {
		return time.Time{}, err
	}
	return p.next, r.report(ctx, p, failure)
}

// execute carries the decision out. A failed write does not prevent the others.
func (r *Reconciler) execute(ctx context.Context, p *pass) error {
	var failures []error
	if p.set.DeletionTimestamp.IsZero() && p.missing == nil {
		if err := r.patchFinalizers(ctx, p.set, controllerutil.AddFinalizer); err != nil {
			return err
		}
		failures = append(failures, r.applyService(ctx, p))
	}
	for _, name := range p.decision.Delete {
		failures = append(failures, r.deleteChild(ctx, p.set, find(p.children, name)))
	}
	zones := p.zoning()
	for _, name := range p.decision.Update {
		desired := p.desired(name, zones.chooseAgain(name))
		err := r.updateChild(ctx, p, desired, "ReplicaUpdated", "updated Workspace %s to the current template")
		p.hasUpdated = p.hasUpdated || err == nil
		failures = append(failures, err)
	}
	for _, v := range p.toMove() {
		desired := p.desired(v.Name, *v.rechosen)
		desired.ResourceVersion = find(p.children, v.Name).ResourceVersion // it may have begun an attempt meanwhile
		err := r.updateChild(ctx, p, desired, "ReplicaMoved", "chose another zone for Workspace %s, which found no machine")
		failures = append(failures, err)
	}
	failures = append(failures, r.createChildren(ctx, p)...)
	for _, err := range failures {
		if err != nil {
			return asWait(err)
		}
	}
	if unread := cmp.Or(p.missing, p.unrestorable); unread != nil {
		return unread
	}
	return nil
}

// createChildren creates replicas with the current template, and then those that get the previous one.
func (r *Reconciler) createChildren(ctx context.Context, p *pass) []error {
	var failures []error
	steady, updated := p.target.lacking(p.views, p.decision.Restore > 0), p.decision.Create-p.decision.Restore
	all, zones := replicasOf(p.views), p.zoning()
	for i, name := range replicas.Names(p.set.Name, string(p.set.UID), all, p.decision.Create) {
		from, isFormer := p.target, i >= updated
		if isFormer {
			from = p.previous
		}
		chosen := zones.chooseNew(from.any, all)
		all = append(all, replicas.Replica{Name: name, IsCurrent: !isFormer, CanUpdate: true, Zone: chosen.present()})
		_, err := r.applyChild(ctx, p.set, from.of(i < steady).in(chosen).child(p.set, name), "ReplicaCreated", "created Workspace %s")
		if isFormer { // a rejection says nothing about the current template
			err = rejection(err, "Workspaces of the previous template")
		}
		failures = append(failures, err)
	}
	return failures
}

func (r *Reconciler) applyService(ctx context.Context, p *pass) error {
	_, err := r.Applier.Apply(ctx, p.set, workload.SetService(p.set, p.target.any.Inference))
	return rejection(err, "the Service of this set")
}

func (r *Reconciler) applyChild(
	ctx context.Context, set *v1beta1.InferenceSet, desired *v1beta1.Workspace, reason, message string,
) (bool, error) {
	isWritten, err := r.Applier.Apply(ctx, set, desired)
	if err == nil && isWritten {
		r.Events.Eventf(set, corev1.EventTypeNormal, reason, message, desired.Name)
	}
	return isWritten, err
}

// updateChild brings a Workspace to the current template. Apply keeps fields of other writers, such as a user or
// KAITO's controller: if nothing else differs, they are removed.
func (r *Reconciler) updateChild(ctx context.Context, p *pass, desired *v1beta1.Workspace, reason, message string) error {
	ws := find(p.children, desired.Name)
	after := ws.DeepCopy()
	isWritten, err := r.applyChild(ctx, p.set, desired, reason, message)
	if err != nil || isWritten {
		return err
	}
	desired.Resource.Count, desired.Resource.PreferredNodes = ws.Resource.Count, ws.Resource.PreferredNodes
	after.Inference, after.Resource = desired.Inference, desired.Resource
	return client.IgnoreNotFound(r.Client.Patch(ctx, after, client.MergeFromWithOptions(ws, client.MergeFromWithOptimisticLock{})))
}

// deleteChild deletes this Workspace, but not a later one of the same name.
func (r *Reconciler) deleteChild(ctx context.Context, set *v1beta1.InferenceSet, ws *v1beta1.Workspace) error {
	err := r.Client.Delete(ctx, ws, client.Preconditions{UID: &ws.UID})
	if err == nil {
		r.Events.Eventf(set, corev1.EventTypeNormal, "ReplicaDeleted", "deleted Workspace %s", ws.Name)
	}
	return rejection(client.IgnoreNotFound(err), "the deletion of Workspace "+ws.Name)
}

// report writes the status if something changed, and returns how the pass ended.
func (r *Reconciler) report(ctx context.Context, p *pass, passErr error) error {
	f := facts{pass: p}
	if wait, ok := errors.AsType[*waitError](passErr); ok {
		f.failure = wait.problem
	} else if passErr != nil {
		return passErr
	}
	before, fails := p.set.DeepCopy(), p.fails()
	p.set.Status = f.status(metav1.NewTime(r.Clock.Now()))
	if equality.Semantic.DeepEqual(before.Status, p.set.Status) {
		return passErr
	}
	err := r.Client.Status().Patch(ctx, p.set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if fails {
		r.Events.Event(p.set, corev1.EventTypeWarning, v1beta1.ReasonRolledBack, "returning to the previous template: "+p.rollout.Message)
	}
	return passErr
}

// patchFinalizers adds or removes the finalizer. The patch replaces the whole list, so it must start from the list that
// was read.
func (r *Reconciler) patchFinalizers(
	ctx context.Context, set *v1beta1.InferenceSet, change func(client.Object, string) bool,
) error {
	before := set.DeepCopy()
	if !change(set, v1beta1.InferenceSetFinalizer) {
		return nil
	}
	err := r.Client.Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
