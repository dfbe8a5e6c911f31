// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
)

// mostSteps are many more than any story takes: of 2,000 stories the longest took 1,918.
const mostSteps = 100_000

// faults are how often something goes wrong in a run: one in this number of times; 0 is never.
type faults struct {
	// deaths and lost answers at writes, and reads without an answer.
	deaths, writes, reads int
	// events lost, and watches broken.
	events, watches int
	// lags are the delays of writes in watches, lag at most.
	lags int
	lag  time.Duration
	// stalls are writes delayed until another controller has taken over.
	stalls int
	// oldLists are kinds with an old first list for a new controller: an API server may lag, too.
	oldLists int
	// meddling is people's deeds just after the controller's writes.
	meddling int
	// outages are times without claims in the API server: a webhook is away.
	outages int
}

// deed is a task due at a time.
type deed struct {
	at time.Time
	do func()
}

// world is one run: a cluster with its cloud, a controller and people, on one clock.
type world struct {
	facts  *facts
	random *rand.Rand
	clock  *testclock.FakePassiveClock
	ctx    context.Context
	server *server
	faults faults

	karpenter *karpenter
	kubelets  *kubelets
	process   *process
	people    *people
	rules     *rules
	// today is the market of the running controller, and limits its administrator's settings.
	today  int
	limits purchase.Limits

	// deeds due, and lives of claims.
	deeds []deed
	lives map[types.UID]*life
	// isWriting marks the controller's own writes, and isCalm that nobody else has written since it had nothing to do.
	isWriting, isCalm bool
	// isStalled reports a request of a previous controller on its way, isLate its arrival.
	isStalled, isLate bool
	// ills are the faults of the pods of Workspaces.
	ills ills
	// noClaims is until when the API server takes no claims.
	noClaims time.Time
	// unsettled reports changed pods or nodes.
	unsettled bool
	// broken is the first violated rule.
	broken error

	steps, writes, passes, restarts int
	digest                          digest
	story                           *strings.Builder
}

// start of the simulated time.
func start() time.Time { return time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) }

// newWorld makes the world of a seed, with its story in the builder if there is one.
func newWorld(ctx context.Context, f *facts, seed uint64, story *strings.Builder) *world {
	random := rand.New(rand.NewPCG(seed, 4))
	w := &world{
		facts: f, random: random, clock: testclock.NewFakePassiveClock(start()), ctx: ctx,
		lives: map[types.UID]*life{}, ills: ills{}, story: story,
	}
	w.server = newServer(w.now)
	w.server.onChange = w.changed
	w.karpenter = &karpenter{world: w, cloud: newCloud(f, random)}
	w.kubelets = &kubelets{world: w, hashes: map[string]string{}}
	w.rules = newRules(w)
	w.people = &people{world: w}
	w.faults = drawFaults(random)
	_ = w.server.create(systemNode(start()))
	return w
}

// systemNode is one of the cluster's own, with the controller: without any, silent machines look like a control plane
// without contact.
func systemNode(since time.Time) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "system"}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since),
	}}
	return node
}

// drawFaults makes some runs calm and others wild.
func drawFaults(random *rand.Rand) faults {
	one := func(of ...int) int { return of[random.IntN(len(of))] }
	out := faults{
		deaths: one(0, 15, 60), writes: one(0, 0, 30), reads: one(0, 0, 100), events: one(0, 0, 2), watches: one(0, 20, 100),
		lags: one(0, 4, 20, 100), stalls: one(0, 0, 60), meddling: one(0, 0, 40),
		outages: one(0, 0, 3), oldLists: one(0, 0, 3),
	}
	// The longer they last, the fewer there are.
	switch out.lags {
	case 4:
		out.lag = time.Second
	case 20:
		out.lag = 5 * time.Second
	case 100:
		out.lag = 5 * time.Minute
	}
	return out
}

func (w *world) now() time.Time { return w.clock.Now() }

// market is the running controller's.
func (w *world) market() market { return w.facts.markets[w.today] }

// draw decides on an event with a chance of one in so many.
func (w *world) draw(in int) bool { return in > 0 && w.random.IntN(in) == 0 }

// after has something done in a while.
func (w *world) after(wait time.Duration, do func()) {
	at := w.now().Add(wait)
	i := len(w.deeds)
	for i > 0 && w.deeds[i-1].at.After(at) {
		i--
	}
	w.deeds = append(w.deeds, deed{})
	copy(w.deeds[i+1:], w.deeds[i:])
	w.deeds[i] = deed{at, do}
}

// tell adds to the story.
func (w *world) tell(format string, args ...any) {
	if w.story != nil {
		fmt.Fprintf(w.story, "%s  %s\n", w.now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// logger adds the controller's log to the story.
func (w *world) logger() logr.Logger {
	if w.story == nil {
		return logr.Discard()
	}
	return funcr.New(func(_, args string) { w.tell("    %s", args) }, funcr.Options{Verbosity: 1})
}

// fail records a violated rule.
func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("at %s "+format, append([]any{w.now().Format(time.TimeOnly)}, args...)...)
		w.tell("BROKEN: %v", w.broken)
	}
}

// changed is told of every write.
func (w *world) changed(made *change) {
	made.at, made.seen = w.now(), w.now()
	if log := w.server.log[made.kind]; len(log) > 0 && log[len(log)-1].seen.After(made.seen) {
		made.seen = log[len(log)-1].seen
	}
	if w.draw(w.faults.lags) {
		late := w.now().Add(time.Duration(w.random.Int64N(int64(w.faults.lag))))
		if late.After(made.seen) {
			made.seen = late
		}
	}
	if !w.isWriting {
		w.isCalm = false
	}
	if made.before == nil && w.server.isOrphan(made.after) {
		w.collect(made.after)
	}
	switch made.kind {
	case claims:
		w.karpenter.noticed(made)
		w.rules.noticed(made)
	case workspaces:
		w.rules.heard(made)
	case nodes, pods, statefulSets, services:
		w.unsettled = true
	}
}

// collect deletes an object without its controller, like the garbage collector after a while.
func (w *world) collect(orphan client.Object) {
	w.after(w.karpenter.cloud.between(time.Second, time.Minute), func() {
		known := w.server.objects[kindOf(orphan)][client.ObjectKeyFromObject(orphan)]
		if known != nil && known.GetUID() == orphan.GetUID() {
			w.server.remove(known)
		}
	})
}

// step lets somebody with work act now, or lets time pass until there is work, but no longer than to a moment.
func (w *world) step(until time.Time) {
	w.steps++
	if w.steps > mostSteps {
		w.fail("there is no end: %d steps, %d passes, %d writes", w.steps, w.passes, w.writes)
		return
	}
	var acts []func()
	if p := w.process; p != nil {
		for k := range kinds {
			if due := p.watched.next(k); !due.IsZero() && !due.After(w.now()) {
				acts = append(acts, func() { w.show(k) })
			}
		}
		if due := p.queue.next(); !due.IsZero() && !due.After(w.now()) {
			acts = append(acts, func() { w.take(p.queue, p.pass) })
		}
		if due := p.orders.next(); !due.IsZero() && !due.After(w.now()) {
			acts = append(acts, func() { w.take(p.orders, p.serve) })
		}
		if !p.sweepAt.After(w.now()) {
			acts = append(acts, func() { p.sweep(); w.bury() })
		}
	}
	if w.unsettled {
		acts = append(acts, func() { w.unsettled = false; w.kubelets.settle() })
	}
	if len(w.deeds) > 0 && !w.deeds[0].at.After(w.now()) {
		acts = append(acts, func() { next := w.deeds[0]; w.deeds = w.deeds[1:]; next.do() })
	}
	if len(acts) == 0 {
		w.clock.SetTime(w.next(until))
		return
	}
	acts[w.random.IntN(len(acts))]()
}

// show lets a watch show changes, one by one or all at once.
func (w *world) show(k kind) {
	if w.draw(w.faults.watches) {
		w.process.watched.relist(k)
		return
	}
	w.process.watched.step(k)
}

// take lets the controller do some of the due work.
func (w *world) take(from *queue, do func(reconcile.Request)) {
	if request, ok := from.take(w.random.IntN); ok {
		do(request)
		w.bury()
	}
}

// bury starts another controller in the place of a dead one, after a while.
func (w *world) bury() {
	if w.process == nil || !w.process.isDead {
		return
	}
	w.process.stop()
	w.process = nil
	w.restarts++
	w.after(w.karpenter.cloud.between(0, 30*time.Second), w.begin)
}

// kill ends the controller between two passes.
func (w *world) kill() {
	if w.process != nil {
		w.process.die()
		w.bury()
	}
}

// late is the lag of one kind of objects for a controller that takes over.
func (w *world) late() lateness {
	if !w.draw(w.faults.oldLists) {
		return lateness{}
	}
	return lateness{by: w.karpenter.cloud.between(0, 5*time.Minute), lasts: w.karpenter.cloud.between(0, time.Minute)}
}

// begin starts a controller.
func (w *world) begin() {
	w.tell("a controller starts")
	var err error
	if w.process, err = newProcess(w); err != nil {
		w.fail("the controller does not start: %v", err)
		return
	}
	w.rules.restarted(w.process.watched.objects[workspaces])
}

// end stops all running parts.
func (w *world) end() {
	if w.process != nil {
		w.process.stop()
	}
}

// next is when somebody has something to do.
func (w *world) next(until time.Time) time.Time {
	at := until
	earlier := func(other time.Time) {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	if p := w.process; p != nil {
		for k := range kinds {
			earlier(p.watched.next(k))
		}
		earlier(p.queue.next())
		earlier(p.orders.next())
		earlier(p.sweepAt)
	}
	if len(w.deeds) > 0 {
		earlier(w.deeds[0].at)
	}
	if at.Before(w.now()) {
		return w.now()
	}
	return at
}

// nameOf is the key of an object without a namespace.
func nameOf(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// isWorking reports whether a machine exists and does all of its work.
func (w *world) isWorking(claim *karpv1.NodeClaim) bool {
	node, ok := w.server.objects[nodes][nameOf(nodeName(claim))].(*corev1.Node)
	return ok && isTrue(claim, karpv1.ConditionTypeInitialized) && claim.DeletionTimestamp.IsZero() && isNodeReady(node) &&
		nodehealth.Of(node) == nodehealth.Fault{}
}
