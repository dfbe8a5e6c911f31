// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/controllers/endpoint"
	"github.com/modelberth/modelberth/pkg/controllers/sweep"
	"github.com/modelberth/modelberth/pkg/controllers/workspace"
	workspacewatch "github.com/modelberth/modelberth/pkg/controllers/workspace/watch"
)

var errDead = errors.New("the process is dead")

// sweepPeriod is the product's.
const sweepPeriod = 5 * time.Minute

// process is one controller from its start to its end: its memory ends with it.
type process struct {
	world      *world
	watched    *watched
	queue      *queue
	reconciler *workspace.Reconciler
	// orders are for the Services made by endpoints.
	orders    *queue
	endpoints *endpoint.Queue
	sweeper   *sweep.Sweeper
	sweepAt   time.Time
	isDead    bool
	stop      context.CancelFunc
}

// host is the part of a manager for a controller's setup.
type host struct {
	manager.Manager // what is not simulated

	facts   *facts
	watched *watched
	indexes map[string]client.IndexerFunc
	// controllers are the registered ones.
	controllers []manager.Runnable
}

func (h *host) GetScheme() *runtime.Scheme              { return h.facts.scheme }
func (h *host) GetRESTMapper() meta.RESTMapper          { return h.facts.mapper }
func (h *host) GetCache() cache.Cache                   { return h.watched }
func (h *host) GetFieldIndexer() client.FieldIndexer    { return h }
func (h *host) GetControllerOptions() config.Controller { return config.Controller{} }
func (h *host) GetLogger() logr.Logger                  { return logr.Discard() }

// Add implements manager.Manager. All runnables start after the setup.
func (h *host) Add(runnable manager.Runnable) error {
	h.controllers = append(h.controllers, runnable)
	return nil
}

// IndexField implements client.FieldIndexer.
func (h *host) IndexField(_ context.Context, _ client.Object, field string, index client.IndexerFunc) error {
	h.indexes[field] = index
	return nil
}

// dedicationOf has the administrator change his mind with each start of the controller: machines with the taint of their
// Workspace and without serve beside each other.
func dedicationOf(life int) preflight.Dedication {
	if life%2 == 0 {
		return preflight.Enabled
	}
	return preflight.Disabled
}

// newProcess starts a controller, wired as the product wires it.
func newProcess(w *world) (*process, error) {
	p := &process{world: w, watched: watch(w.server, w.late), queue: newQueue(w.now), orders: newQueue(w.now), sweepAt: w.now().Add(sweepPeriod)}
	fail := func() error {
		if p.isDead {
			return errDead
		}
		return nil
	}
	indexes := map[string]client.IndexerFunc{}
	live := &reader{see: func(k kind) map[types.NamespacedName]client.Object { return w.server.objects[k] }, fail: p.answer}
	cached := &writer{
		reader:  &reader{see: func(k kind) map[types.NamespacedName]client.Object { return p.watched.objects[k] }, indexes: indexes, fail: fail},
		process: p, server: w.server, scheme: w.facts.scheme, mapper: w.facts.mapper,
	}
	provisioner := nodeclaim.New(cached, live, w.facts.classes[0])
	p.sweeper = &sweep.Sweeper{Cached: cached, Live: live, Machines: provisioner, Clock: testclock.NewFakeClock(w.now())}
	applier := apply.New(cached, live, p.watched, w.clock)
	p.endpoints = endpoint.New(applier, w.clock)
	p.reconciler = workspace.New(workspace.Config{
		Client: cached, Live: live, Planner: w.market().planner, Catalog: w.market().catalog, Limits: w.limits.Always, Provisioner: provisioner,
		Applier: applier, Endpoints: p.endpoints, Events: teller{w}, Clock: w.clock, EngineErrors: w.facts.words, Acquisition: w.facts.acquisition,
		Preflight: preflight.Policy{Dedication: dedicationOf(w.restarts)},
		Uses:      uses{live}, Memory: &cooldown.Memory{}, Ledger: ledger.New(provisioner), Render: w.facts.render, NodeClasses: w.facts.classes,
	})
	if err := p.setUp(&host{facts: w.facts, watched: p.watched, indexes: indexes}); err != nil {
		return nil, err
	}
	return p, nil
}

// setUp lets the controller register its watches, and shows it all existing objects.
func (p *process) setUp(h *host) error {
	ctx, cancel := context.WithCancel(p.world.ctx)
	p.stop = cancel
	if err := workspacewatch.Index(ctx, h); err != nil {
		return err
	}
	if err := p.reconciler.SetupWithManager(h, []workspacewatch.Source{{
		Object: nodeclaim.Object(), Frees: func(context.Context, client.Object) bool { return true },
	}}, p.queue.options()); err != nil {
		return err
	}
	if err := p.endpoints.SetupWithManager(h, p.orders.options(), p.reconciler.LookAgain); err != nil {
		return err
	}
	failed := make(chan error, len(h.controllers))
	for _, c := range h.controllers {
		go func() { failed <- c.Start(ctx) }()
	}
	for _, q := range []*queue{p.queue, p.orders} {
		select {
		case <-q.asked: // its watches are set up
		case err := <-failed:
			return fmt.Errorf("starting the controllers: %w", err)
		}
	}
	p.watched.begin()
	return nil
}

// die ends the process in the middle of its work.
func (p *process) die() {
	p.isDead = true
	p.world.tell("the controller dies")
}

// answer reports whether the API server answers a question.
func (p *process) answer() error {
	if p.isDead {
		return errDead
	}
	if p.world.draw(p.world.faults.reads) {
		return apierrors.NewTimeoutError("reading", 1)
	}
	return nil
}

// write is a request to write. The process may die before or after it, and the answer may be lost.
func (p *process) write(verb string, object client.Object, do func() error) error {
	if p.isDead {
		return errDead
	}
	w, before := p.world, p.world.server.writes
	if isDigested() {
		do = w.digested(verb, object, do)
	}
	if claim, ok := w.server.objects[claims][nameOf(object.GetName())].(*karpv1.NodeClaim); ok && verb == "delete" && claim.UID == object.GetUID() {
		w.rules.lets(claim)
	}
	switch {
	case !w.isStalled && w.draw(w.faults.stalls):
		return p.stall(verb, object, do)
	case verb == "create" && kindOf(object) == claims && w.now().Before(w.noClaims):
		w.tell("%s %T %s: nobody takes it", verb, object, object.GetName())
		w.people.hear()
		return apierrors.NewInternalError(errors.New("failed calling webhook"))
	case w.draw(w.faults.deaths):
		if w.random.IntN(2) == 0 {
			w.tell("%s %T %s, and nobody hears how it went", verb, object, object.GetName())
			_ = do()
		}
		p.die()
		return errDead
	case w.draw(w.faults.writes):
		w.rules.unanswered(object)
		if w.random.IntN(2) == 0 {
			w.tell("%s %T %s, and the answer is lost", verb, object, object.GetName())
			_ = do()
		}
		return apierrors.NewTimeoutError("writing", 1)
	}
	w.isWriting = true
	err := do()
	w.isWriting = false
	w.tell("%s %T %s: %v", verb, object, object.GetName(), err)
	if w.server.writes == before {
		return err
	}
	w.writes++
	w.people.hear()
	if w.isCalm {
		w.fail("the controller wrote %T %s although nothing had happened", object, object.GetName())
	}
	return err
}

// digested adds a request to the digest once it has arrived.
func (w *world) digested(verb string, object client.Object, do func() error) func() error {
	return func() error {
		err := do()
		w.digest.write(w.now(), verb, object, err)
		return err
	}
}

// stall has a request arrive late: the lease runs out meanwhile, another controller goes on, and this one ends
// once it hears how it went.
func (p *process) stall(verb string, object client.Object, do func() error) error {
	w := p.world
	w.tell("%s %T %s takes its time, and the lease is lost", verb, object, object.GetName())
	w.isStalled, w.process = true, nil
	p.stop()
	w.restarts++
	w.after(w.karpenter.cloud.between(0, 15*time.Second), w.begin)
	w.until(w.now().Add(w.karpenter.cloud.between(time.Second, 10*time.Minute)))
	w.tell("%s %T %s arrives", verb, object, object.GetName())
	w.isStalled, w.isLate = false, true
	_ = do()
	w.isLate = false
	p.isDead = true
	return errDead
}

// pass has the controller look at one Workspace.
func (p *process) pass(request reconcile.Request) {
	p.world.passes++
	p.world.tell("pass over %s", request.Name)
	p.work(p.reconciler, p.queue, request)
}

// serve has the controller make the Service of one Workspace.
func (p *process) serve(request reconcile.Request) {
	p.world.tell("making the Service of %s", request.Name)
	p.work(p.endpoints, p.orders, request)
}

// work does the due work, and requests it again as a controller does.
func (p *process) work(does reconcile.Reconciler, queue *queue, request reconcile.Request) {
	result, err := does.Reconcile(log.IntoContext(p.world.ctx, p.world.logger()), request)
	switch {
	case p.isDead:
	case err != nil:
		p.world.tell("it fails: %v", err)
		queue.AddRateLimited(request)
	case result.RequeueAfter > 0:
		queue.Forget(request)
		queue.AddAfter(request, result.RequeueAfter)
	default:
		queue.Forget(request)
	}
}

// sweep has the controller look for machines without a Workspace.
func (p *process) sweep() {
	p.sweepAt = p.world.now().Add(sweepPeriod)
	if err := p.sweeper.Sweep(log.IntoContext(p.world.ctx, p.world.logger())); err != nil {
		p.world.tell("the sweep fails: %v", err)
	}
}

// teller adds the controller's events to the story.
type teller struct{ world *world }

// Event implements record.EventRecorder.
func (t teller) Event(of runtime.Object, _, reason, message string) {
	if ws, ok := of.(*v1beta1.Workspace); ok {
		t.world.tell("%s says %s: %s", ws.Name, reason, message)
		if isDigested() {
			t.world.digest.event(t.world.now(), ws.Name, reason, message)
		}
	}
}

// Eventf implements record.EventRecorder.
func (t teller) Eventf(of runtime.Object, kind, reason, format string, args ...any) {
	t.Event(of, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (t teller) AnnotatedEventf(of runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	t.Eventf(of, kind, reason, format, args...)
}
