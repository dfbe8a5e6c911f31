// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaler sets the number of replicas of InferenceSets by demand: it reads the load of their engines, and
// writes spec.replicas through the subresource scale.
//
// It decides when to read and when to yield to another autoscaler, and sets the condition Autoscaling. Package
// autoscale decides about the number. The package must not depend on how replicas start: the controller of
// InferenceSets keeps the number of replicas in the spec.
package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/engineprobe"
	"github.com/modelberth/modelberth/pkg/watched"
	"github.com/modelberth/modelberth/pkg/wording"
)

// FieldOwner is the field manager of spec.replicas.
const FieldOwner = "modelberth-autoscaler"

const (
	// UsualInterval is the default time between two looks at the engines of a set.
	UsualInterval = 15 * time.Second
	// mostGap is the longest time between two looks. After a longer gap, the memory does not cover its windows and
	// restarts.
	mostGap = 2 * time.Minute
	// conflicted is the delay after a write on an outdated set. The event of the change may arrive sooner.
	conflicted = 200 * time.Millisecond
	// mostMessage is the longest message of an event. The API server admits 1024 characters.
	mostMessage = 1000
)

// Engines reads the load of running engines.
type Engines interface {
	Signals(ctx context.Context, engine string, at engineprobe.Endpoint) (engineprobe.Signals, error)
}

// Speeds records the speed of the engine in a Workspace's pod.
type Speeds interface {
	Note(ws *v1beta1.Workspace, pod types.UID, at time.Time, read *engineprobe.Speed)
}

// Config holds the dependencies of a Reconciler.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client client.Client
	Live   client.Reader
	// Others reads other autoscalers from caches. HasKEDA reports whether the cluster has the kind ScaledObject.
	Others  client.Reader
	HasKEDA bool
	// Namespaces are the namespaces of the sets.
	Namespaces watched.Namespaces
	Engines    Engines
	// Speeds is nil if no speeds are recorded.
	Speeds Speeds
	// Loads may be nil: then nobody reads them.
	Loads   *Loads
	Events  record.EventRecorder
	Clock   clock.PassiveClock
	Metrics *Metrics
	// Interval is the time between two looks; 0 means UsualInterval.
	Interval time.Duration
	// Schema is nil if the controller does not check for pruned fields.
	Schema pruned.Schema
}

// Reconciler scales InferenceSets.
type Reconciler struct {
	Config
	memories memories
}

// New returns a Reconciler.
func New(config Config) *Reconciler {
	if config.Interval <= 0 {
		config.Interval = UsualInterval
	}
	if config.Loads == nil {
		config.Loads = NewLoads()
	}
	return &Reconciler{Config: config, memories: memories{bySet: map[types.NamespacedName]*memory{}}}
}

// Reconcile reads one set, and changes its number of replicas if the demand requires it.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil
	}
	set := &v1beta1.InferenceSet{}
	err := r.Client.Get(ctx, request.NamespacedName, set)
	if err != nil || !set.DeletionTimestamp.IsZero() {
		if client.IgnoreNotFound(err) == nil {
			r.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	next, err := r.reconcile(ctx, set)
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: conflicted}, nil
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("scaling inferenceset %s: %w", request.NamespacedName, err)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

func (r *Reconciler) forget(set types.NamespacedName) {
	r.memories.forget(set)
	r.Metrics.forget(set)
	r.Loads.forget(set)
}

// reconcile returns the time until the next look; 0 if only an event triggers it.
func (r *Reconciler) reconcile(ctx context.Context, set *v1beta1.InferenceSet) (time.Duration, error) {
	key := client.ObjectKeyFromObject(set)
	if pruned.Check(r.Schema, crd.Names()...) != "" { // the policy may be pruned, too
		r.forget(key)
		return 0, nil
	}
	if !autoscale.IsWanted(set) {
		r.forget(key)
		return 0, r.report(ctx, set, nil, verdict{})
	}
	policy, err := autoscale.PolicyOf(set)
	if err != nil {
		r.forget(key)
		return 0, r.report(ctx, set, nil, invalid(err))
	}
	rival, err := r.rivalOf(ctx, set)
	if err != nil {
		return 0, err
	}
	if rival != "" {
		r.forget(key)
		return 0, r.report(ctx, set, nil, standsBack(rival))
	}
	m := r.memories.of(set)
	now := r.Clock.Now()
	if rest := r.Interval - now.Sub(m.at); rest > 0 && rest <= r.Interval && !m.differs(set, policy) {
		return rest, r.report(ctx, set, m, m.verdict)
	}
	isScaled, err := r.step(ctx, set, policy, m)
	if err != nil || isScaled { // the event of the change triggers the report
		return r.Interval, err
	}
	return r.Interval, r.report(ctx, set, m, m.verdict)
}

// step reads the engines, decides, and writes a changed number of replicas.
func (r *Reconciler) step(
	ctx context.Context, set *v1beta1.InferenceSet, policy autoscale.Policy, m *memory,
) (isScaled bool, err error) {
	now := r.Clock.Now()
	m.refresh(policy, now)
	if m.isStale(now) {
		if m.seen, err = r.observe(ctx, set, m, now); err != nil {
			return false, err
		}
	}
	seen := m.seen
	seen.signals.Now, seen.signals.Desired, seen.signals.Woken = now, set.DesiredReplicas(), set.WokenAt()
	decision, state := autoscale.Decide(policy, seen.signals, m.state)
	from := set.DesiredReplicas()
	if decision.Replicas != from {
		err := r.scale(ctx, set, decision.Replicas)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
			state.Changes = m.state.Changes
			m.saw(set, from, state, now)
			m.verdict = refused(err)
			r.observed(set, from, &decision, seen)
			return false, nil
		case err != nil:
			return false, err
		}
		m.lastChange = changeWords(now, from, &decision)
		r.publish(set, from, &decision)
	}
	m.saw(set, decision.Replicas, state, now)
	m.verdict = verdictOf(&policy, &decision, seen)
	r.observed(set, decision.Replicas, &decision, seen)
	return decision.Replicas != from, nil
}

// observed updates the set's metrics.
func (r *Reconciler) observed(set *v1beta1.InferenceSet, replicas int, decision *autoscale.Decision, seen *observed) {
	demand := decision.Need
	if decision.Reason == autoscale.AtZero {
		demand = 0
	}
	r.Metrics.observe(client.ObjectKeyFromObject(set), figures{
		desired: replicas, ready: len(seen.signals.Engines), silent: len(seen.silent), demand: demand,
	})
}

// scale writes the number of replicas, unless the set has changed since the pass read it.
func (r *Reconciler) scale(ctx context.Context, set *v1beta1.InferenceSet, replicas int) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`, set.ResourceVersion, replicas)
	err := r.Client.SubResource("scale").Patch(ctx, set.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner))
	if err != nil {
		r.Metrics.failed()
		return fmt.Errorf("setting %d replicas: %w", replicas, err)
	}
	return nil
}

// publish records a written change as an event and in the metrics.
func (r *Reconciler) publish(set *v1beta1.InferenceSet, from int, decision *autoscale.Decision) {
	reason := "ScaledUp"
	if decision.Replicas < from {
		reason = "ScaledDown"
	}
	r.Metrics.changed(decision.Reason)
	r.Events.Event(set, corev1.EventTypeNormal, reason,
		wording.Clip(fmt.Sprintf("from %d to %s: %s: %s", from, count(decision.Replicas), decision.Reason, decision.Message), mostMessage))
}
