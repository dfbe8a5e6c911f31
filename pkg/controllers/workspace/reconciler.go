// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workspace reconciles Workspaces: it observes, has a plan made, gets machines, applies the
// objects that serve, and reports.
//
// It decides the order of these steps and what a Workspace's conditions say. It must not know the
// physics of models, an engine's flags, the shape of pods or a provisioner's objects: those are
// decided by the packages it calls.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	revisions "github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/watched"
)

// Provisioner gets machines and deletes them.
type Provisioner interface {
	capacity.Observer
	capacity.Actor
}

// Applier writes objects and leaves those of others alone.
type Applier interface {
	State(ctx context.Context, owner, desired client.Object) (apply.State, error)
	Check(ctx context.Context, owner, desired client.Object) error
	Apply(ctx context.Context, owner, desired client.Object) (bool, error)
}

// Endpoints makes the Services that lead to Workspaces, in its own time.
type Endpoints interface {
	// Order has a Service written, and returns how the last try ended.
	Order(owner *v1beta1.Workspace, service client.Object) error
	Forget(owner types.NamespacedName)
}

// Config is what a Reconciler is made from.
type Config struct {
	// Client reads from caches and writes; Live reads past the caches.
	Client client.Client
	Live   client.Reader
	// The decisions and effects that the Reconciler puts in order.
	Planner planning.Planner
	Catalog planning.Catalog
	// Hub is nil where the controller asks nobody.
	Hub         planning.Hub
	Provisioner Provisioner
	// Uses are what pods request of nodes; nil where that cannot be known, and no existing node is used.
	Uses planning.Uses
	// Namespaces are those whose Workspaces are served.
	Namespaces watched.Namespaces
	// Schema is nil where nobody watches what the API server prunes.
	Schema Schema
	// KAITO is nil where the cluster does not serve what KAITO's controller buys machines with.
	KAITO     KAITO
	Applier   Applier
	Endpoints Endpoints
	Events    record.EventRecorder
	Clock     clock.PassiveClock
	// Words are how engines say what is wrong. Engines asks those that answer for their figures; nil asks
	// none.
	Words   diagnosis.Words
	Engines EngineProbe
	// Isolation says whether several machines may serve one model; nil lets them.
	Isolation *isolation.Guard
	// Answers say how the provisioner's answers are read, Memory what all Workspaces know of refusals.
	Answers Answers
	Memory  *cooldown.Memory
	Metrics *Metrics
	// Ledger grants the money for machines; nil means that there is no ceiling. Limits are the
	// administrator's other limits.
	Ledger *ledger.Ledger
	Limits purchase.Limits
	// Preflight is what the administrator decides about the checks before a purchase.
	Preflight preflight.Policy
	// Render shapes pods.
	Render render.Settings
	// Signatures says whose signatures artifacts need.
	Signatures planning.Signatures
	// AdapterRanks asks the hub for the ranks of adapters by their repositories; nil where nobody is asked.
	AdapterRanks func(ctx context.Context, repositories []string) ([]int, error)
	// NodeClasses that a Workspace may ask for by name; empty means only the installation's.
	NodeClasses []v1beta1.NodeClassReference
}

// Reconciler reconciles Workspaces.
type Reconciler struct {
	Config

	// waiting are the Workspaces that wait for others.
	waiting *watch.Waiting
	// preflight checks what is about to be bought.
	preflight *preflight.Checker
	// statusWrites has the time at which the status of each Workspace was last written.
	statusWrites *cache.LRUExpireCache
	// past are the versions of Workspaces that were written over.
	past *past
	// behind is since when passes find that the cache lags.
	behind *behind
	// probes has an entry for each engine that is being probed.
	probes chan struct{}
	// revisions stores accepted plans, and planning makes them.
	revisions *revisions.Store
	planning  *planning.Pipeline
	// market chooses which plans are bought.
	market *purchase.Market
	// lessons have all Workspaces learn from the attempts of each.
	lessons *lessons
	// reported are the Workspaces whose pruned fields were published.
	reported reported
	// published is what was read about pods that are held up.
	published published
}

// New returns a Reconciler.
func New(config Config) *Reconciler {
	if config.Ledger == nil {
		config.Ledger = ledger.New(ledger.Ceilings{}, nil)
	}
	stored := revisions.NewStore(config.Client, config.Live)
	out := &Reconciler{
		Config: config, waiting: watch.NewWaiting(),
		statusWrites: cache.NewLRUExpireCacheWithClock(mostStatusWrites, config.Clock),
		past:         &past{versions: map[types.UID][]string{}}, behind: newBehind(),
		revisions: stored, planning: newPipeline(&config, stored), probes: make(chan struct{}, mostProbes),
		preflight: preflight.New(config.Preflight, preflight.Cluster{
			Cached: config.Client, Live: config.Live, Classes: config.Provisioner, LocalDiskGiB: localDisk(config.Catalog),
		}, config.Clock),
	}
	out.market = newMarket(&config, out)
	out.lessons = &lessons{
		reader: config.Client, memory: config.Memory, market: out.market, waiting: out.waiting, metrics: config.Metrics,
		clock: config.Clock,
	}
	return out
}

// newMarket returns what Workspaces choose their plans from.
func newMarket(config *Config, r *Reconciler) *purchase.Market {
	out := purchase.Market{
		Catalog: config.Catalog, Planner: config.Planner, Planning: r.planning, Memory: config.Memory, Ledger: config.Ledger,
		Limits: config.Limits, OneMachine: config.Isolation.Refusal, Preflight: r.preflight,
		Objects: config.Live, Clock: config.Clock, NodeClasses: config.NodeClasses,
	}
	if config.Provisioner != nil {
		out.Names = config.Provisioner.Names
	}
	return purchase.New(out)
}

// step is one job of a pass. It may be run first, last or twice.
type step struct {
	name string
	run  func(context.Context, *scope) error
}

// Reconcile brings one Workspace a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(request.Namespace) {
		return ctrl.Result{}, nil // nodes name the Workspaces of other installations, too
	}
	ws := &v1beta1.Workspace{}
	err := r.Client.Get(ctx, request.NamespacedName, ws)
	if apierrors.IsNotFound(err) {
		r.behind.over(request.NamespacedName)
		r.Endpoints.Forget(request.NamespacedName)
		return ctrl.Result{}, r.releaseOrphans(ctx, request.NamespacedName, "")
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading workspace %s: %w", request.NamespacedName, err)
	}
	if r.past.isPast(ws) {
		return ctrl.Result{RequeueAfter: r.behind.again(request.NamespacedName, r.Clock.Now())}, nil
	}
	if missing, err := missingFields(ctx, r.Schema); err != nil || len(missing) > 0 && ws.DeletionTimestamp.IsZero() {
		if err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.holdPruned(ctx, ws, missing)
	}
	s := newScope(ws)
	s.words = r.Words
	err = r.run(ctx, s)
	if s.finalized {
		r.forget(ws)
		return ctrl.Result{}, err
	}
	if !s.observed && len(ws.Status.Conditions) > 0 {
		return r.result(ctx, s, err) // what was said before still holds, as far as we know
	}
	if reportErr := r.report(ctx, s, err); reportErr != nil {
		if err != nil {
			log.FromContext(ctx).V(1).Info("pass failed before its report", "reason", err.Error())
		}
		err = reportErr // what was not written must be tried again
	}
	return r.result(ctx, s, err)
}

func (r *Reconciler) run(ctx context.Context, s *scope) error {
	steps := []step{
		{"observe", r.observe},
		{"orphans", r.ensureNoOrphans},
		{"finalizer", r.ensureFinalizer},
		{"KAITO", r.ensureNotKAITOs},
		{"plan", r.ensurePlan},
		{"names", r.ensureNames},
		{"capacity", r.ensureCapacity},
		{"workload", r.ensureWorkload},
		{"commit", r.ensureCommit},
		{"group", r.ensureGroup},
		{"stuck pods", r.ensureNoStuckPods},
		{"events", r.observePublished},
		{"failing", r.noteFailing},
		{"engine", r.observeEngine},
		{"isolation", r.ensureIsolation},
	}
	if !s.ws.DeletionTimestamp.IsZero() {
		steps = []step{{"observe", r.observe}, {"release", r.ensureReleased}}
	} else if s.ws.Suspend {
		steps = []step{
			{"observe", r.observe},
			{"finalizer", r.ensureFinalizer},
			{"KAITO", r.ensureNotKAITOs},
			{"suspend", r.ensureSuspended},
			{"plan", r.ensurePlan},
		}
	}
	// Once, and before a Workspace is deleted, with whose status its refusals go.
	err := r.Memory.Load(r.Clock.Now(), func() ([]refusal.Attempt, error) { return r.lessons.all(ctx) })
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step.run(ctx, s); err != nil {
			return fmt.Errorf("%s of workspace %s/%s: %w", step.name, s.ws.Namespace, s.ws.Name, err)
		}
		if s.finalized {
			return nil
		}
	}
	return nil
}

// result turns the kind of an error into what happens next: conflicts and waiting come back by
// themselves, what the user must change waits for the user, everything else backs off.
func (r *Reconciler) result(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	var wait *progress.WaitingError
	var stall *progress.StalledError
	key := client.ObjectKeyFromObject(s.ws)
	isBehind := apierrors.IsConflict(err) || errors.As(err, &wait) && wait.IsBrief
	if !isBehind {
		r.behind.over(key)
	}
	switch {
	case err == nil:
		return ctrl.Result{RequeueAfter: s.requeueAfter}, nil
	case isBehind:
		log.FromContext(ctx).V(1).Info("the cache is behind, trying again", "reason", err.Error())
		return ctrl.Result{RequeueAfter: r.behind.again(key, r.Clock.Now())}, nil
	case errors.As(err, &wait):
		log.FromContext(ctx).V(1).Info("waiting", "reason", wait.Message)
		return ctrl.Result{RequeueAfter: sooner(s.requeueAfter, wait.After)}, nil
	case errors.As(err, &stall):
		log.FromContext(ctx).V(1).Info("stalled", "reason", stall.Reason)
		return ctrl.Result{RequeueAfter: sooner(s.requeueAfter, stall.RetryAfter)}, nil
	default:
		return ctrl.Result{}, err
	}
}

// sooner returns the shorter of two delays, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// forget drops what is kept of a Workspace that is gone, and has those look again that waited for what became
// of it: the first to ask for an offer again, or money for a machine that never came.
func (r *Reconciler) forget(ws *v1beta1.Workspace) {
	r.past.forget(ws.UID)
	r.published.keep(ws.UID, nil)
	opened := r.Memory.Forget(ws.UID)
	r.Ledger.Forget(ws.UID)
	r.Endpoints.Forget(client.ObjectKeyFromObject(ws))
	r.waiting.Remove(client.ObjectKeyFromObject(ws))
	r.preflight.Forget(client.ObjectKeyFromObject(ws), ws.UID)
	r.waiting.WakeForMoney()
	r.lessons.wake(opened)
}
