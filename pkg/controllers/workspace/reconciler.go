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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/admission"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/capacity/gpuplugin"
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/hub"
	"github.com/modelberth/modelberth/pkg/hub/describe"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/watched"
)

// Planner makes plans.
type Planner interface {
	Plan(request planner.Request) (planner.Plan, error)
	// Quote returns an accepted plan at the price of the day, or why its machines may not be bought today.
	Quote(accepted planner.Plan, constraints planner.Constraints) (planner.Plan, string)
}

// Catalog knows models and engines.
type Catalog interface {
	ResolveModel(name string) (model.Model, error)
	Engine(name string) (catalog.Engine, bool)
	ResolveSKU(name string) (sku.SKU, error)
	SKUs() []sku.SKU
	Quantization(name string) (model.Quantization, bool)
	Identify(node sku.Node) (sku.Machine, error)
}

// Hub tells of models that the catalogue does not have, at a revision, and which commit a file is at, to
// whoever has a token.
type Hub interface {
	Describe(ctx context.Context, repo, revision, token string) (describe.Description, error)
	Commit(ctx context.Context, f hub.File, token string) (string, error)
}

// Provisioner gets machines and lets them go. Which machine has which name, where others name what stands for
// them, follows from those that are known.
type Provisioner interface {
	// Kind is what stands for a machine, as kubectl calls it.
	Kind(owner capacity.Owner) string
	Observe(ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string) ([]capacity.Machine, error)
	Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]string, error)
	Names(owner capacity.Owner, attempt int32, count int) ([]string, error)
	Bills(ctx context.Context) ([]capacity.Bill, error)
	Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error)
	Class(ctx context.Context, class v1beta1.NodeClassReference) (refusal.ClassState, string, error)
	// Aim has pods run on the machines of a request, where more is needed for that than what they were rendered with.
	Aim(request capacity.Request, pods *corev1.PodTemplateSpec) error
	Ensure(ctx context.Context, request capacity.Request) (capacity.Outcome, error)
	Release(ctx context.Context, owner capacity.Owner) ([]string, error)
	Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error)
}

// Uses returns what pods request of nodes; false where that is not known yet.
type Uses interface {
	Of(nodes []string) ([]existing.Use, bool)
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
	Planner Planner
	Catalog Catalog
	// Hub is nil where the controller asks nobody.
	Hub         Hub
	Provisioner Provisioner
	// Uses are what pods request of nodes; nil where that cannot be known, and no existing node is used.
	Uses Uses
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
	Engines EngineReader
	// Isolation says whether several machines may serve one model; nil lets them.
	Isolation *isolation.Guard
	// Answers say how the provisioner's answers are read, Memory what all Workspaces know of refusals.
	Answers Answers
	Memory  *ladder.Memory
	Metrics *Metrics
	// Ledger grants the money for machines; nil means that there is no ceiling. Limits are the
	// administrator's other limits.
	Ledger *ledger.Ledger
	Limits Limits
	// Admission checks whether namespaces admit pods before machines are bought for them; nil checks nothing.
	Admission *admission.Book
	// GPUPluginCheck has nothing with GPUs bought before something is found that will advertise them.
	GPUPluginCheck bool
	// Dedication says when machines have the taint of their Workspace.
	Dedication gpuplugin.Dedication
	// Render shapes pods.
	Render render.Settings
	// Signatures says whose signatures artifacts need.
	Signatures Signatures
	// AdapterRanks asks the hub for the ranks of adapters by their repositories; nil where nobody is asked.
	AdapterRanks func(ctx context.Context, repositories []string) ([]int, error)
	// NodeClasses that a Workspace may ask for by name; empty means only the installation's.
	NodeClasses []v1beta1.NodeClassReference
}

// Reconciler reconciles Workspaces.
type Reconciler struct {
	Config

	// skus are those of the catalogue, which makes them anew for whoever asks; these are not to be changed.
	skus func() []sku.SKU
	// waiting are the Workspaces that wait for others.
	waiting *waiting
	// unadmitted are those whose namespaces refuse their pods.
	unadmitted *unadmitted
	preflight  *preflight
	// unsaid is what is not written yet: news of mere progress, and first attempts where others wait to begin theirs.
	unsaid *unsaid
	// past are the versions of Workspaces that were written over.
	past *past
	// behind is since when passes find that the cache lags.
	behind *behind
	// asking has an entry for each engine that is being asked for its figures.
	asking chan struct{}
	// verifying has an entry for each artifact whose signatures are being read.
	verifying chan struct{}
	// pins are the revisions that were decoded last.
	pins *pins
	// reported are the Workspaces whose pruned fields were published.
	reported reported
	// published is what was read about pods that are held up.
	published published
	// book is what was promised of nodes that are there.
	book existing.Book
}

// New returns a Reconciler.
func New(config Config) *Reconciler {
	if config.Ledger == nil {
		config.Ledger = ledger.New(ledger.Ceilings{}, nil)
	}
	return &Reconciler{
		Config: config, waiting: &waiting{keys: map[types.NamespacedName]interest{}}, preflight: &preflight{seen: map[string]sight{}},
		unsaid: newUnsaid(), past: &past{versions: map[types.UID][]string{}}, pins: newPins(), behind: newBehind(),
		asking: make(chan struct{}, mostAsking), verifying: make(chan struct{}, mostVerifying), unadmitted: newUnadmitted(),
		skus: sync.OnceValue(func() []sku.SKU { return config.Catalog.SKUs() }),
	}
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
	if missing, err := r.missing(ctx); err != nil || len(missing) > 0 && ws.DeletionTimestamp.IsZero() {
		if err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, r.holdPruned(ctx, ws, missing)
	}
	s := newScope(ws)
	s.words, s.pins = r.Words, r.pins
	r.unsaid.recall(s)
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
	err := r.Memory.Load(r.Clock.Now(), func() ([]refusal.Attempt, error) { return r.allAttempts(ctx) })
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
	var wait *waitingError
	var stall *stalledError
	key := client.ObjectKeyFromObject(s.ws)
	isBehind := apierrors.IsConflict(err) || errors.As(err, &wait) && wait.isBrief
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
		log.FromContext(ctx).V(1).Info("waiting", "reason", wait.message)
		return ctrl.Result{RequeueAfter: sooner(s.requeueAfter, wait.after)}, nil
	case errors.As(err, &stall):
		log.FromContext(ctx).V(1).Info("stalled", "reason", stall.reason)
		return ctrl.Result{RequeueAfter: sooner(s.requeueAfter, stall.retryAfter)}, nil
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
	r.unsaid.forget(ws.UID)
	r.past.forget(ws.UID)
	r.published.keep(ws.UID, nil)
	opened := r.Memory.Forget(ws.UID)
	r.Ledger.Forget(ws.UID)
	r.Endpoints.Forget(client.ObjectKeyFromObject(ws))
	r.waiting.remove(client.ObjectKeyFromObject(ws))
	r.unadmitted.remove(client.ObjectKeyFromObject(ws))
	r.settlePods(ws.UID)
	r.waiting.wakeForMoney()
	r.wakeFor(opened)
}

// emit publishes events after the status that makes them true has been written.
func (r *Reconciler) emit(s *scope, events []event) {
	for _, event := range events {
		kind := corev1.EventTypeNormal
		if event.warning {
			kind = corev1.EventTypeWarning
		}
		r.Events.Event(s.ws, kind, event.reason, event.message)
	}
}
