// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "cost"

const (
	// settle is how long events are collected before a look.
	settle = time.Second
	// lookAgain is the longest time between two looks while there is a machine or a budget.
	lookAgain = time.Minute
	// lastWrite bounds the time of the leader's last writes.
	lastWrite = 5 * time.Second
)

// Keys of the two kinds of passes. They run in parallel, because an engine without an answer must not delay a look.
const (
	machines = "machines"
	tokens   = "tokens"
)

// Reconcile looks at all machines, or at all engines.
func (k *Keeper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var next time.Duration
	var err error
	if request.Name == tokens {
		next, err = k.Interval, k.count(ctx)
	} else {
		next, err = k.pass(ctx, false)
	}
	if err != nil { // the queue sets the time of the next try
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// pass looks at the machines and stores the shards that are due, or all of them.
func (k *Keeper) pass(ctx context.Context, all bool) (time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.look(ctx)
	k.isFailing.Store(err != nil)
	if err != nil {
		return 0, err
	}
	k.snapshot()
	next, err := k.store(ctx, all)
	k.stored()
	if len(k.budgets) > 0 || !k.isComplete() { // purchases need a recent look, and a look detects a repair
		next = sooner(next, lookAgain)
	}
	return min(next, lookAgain), err
}

// Start stores the ledger when this leader ends. It blocks until then.
func (k *Keeper) Start(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked.IsZero() { // this process knows nothing that is not stored
		return nil
	}
	err := k.look(ctx) // if it fails, earlier changes are stored anyway
	if _, errOfStore := k.store(ctx, true); err != nil || errOfStore != nil {
		log.FromContext(ctx).Error(errors.Join(err, errOfStore), "cannot store the cost ledger at shutdown")
	}
	return nil
}

// SetupWithManager registers the Keeper, with watches on the kinds of machines.
func (k *Keeper) SetupWithManager(mgr manager.Manager, objects []client.Object, options controller.Options) error {
	options.MaxConcurrentReconciles = 2
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		Watches(&v1beta1.Workspace{}, wake(), builder.WithPredicates(changesCost())).
		WatchesMetadata(&corev1.Namespace{}, wake(), builder.WithPredicates(changesBudget())).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(named(machines))
			if k.Engines != nil {
				queue.AddAfter(named(tokens), settle)
			}
			return nil
		}))
	for _, object := range objects {
		b = b.Watches(object, wake())
	}
	if err := b.Complete(k); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	if err := mgr.Add(k); err != nil {
		return fmt.Errorf("adding the last step of the %s controller: %w", ControllerName, err)
	}
	return nil
}

func named(key string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: key}}
}

// wake triggers a look at the machines soon after any event.
func wake() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(named(machines), settle) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(named(machines), settle) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(named(machines), settle) },
	}
}

// changesCost passes changes of a Workspace that begin or end a state of its machines.
func changesCost() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.Workspace)
		after, okAfter := e.ObjectNew.(*v1beta1.Workspace)
		return ok && okAfter && (isReady(before) != isReady(after) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Status.Attempts, after.Status.Attempts))
	}}
}

// changesBudget passes namespaces that have, gain or lose a budget.
func changesBudget() predicate.Predicate {
	budget := func(object client.Object) [2]string {
		annotations := object.GetAnnotations()
		return [2]string{annotations[v1beta1.AnnotationMonthlyBudget], annotations[v1beta1.AnnotationBudgetAction]}
	}
	hasAny := func(object client.Object) bool { return budget(object) != [2]string{} }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return hasAny(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return budget(e.ObjectOld) != budget(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return hasAny(e.Object) },
	}
}

func isReady(ws *v1beta1.Workspace) bool {
	return meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionInferenceReady)
}
