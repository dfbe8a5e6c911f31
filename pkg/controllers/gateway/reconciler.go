// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gateway connects InferenceSets to gateways of the Gateway API with its inference extension: each set gets an
// InferencePool, the Service of its endpoint picker, and an HTTPRoute. The endpoint picker is the router.
//
// It decides the contents of these objects, and reports refusals of the gateway. It must not know how the router chooses a
// replica, or what else a set consists of.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/router/discovery"
	"github.com/modelberth/modelberth/pkg/watched"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Delays after failures that no watch covers.
const (
	// leaving is the delay while an earlier object of a desired name is being deleted.
	leaving = 2 * time.Second
	// taken is the delay while another object has a desired name, or the API server refuses an object.
	taken = time.Minute
	// repeat is the time after which a lasting problem is reported again. The API server deletes events after an hour.
	repeat = 30 * time.Minute
)

// Applier writes this controller's objects, and never changes an object that somebody else owns.
type Applier interface {
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

// Config holds the dependencies of a Reconciler.
type Config struct {
	// Client reads from caches.
	Client client.Reader
	// Namespaces are the namespaces of the sets.
	Namespaces watched.Namespaces
	Applier    Applier
	Events     record.EventRecorder
	Clock      clock.PassiveClock
	// Routers is the Service of the routers' port for gateways.
	Routers types.NamespacedName
	// Gateway is the Gateway for which each set gets an HTTPRoute; empty for none.
	Gateway types.NamespacedName
	// MatchModelNames: the routes also match the names of models, which several sets may have.
	MatchModelNames bool
}

// Reconciler reconciles InferenceSets.
type Reconciler struct {
	Config
	mu sync.Mutex
	// reported has the reports about each set since it last had no problem.
	reported map[types.NamespacedName]reports
}

// cause identifies a problem: its texts may differ in each pass, for example by the numbers in the refusal of a quota.
type cause struct {
	// reason is the reason of the event. object is the object at fault, and detail the reason of its refusal.
	reason, object, detail string
}

// problem is a fault of a set's objects. It has no text if there is none.
type problem struct {
	cause
	text string
}

// reports are the times of the last reports about a set, by cause.
type reports struct {
	of types.UID
	at map[cause]time.Time
}

// writeError is the failure to write an object.
type writeError struct {
	object string
	err    error
}

func (e *writeError) Error() string { return e.err.Error() }

// Unwrap returns the answer of the API server.
func (e *writeError) Unwrap() error { return e.err }

// New returns a Reconciler.
func New(config Config) *Reconciler {
	return &Reconciler{Config: config, reported: map[types.NamespacedName]reports{}}
}

// Reconcile writes the objects of a set. The cluster deletes them with the set, their owner.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil
	}
	set := &v1beta1.InferenceSet{}
	if err := r.Client.Get(ctx, request.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !set.DeletionTimestamp.IsZero() {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if name := set.Name + v1beta1.SuffixInferencePoolPicker; len(name) > validation.DNS1123LabelMaxLength {
		again := r.report(ctx, set, problem{
			cause{reason: v1beta1.ReasonGatewayObjectsFailed, detail: "name"},
			fmt.Sprintf("the Service %s would have more than %d characters: give the InferenceSet a name of at most %d", name,
				validation.DNS1123LabelMaxLength, validation.DNS1123LabelMaxLength-len(v1beta1.SuffixInferencePoolPicker)),
		})
		return ctrl.Result{RequeueAfter: again}, nil
	}
	facts, err := r.observe(ctx, set)
	if err == nil {
		err = r.ensure(ctx, facts)
	}
	var again time.Duration
	if err == nil {
		again, err = r.judge(ctx, facts)
	}
	if err != nil {
		return r.result(ctx, set, err)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// result reports a failure that a person must resolve, and returns when to try again.
func (r *Reconciler) result(ctx context.Context, set *v1beta1.InferenceSet, err error) (ctrl.Result, error) {
	if _, isLeaving := errors.AsType[*apply.TerminatingError](err); isLeaving || apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: leaving}, nil
	}
	_, isTaken := errors.AsType[*apply.TakenError](err)
	if isTaken || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		what := cause{reason: v1beta1.ReasonGatewayObjectsFailed, detail: string(apierrors.ReasonForError(err))}
		if failed, ok := errors.AsType[*writeError](err); ok {
			what.object = failed.object
		}
		r.report(ctx, set, problem{what, short(err.Error())})
		return ctrl.Result{RequeueAfter: taken}, nil
	}
	return ctrl.Result{}, fmt.Errorf("reconciling the pool of inferenceset %s/%s: %w", set.Namespace, set.Name, err)
}

// observe reads everything that the objects depend on.
func (r *Reconciler) observe(ctx context.Context, set *v1beta1.InferenceSet) (*Facts, error) {
	children := &v1beta1.WorkspaceList{}
	err := r.Client.List(ctx, children, client.InNamespace(set.Namespace), client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name})
	if err != nil {
		return nil, fmt.Errorf("listing Workspaces: %w", err)
	}
	ours := slices.DeleteFunc(children.Items, func(ws v1beta1.Workspace) bool { return !metav1.IsControlledBy(&ws, set) })
	slices.SortFunc(ours, func(a, b v1beta1.Workspace) int { return cmp.Compare(a.Name, b.Name) })
	routers := &discoveryv1.EndpointSliceList{}
	err = r.Client.List(ctx, routers, client.InNamespace(r.Routers.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: r.Routers.Name, LabelEndpointPicker: "true"})
	if err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of the routers: %w", err)
	}
	copies := &discoveryv1.EndpointSliceList{}
	err = r.Client.List(ctx, copies, client.InNamespace(set.Namespace),
		client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name, LabelEndpointPicker: "true"})
	if err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of the set: %w", err)
	}
	inference := set.Spec.Template.Inference
	if len(ours) > 0 && ours[0].Inference != nil { // after a rollback, the spec has another one
		inference = ours[0].Inference
	}
	owners := discovery.Owners(ours, []v1beta1.InferenceSet{*set}, nil)
	return &Facts{
		Set: set, TargetPort: workload.SetService(set, inference).Spec.Ports[0].TargetPort.IntVal,
		Names: owners[0].Names, Routers: routers.Items, Copies: copies.Items, Gateway: r.Gateway, MatchModelNames: r.MatchModelNames,
	}, nil
}

// ensure writes the objects: the Service before the pool that names it, and the pool before its route.
func (r *Reconciler) ensure(ctx context.Context, facts *Facts) error {
	desired := []client.Object{facts.service()}
	for _, slice := range facts.slices() {
		desired = append(desired, slice)
	}
	desired = append(desired, facts.inferencePool())
	if facts.Gateway.Name != "" {
		desired = append(desired, facts.httpRoute())
	}
	for _, object := range desired {
		if _, err := r.Applier.Apply(ctx, facts.Set, object); err != nil {
			return &writeError{fmt.Sprintf("%T %s", object, object.GetName()), err}
		}
	}
	return nil
}

// judge reports what the gateway refuses. It returns the time to the next report; 0 if nothing is refused.
func (r *Reconciler) judge(ctx context.Context, facts *Facts) (time.Duration, error) {
	key := types.NamespacedName{Namespace: facts.Set.Namespace, Name: facts.pool()}
	pool := &inferencev1.InferencePool{}
	if err := r.Client.Get(ctx, key, pool); err != nil {
		return 0, client.IgnoreNotFound(err) // the cache lags
	}
	var route *gatewayv1.HTTPRoute
	if facts.Gateway.Name != "" {
		route = &gatewayv1.HTTPRoute{}
		if err := r.Client.Get(ctx, key, route); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
	}
	return r.report(ctx, facts.Set, refusalOf(route, pool)), nil
}

// report publishes and logs a problem when it begins, and again while it lasts: otherwise its event would expire, and the
// set would look healthy. Another text of the same cause is no news. report returns the time to the next report; 0 if there
// is no problem.
func (r *Reconciler) report(ctx context.Context, set *v1beta1.InferenceSet, found problem) time.Duration {
	key, now := client.ObjectKeyFromObject(set), r.Clock.Now()
	if found.text == "" {
		r.forget(key)
		return 0
	}
	r.mu.Lock()
	last := r.reported[key]
	if last.of != set.UID {
		last = reports{of: set.UID, at: map[cause]time.Time{}}
		r.reported[key] = last
	}
	at, isKnown := last.at[found.cause]
	isDue := !isKnown || now.Sub(at) >= repeat
	if isDue {
		at = now
		// A cause that has not come back since then is over.
		maps.DeleteFunc(last.at, func(_ cause, at time.Time) bool { return now.Sub(at) >= repeat })
		last.at[found.cause] = now
	}
	r.mu.Unlock()
	if isDue {
		r.Events.Event(set, corev1.EventTypeWarning, found.reason, found.text)
	}
	if !isKnown {
		log.FromContext(ctx).Info("the gateway objects of the set have a problem", "reason", found.reason, "problem", found.text)
	}
	return at.Add(repeat).Sub(now)
}

func (r *Reconciler) forget(set types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, set)
}
