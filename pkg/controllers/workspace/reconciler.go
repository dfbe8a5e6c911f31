// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workspace reconciles Workspaces: it observes the cluster, makes a plan, acquires machines, applies the
// serving objects, and reports the status.
//
// It decides the order of these steps and the conditions of a Workspace. It must not depend on how models use
// memory, an engine's flags, the shape of pods or a provisioner's objects: other packages decide those.
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

// Applier writes this controller's objects, and never changes an object that somebody else owns.
type Applier interface {
	State(ctx context.Context, owner, desired client.Object) (apply.State, error)
	Check(ctx context.Context, owner, desired client.Object) error
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

// Endpoints writes the Services of Workspaces in the background.
type Endpoints interface {
	// Order requests a Service, and returns the result of the last try.
	Order(owner *v1beta1.Workspace, service client.Object) error
	Forget(owner types.NamespacedName)
}

// Config holds the dependencies of a Reconciler.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client client.Client
	Live   client.Reader
	// Planner makes plans, and Catalog has the facts about models, engines and machine types.
	Planner planning.Planner
	Catalog planning.Catalog
	// Hub is nil if the controller must not contact a model hub.
	Hub         planning.Hub
	Provisioner acquisition.Provisioner
	// Uses returns the resource requests of the pods on nodes. If it is nil, plans use no existing node.
	Uses planning.Uses
	// Namespaces are the namespaces of the Workspaces to serve.
	Namespaces watched.Namespaces
	// Schema is nil if the controller does not check for pruned fields.
	Schema pruned.Schema
	// KAITO is nil if the cluster lacks the kinds of KAITO's machines.
	KAITO     foreign.Machines
	Applier   Applier
	Endpoints Endpoints
	Events    record.EventRecorder
	Clock     clock.PassiveClock
	// EngineErrors are the engines' error messages. Engines reads the figures of engines that answer; nil reads
	// none.
	EngineErrors diagnosis.Signatures
	Engines      EngineProbe
	// AdapterProbe reads the adapters of engines that change them; nil reads none.
	AdapterProbe AdapterProbe
	// Isolation decides whether several machines may serve one model; nil always allows it.
	Isolation *isolation.Guard
	// Acquisition has the rules and deadlines for judging machines. Memory holds the refusals of all Workspaces.
	Acquisition acquire.Settings
	Memory      *cooldown.Memory
	Metrics     *meter.Metrics
	// Ledger grants the money for machines. Limits returns the administrator's present limits; nil means no limit.
	Ledger *ledger.Ledger
	Limits func() purchase.Limits
	// Costs returns the monthly spending of namespaces; nil if the installation records no costs.
	Costs purchase.Costs
	// HostPaths are the allowed directories of nodes for weights; empty means none.
	HostPaths []string
	// Preflight is the administrator's policy for the checks before a purchase.
	Preflight preflight.Policy
	// Render shapes pods.
	Render render.Settings
	// Signatures are the administrator's requirements for signed artifacts.
	Signatures planning.Signatures
	// AdapterRanks reads the ranks of adapters from their repositories on the hub; nil reads none.
	AdapterRanks func(ctx context.Context, repositories []string) ([]int, error)
	// Starts returns the memory and the speed of engines that already run a Workspace's model; nil returns none.
	Starts func(ctx context.Context, ws *v1beta1.Workspace) ([]catalog.Measurement, error)
	// Speeds returns how fast engines serve; nil returns none.
	Speeds Speeds
	// NodeClasses are the node classes that Workspaces may name; if empty, only the installation's own.
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

	// waiting holds the Workspaces that wait for money or for a refused offering.
	waiting *watch.Waiting
	// preflight checks purchases.
	preflight *preflight.Checker
	// backoff delays passes while the cache lags.
	backoff *stale.Backoff
	// probes holds an entry for each running probe of an engine.
	probes chan struct{}
	// planning makes plans.
	planning *planning.Pipeline
	// lessons shares the outcome of each Workspace's attempts with all Workspaces.
	lessons *lessons.Lessons
	// reports remembers the published events about pruned fields.
	reports pruned.Reports
	// warnings reads events about delayed pods.
	warnings *warnings.Reader
	// isolate allows the engines of groups to start.
	isolate *isolate.Starter
}

// step is one step of a pass. A step must tolerate any order and repetition.
type step struct {
	name string
	run  func(context.Context, *scope.Scope) error
}

// Reconcile moves one Workspace closer to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil // a node's labels may name a Workspace of another installation
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
		{"adapters", r.workloads.adapters.ensure},
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
	// Load the refusals once, before a Workspace is deleted: its refusals disappear with its status.
	if err := r.Memory.Load(r.Clock.Now(), func() ([]refusal.Attempt, error) { return r.lessons.All(ctx) }); err != nil {
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

// result chooses the next pass by the kind of the error. A conflict or a wait comes back after a delay, a stall waits
// for the user or for its own retry, and any other error backs off.
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

// sooner returns the shorter of two delays; zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// forget drops the state of a deleted Workspace, and wakes the Workspaces that waited for its end: one may request an
// offering again, and others may use the money of machines that never came.
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
