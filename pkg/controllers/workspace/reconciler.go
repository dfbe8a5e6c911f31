// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workspace reconciles Workspaces: it observes, has a plan made, acquires machines, applies the serving
// objects, and reports.
//
// It decides the order of these steps and the conditions of a Workspace. It must not know the physics of models, an
// engine's flags, the shape of pods or a provisioner's objects: other packages decide those.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/acquisition"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/isolate"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/stale"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/warnings"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/watched"
)

// Applier writes objects and leaves those of others alone.
type Applier interface {
	State(ctx context.Context, owner, desired client.Object) (apply.State, error)
	Check(ctx context.Context, owner, desired client.Object) error
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

// Endpoints makes the Services of Workspaces, in its own time.
type Endpoints interface {
	// Order has a Service written, and returns how the last try ended.
	Order(owner *v1beta1.Workspace, service client.Object) error
	Forget(owner types.NamespacedName)
}

// Config holds the dependencies of a Reconciler.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client client.Client
	Live   client.Reader
	// The decisions and effects in the Reconciler's order.
	Planner planning.Planner
	Catalog planning.Catalog
	// Hub is nil if the controller may ask none.
	Hub         planning.Hub
	Provisioner acquisition.Provisioner
	// Uses are the requests of pods on nodes; nil if they are unknown, and then no existing node is used.
	Uses planning.Uses
	// Namespaces of the Workspaces to serve.
	Namespaces watched.Namespaces
	// Schema is nil if pruned fields are not watched.
	Schema pruned.Schema
	// KAITO is nil if the cluster lacks the kinds of KAITO's machines.
	KAITO     foreign.Machines
	Applier   Applier
	Endpoints Endpoints
	Events    record.EventRecorder
	Clock     clock.PassiveClock
	// EngineErrors are the engines' error messages. Engines reads the figures of answering engines; nil reads none.
	EngineErrors diagnosis.Signatures
	Engines      EngineProbe
	// Isolation reports whether several machines may serve one model; nil lets them.
	Isolation *isolation.Guard
	// Acquisition has the rules and deadlines by which machines are judged. Memory holds the refusals of all Workspaces.
	Acquisition acquire.Settings
	Memory      *cooldown.Memory
	Metrics     *meter.Metrics
	// Ledger grants the money for machines; nil means no ceiling. Limits are the administrator's other limits.
	Ledger *ledger.Ledger
	// Costs are what namespaces spend in a month; nil if no cost ledger is kept.
	Costs  purchase.Costs
	Limits purchase.Limits
	// Preflight is the administrator's policy for the checks before a purchase.
	Preflight preflight.Policy
	// Render shapes pods.
	Render render.Settings
	// Signatures are the administrator's demands on artifacts.
	Signatures planning.Signatures
	// AdapterRanks reads the ranks of adapters from the hub by their repositories; nil reads none.
	AdapterRanks func(ctx context.Context, repositories []string) ([]int, error)
	// Starts returns the memory and the speed of engines that already run a Workspace's model; nil returns none.
	Starts func(ctx context.Context, ws *v1beta1.Workspace) ([]catalog.Measurement, error)
	// Speeds returns how fast engines serve; nil returns none.
	Speeds Speeds
	// NodeClasses for Workspaces to name; empty means only the installation's.
	NodeClasses []v1beta1.NodeClassReference
}

// Reconciler reconciles Workspaces.
type Reconciler struct {
	Config

	// The steps of a pass, apart from its plan and its report.
	observer  *observer
	executor  *acquisition.Executor
	workloads *workloads
	pins      *pins
	records   *records

	// waiting are the Workspaces that wait for others.
	waiting *watch.Waiting
	// preflight checks purchases.
	preflight *preflight.Checker
	// backoff delays passes while they find a lagging cache.
	backoff *stale.Backoff
	// probes has an entry for each engine under a probe.
	probes chan struct{}
	// planning makes plans.
	planning *planning.Pipeline
	// lessons have all Workspaces learn from the attempts of each.
	lessons *lessons.Lessons
	// reports are the events about pruned fields.
	reports pruned.Reports
	// warnings reads events about delayed pods.
	warnings *warnings.Reader
	// isolate lets groups start.
	isolate *isolate.Starter
}

// step is one job of a pass. It may be run first, last or twice.
type step struct {
	name string
	run  func(context.Context, *scope.Scope) error
}

// Reconcile brings one Workspace a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil // nodes name the Workspaces of other installations, too
	}
	ws := &v1beta1.Workspace{}
	err := r.Client.Get(ctx, request.NamespacedName, ws)
	if apierrors.IsNotFound(err) {
		r.backoff.Reset(request.NamespacedName)
		r.records.expectations.Forget(request.NamespacedName)
		r.Endpoints.Forget(request.NamespacedName)
		return ctrl.Result{}, r.releaseOrphans(ctx, request.NamespacedName, "")
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading workspace %s: %w", request.NamespacedName, err)
	}
	if r.records.expectations.IsStale(ws) {
		return ctrl.Result{RequeueAfter: r.backoff.Next(request.NamespacedName, r.Clock.Now())}, nil
	}
	if isHeld, err := r.holdsPruned(ctx, ws); err != nil || isHeld {
		return ctrl.Result{}, err
	}
	s := scope.New(ws)
	s.Signatures = r.EngineErrors
	err = r.run(ctx, s)
	if s.IsFinalized {
		r.forget(ws)
		return ctrl.Result{}, err
	}
	if !s.IsObserved && len(ws.Status.Conditions) > 0 {
		return r.result(ctx, s, err) // the former status still holds, as far as we know
	}
	if reportErr := r.report(ctx, s, err); reportErr != nil {
		if err != nil {
			log.FromContext(ctx).V(1).Info("pass failed before its report", "reason", err.Error())
		}
		err = reportErr // a failed write must be tried again
	}
	return r.result(ctx, s, err)
}

func (r *Reconciler) run(ctx context.Context, s *scope.Scope) error {
	steps := []step{
		{"observe", r.observer.observe},
		{"orphans", r.ensureNoOrphans},
		{"finalizer", r.ensureFinalizer},
		{"KAITO", r.ensureLeftAlone},
		{"plan", r.ensurePlan},
		{"names", r.workloads.ensureNames},
		{"admission", r.ensureAdmitted},
		{"capacity", r.ensureCapacity},
		{"takeover", r.ensureReplaced},
		{"workload", r.workloads.ensureWorkload},
		{"commit", r.ensureCommit},
		{"group", r.workloads.ensureGroup},
		{"stuck pods", r.workloads.ensureNoStuckPods},
		{"events", r.observeWarnings},
		{"failing", r.noteFailing},
		{"engine", r.observeEngine},
		{"speed", r.observeSpeed},
		{"isolation", r.ensureIsolation},
		{"leftovers", r.ensureNoLeftovers},
	}
	if !s.Workspace.DeletionTimestamp.IsZero() {
		steps = []step{{"observe", r.observer.observe}, {"release", r.ensureReleased}}
	} else if s.Workspace.Suspend {
		steps = []step{
			{"observe", r.observer.observe},
			{"finalizer", r.ensureFinalizer},
			{"KAITO", r.ensureLeftAlone},
			{"suspend", r.ensureSuspended},
			{"plan", r.ensurePlan},
		}
	}
	// Once, and before a Workspace is deleted: its refusals go with its status.
	err := r.Memory.Load(r.Clock.Now(), func() ([]refusal.Attempt, error) { return r.lessons.All(ctx) })
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step.run(ctx, s); err != nil {
			return fmt.Errorf("%s of workspace %s/%s: %w", step.name, s.Workspace.Namespace, s.Workspace.Name, err)
		}
		if s.IsFinalized {
			return nil
		}
	}
	return nil
}

// result turns the kind of an error into the next step: conflicts and waiting come back on their own, errors of the
// user wait for the user, all others back off.
func (r *Reconciler) result(ctx context.Context, s *scope.Scope, err error) (ctrl.Result, error) {
	var wait *progress.WaitingError
	var stall *progress.StalledError
	key := client.ObjectKeyFromObject(s.Workspace)
	isBehind := apierrors.IsConflict(err) || isBrief(err)
	if !isBehind && !isBrief(s.CapacityErr) {
		r.backoff.Reset(key)
	}
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: s.RequeueAfter}, nil
	case isBehind:
		log.FromContext(ctx).V(1).Info("the cache is behind, trying again", "reason", err.Error())
		return ctrl.Result{RequeueAfter: r.backoff.Next(key, r.Clock.Now())}, nil
	case errors.As(err, &wait):
		log.FromContext(ctx).V(1).Info("waiting", "reason", wait.Message)
		return ctrl.Result{RequeueAfter: sooner(s.RequeueAfter, wait.After)}, nil
	case errors.As(err, &stall):
		log.FromContext(ctx).V(1).Info("stalled", "reason", stall.Reason)
		return ctrl.Result{RequeueAfter: sooner(s.RequeueAfter, stall.RetryAfter)}, nil
	default:
		r.Metrics.Failed(err)
		return ctrl.Result{}, err
	}
}

// sooner returns the shorter of two delays; zero stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// forget drops the state of a deleted Workspace. Those that waited for its end look again: the first to request an
// offer again, or to use the money for a machine that never came.
func (r *Reconciler) forget(ws *v1beta1.Workspace) {
	r.records.expectations.Forget(client.ObjectKeyFromObject(ws))
	r.warnings.Forget(ws.UID)
	opened := r.Memory.Forget(ws.UID)
	r.Ledger.Forget(ws.UID)
	r.Endpoints.Forget(client.ObjectKeyFromObject(ws))
	r.waiting.Remove(client.ObjectKeyFromObject(ws))
	r.preflight.Forget(client.ObjectKeyFromObject(ws), ws.UID)
	r.waiting.WakeForMoney()
	r.lessons.Wake(opened)
}
