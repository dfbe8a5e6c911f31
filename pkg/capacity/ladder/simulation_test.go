// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// record is an attempt as a status keeps it.
type record struct {
	number      int
	offer       string
	names       []string
	uids        map[string]types.UID
	stages      map[string]refusal.Observation
	began       time.Time
	ready, gone time.Time
	cause       refusal.Cause
	released    bool
	scope       refusal.Scope
	cooldown    time.Duration
	guessed     bool
	generation  int
}

func (r *record) isOpen() bool { return r.gone.IsZero() }

// clone copies records, so that what is not written down is lost in a crash.
func clone(records []record) []record {
	out := slices.Clone(records)
	for i := range out {
		out[i].uids, out[i].stages = maps.Clone(out[i].uids), maps.Clone(out[i].stages)
	}
	return out
}

// told is what the memory of refusals takes.
func (r *record) told() []refusal.Attempt {
	var out []refusal.Attempt
	known := refusal.Attempt{Offering: offer(r.offer), Started: r.began}
	if !r.ready.IsZero() {
		got := known
		got.Ended = r.ready
		out = append(out, got)
	}
	if !r.isOpen() && !r.released {
		known.Ended, known.Cause, known.Scope, known.Cooldown = r.gone, r.cause, r.scope, r.cooldown
		known.Guessed = r.guessed
		out = append(out, known)
	}
	return out
}

// workspace is one Workspace with its controller, which may die at every write.
type workspace struct {
	random *rand.Rand
	cloud  *cloud
	rules  refusal.Rules
	now    time.Time

	// offers are the allowed ones, best first, and nodes how many machines of one are needed.
	offers []string
	nodes  int
	// status is what is written down; generation changes when somebody acts.
	status     []record
	plan       string
	generation int
	// memory is the process's.
	memory *ladder.Memory

	// kept are the machines that a lost status must not cost.
	kept    []string
	crashes bool
	writes  int
	wait    time.Duration
}

var runs = flag.Int("runs", 10_000, "random stories to tell")

var errCrashed = errors.New("crashed")

var deadlines = refusal.Deadlines{Launched: 10 * time.Minute, Registered: 20 * time.Minute, Initialized: 30 * time.Minute}

// write is a request to write: the process may die before it or after it.
func (w *workspace) write(do func()) error {
	w.writes++
	if w.crashes && w.random.IntN(25) == 0 {
		if w.random.IntN(2) == 0 {
			do()
		}
		w.memory = &ladder.Memory{}
		return errCrashed
	}
	do()
	return nil
}

// pass is one pass of the controller.
func (w *workspace) pass() error {
	w.wait = 0
	records := clone(w.status)
	for range 8 {
		var last *record
		if len(records) > 0 {
			last = &records[len(records)-1]
		}
		state := w.state(last, records)
		step := ladder.Decide(state)
		switch step.Do {
		case ladder.Adopt:
			records = append(records, w.adopt())
		case ladder.End:
			w.end(last, step.Verdict)
		case ladder.Release:
			return w.release(records)
		case ladder.Next:
			next, isLeft := w.next(records)
			if !isLeft {
				return w.save(records)
			}
			records = append(records, next)
		case ladder.Ask:
			return w.ask(records)
		default:
			if at := step.Verdict.LookAgain; !at.IsZero() {
				w.wait = at.Sub(w.now)
			}
			if step.Do == ladder.Keep && last.ready.IsZero() && w.isReady() {
				last.ready = w.now
				w.memory.Learn(last.told()...)
			}
			return w.save(records)
		}
	}
	return fmt.Errorf("no end of steps at %s", w.now)
}

func (w *workspace) save(records []record) error {
	if len(records) == len(w.status) && (len(records) == 0 || reflect.DeepEqual(records, w.status)) {
		return nil
	}
	return w.write(func() { w.status = clone(records[max(0, len(records)-4):]) })
}

func (w *workspace) namesOf(number int) []string {
	var names []string
	for ordinal := range w.nodes {
		names = append(names, fmt.Sprintf("n%d-%d", number, ordinal))
	}
	return names
}

func (w *workspace) state(last *record, records []record) ladder.State {
	var out ladder.State
	var names []string
	if last != nil && last.isOpen() {
		names = last.names
	}
	for _, name := range w.cloud.names() {
		known := w.cloud.claims[name]
		switch {
		case known.leaves(w.now):
			out.Leaving++
		case !slices.Contains(names, name):
			out.Strays++
			isKnown := slices.ContainsFunc(records, func(r record) bool { return slices.Contains(r.names, name) })
			out.Unknown = out.Unknown || !isKnown && known.offer == w.plan
		}
	}
	if last == nil {
		return out
	}
	out.Last = &ladder.Attempt{
		Open: last.isOpen(), Wanted: last.offer == w.plan, Cause: last.cause, Unchanged: last.generation == w.generation,
	}
	if !last.isOpen() || !out.Last.Wanted {
		return out
	}
	for _, name := range names {
		out.Last.Machines = append(out.Last.Machines, w.judge(last, name, records))
	}
	return out
}

func (w *workspace) judge(last *record, name string, records []record) ladder.Machine {
	seen := refusal.Observation{
		Provider: refusal.KarpenterAzure, Offering: offer(last.offer), CreatedAt: last.began, GPUsWanted: 1,
		WasUsable: !last.ready.IsZero(), UID: last.uids[name],
	}
	known, stands := w.cloud.claims[name]
	if !stands && seen.UID == "" && last.ready.IsZero() {
		return ladder.Machine{}
	}
	if stands {
		known.observe(&seen, w.now)
		last.uids[name], last.stages[name] = known.uid, refusal.Observation{Launched: seen.Launched, Registered: seen.Registered}
	} else {
		seen.GoneAt = w.now
		seen.Launched, seen.Registered = last.stages[name].Launched, last.stages[name].Registered
	}
	verdict := w.rules.Classify(seen, deadlines, w.now)
	if verdict.Final {
		seen.Events = w.cloud.events[seen.UID]
		var past []refusal.Attempt
		for i := range records {
			past = append(past, records[i].told()...)
		}
		verdict = refusal.Escalate(w.rules.Classify(seen, deadlines, w.now), past)
	}
	return ladder.Machine{Stands: stands && !known.leaves(w.now), Existed: true, Verdict: verdict}
}

func (w *workspace) begin(number int) record {
	return record{
		number: number, offer: w.plan, names: w.namesOf(number), uids: map[string]types.UID{},
		stages: map[string]refusal.Observation{}, began: w.now,
	}
}

func (w *workspace) adopt() record {
	number := 0
	for _, known := range w.cloud.claims {
		if known.offer == w.plan && !known.leaves(w.now) {
			number = max(number, known.attempt)
		}
	}
	return w.begin(number)
}

func (w *workspace) end(last *record, verdict refusal.Verdict) {
	last.gone, last.generation = w.now, w.generation
	last.released = verdict.Cause == refusal.None
	last.cause, last.scope, last.cooldown, last.guessed = verdict.Cause, verdict.Scope, verdict.Cooldown, verdict.Guessed
	w.memory.Learn(last.told()...)
}

func (w *workspace) release(records []record) error {
	if err := w.save(records); err != nil {
		return err
	}
	var keep []string
	if count := len(records); count > 0 && records[count-1].isOpen() {
		keep = records[count-1].names
	}
	for _, name := range w.cloud.names() {
		if !slices.Contains(keep, name) {
			if err := w.write(func() { w.cloud.release(name, w.now) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// next chooses the best offer that is not left alone, as the planner does.
func (w *workspace) next(records []record) (record, bool) {
	_ = w.memory.Load(w.now, func() ([]refusal.Attempt, error) {
		var all []refusal.Attempt
		for i := range records {
			all = append(all, records[i].told()...)
		}
		return all, nil
	})
	var offers []refusal.Offering
	for _, name := range w.offers {
		offers = append(offers, offer(name))
	}
	excluded := w.memory.Exclusions(w.now, "", offers)
	number := 1
	if len(records) > 0 {
		number = records[len(records)-1].number + 1
	}
	for _, name := range w.offers {
		if !slices.ContainsFunc(excluded, func(e ladder.Exclusion) bool { return e.Offering.InstanceType == name }) {
			w.plan = name // pinned by a revision
			return w.begin(number), true
		}
	}
	at := ladder.Reopens(excluded, func(left []ladder.Exclusion) bool { return len(left) < len(offers) })
	w.wait = at.Sub(w.now)
	return record{}, false
}

func (w *workspace) ask(records []record) error {
	if err := w.save(records); err != nil {
		return err
	}
	last := &records[len(records)-1]
	for _, name := range w.cloud.names() {
		if !slices.Contains(last.names, name) || w.cloud.claims[name].leaves(w.now) {
			return nil // the back end looks before it creates
		}
	}
	for _, name := range last.names {
		if _, existed := last.uids[name]; existed {
			continue
		}
		if err := w.write(func() { w.cloud.ask(name, w.plan, last.number, w.now) }); err != nil {
			return err
		}
		last.uids[name] = w.cloud.claims[name].uid
	}
	return w.save(records)
}

func (w *workspace) isReady() bool {
	count := 0
	for _, known := range w.cloud.claims {
		if known.isUsable(w.now) {
			count++
		}
	}
	return count == w.nodes
}

// TestSimulation drives random scripts of refusals and losses, crashes at writes, lost events and lost
// statuses against the decision, on a clock of its own.
func TestSimulation(t *testing.T) {
	rules, err := refusal.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for seed := range *runs {
		if err := simulate(uint64(seed), rules); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// simulate tells one random story: trouble for some hours, then one offer that works for good.
func simulate(seed uint64, rules refusal.Rules) error {
	random := rand.New(rand.NewPCG(seed, 1))
	c := &cloud{
		random: random, script: map[string]behaviour{}, claims: map[string]*claim{}, events: map[types.UID][]refusal.Event{},
		loses: random.IntN(2) == 0,
	}
	w := &workspace{
		random: random, cloud: c, rules: rules, now: start, nodes: 1 + random.IntN(2), memory: &ladder.Memory{},
		offers: []string{"a", "b", "c"}[:1+random.IntN(3)], crashes: random.IntN(2) == 0,
	}
	w.plan = w.offers[0]
	trouble := start.Add(time.Duration(random.IntN(8*60)) * time.Minute)
	end := trouble.Add(30 * time.Hour)
	healed := false
	for w.now.Before(end) {
		if !healed && !w.now.Before(trouble) {
			healed, w.kept = true, nil
			w.heal()
		} else if !healed {
			w.stir()
		}
		if err := w.turn(); err != nil {
			return err
		}
		if healed && seed%10 != 0 && w.isReady() && c.script[w.plan] == works {
			break // nothing more happens, as every tenth run shows
		}
		w.forward()
	}
	if !w.isReady() {
		return fmt.Errorf("not ready at the end: plan %s, script %v, claims %v, status %+v", w.plan, c.script, c.names(), w.status)
	}
	if most := 40 + 12*c.bought*w.nodes; w.writes > most {
		return fmt.Errorf("%d writes for %d machines, want at most %d", w.writes, c.bought, most)
	}
	return nil
}

// stir changes the cloud's mind now and then, and loses the status rarely.
func (w *workspace) stir() {
	for _, name := range w.offers {
		if w.random.IntN(10) == 0 {
			w.cloud.script[name] = behaviour(w.random.IntN(int(behaviours)))
		}
	}
	w.kept = nil
	if w.random.IntN(60) == 0 {
		w.status = nil
		if w.isReady() && w.cloud.claims[w.cloud.names()[0]].offer == w.plan {
			w.kept = w.cloud.names()
		}
	}
}

// heal has one offer work for good; the others go on as they are, but for those that come and go.
// Somebody mends what must be mended.
func (w *workspace) heal() {
	for _, name := range w.offers {
		if w.cloud.script[name] == dies {
			w.cloud.script[name] = vanishes
		}
	}
	w.cloud.script[w.offers[w.random.IntN(len(w.offers))]] = works
	w.generation++
}

// turn passes until nothing changes, and looks at the cloud all the time.
func (w *workspace) turn() error {
	for range 40 {
		before, bought := w.writes, w.cloud.bought
		isStopped := w.isStopped()
		err := w.pass()
		if isStopped && w.cloud.bought != bought {
			return fmt.Errorf("at %s something was bought although nobody had mended anything", w.now)
		}
		if err != nil && !errors.Is(err, errCrashed) {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
		if err == nil && w.writes == before {
			return nil
		}
	}
	return fmt.Errorf("no end of writes at %s", w.now)
}

// isStopped says whether somebody has to mend something first, as the status has it.
func (w *workspace) isStopped() bool {
	if len(w.status) == 0 {
		return false
	}
	last := &w.status[len(w.status)-1]
	return !last.isOpen() && last.cause == refusal.Misconfigured && last.generation == w.generation
}

// check sees to it that machines of two attempts are never there at once.
func (w *workspace) check() error {
	attempt := 0
	for _, name := range w.cloud.names() {
		known := w.cloud.claims[name]
		if attempt != 0 && known.attempt != attempt {
			return fmt.Errorf("at %s there are machines of two attempts: %v", w.now, w.cloud.names())
		}
		attempt = known.attempt
	}
	for _, name := range w.kept {
		if known, ok := w.cloud.claims[name]; !ok || known.leaves(w.now) {
			return fmt.Errorf("at %s the lost status cost machine %s", w.now, name)
		}
	}
	if len(w.cloud.claims) > w.nodes {
		return fmt.Errorf("at %s there are %d machines, want at most %d", w.now, len(w.cloud.claims), w.nodes)
	}
	return nil
}

// forward goes to when something happens next: in the cloud, by the controller's own wish, or after ten
// minutes, when trouble may change its mind.
func (w *workspace) forward() {
	at := w.now.Add(10 * time.Minute)
	at = ladder.Earliest(at, w.cloud.next(w.now))
	if w.wait > 0 {
		at = ladder.Earliest(at, w.now.Add(w.wait))
	}
	w.now = at
	w.cloud.pass(w.now)
	if len(w.status) > 0 && w.status[len(w.status)-1].cause == refusal.Misconfigured && w.random.IntN(5) == 0 {
		w.generation++ // somebody reads the condition
	}
}
