// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Shards is the number of ConfigMaps of a ledger. A Workspace's hash selects its ConfigMap.
const Shards = 16

const (
	// mostGuess is the longest time charged for a machine that was found gone after a gap in the observation.
	mostGuess = 15 * time.Minute
	// slack is how long a cache may take to show a launched machine.
	slack = time.Minute
	// mostLag is how long a lagging cache may show a deleted machine. A machine that is shown later exists.
	mostLag = 5 * time.Minute
	// keptGone is how long ended machines are remembered, and mostGone how many: a lagging cache must not bring them back.
	keptGone = time.Hour
	mostGone = 256
	// mostDrift is the largest difference between the clock and the elapsed time. A larger one is a jump of the clock.
	mostDrift = time.Minute
)

// Machine is a paid machine as observed.
type Machine struct {
	UID string
	Key Key
	// Owned is set if the machine's Workspace exists, or if the machine is being deleted.
	Owned bool
	// Serving is set if a model answers on it. Served is set if a model has answered on it before.
	Serving, Served bool
	// Since is when Serving last changed; zero if unknown.
	Since time.Time
	// LaunchedAt is when the cloud began to charge for the machine; zero if unknown.
	LaunchedAt time.Time
}

// Step is one observation of all machines of a ledger.
type Step struct {
	// At is the time of the clock. It decides only which period the time belongs to.
	At time.Time
	// Elapsed is the time since the last observation, by a clock without jumps. Only whole milliseconds count.
	Elapsed time.Duration
	// Gap is set if no process watched in the elapsed time, because the last observation was by an earlier process.
	Gap      bool
	Machines []Machine
	// isRestored is set if the ledger comes from a copy. For a machine that the copy does not list, no time before the
	// copy is charged: the totals in the copy may already include it.
	isRestored bool
}

// reach returns how long before an observation the earliest of its new machines may have been launched.
func (s *Step) reach() time.Duration {
	if s.isRestored {
		return s.Elapsed
	}
	return s.Elapsed + slack
}

// record is an open machine with its unsettled time. A change of state settles that time.
type record struct {
	key    Key
	state  State
	served bool
	from   time.Time
	millis int64
	// launched is when the cloud began to charge for the machine; zero if unknown.
	launched time.Time
}

// ended has the end and the launch of a deleted machine.
type ended struct {
	at, launched time.Time
	served       bool
	// age is the time since the end. unsure is the uncharged time before it, while no controller watched.
	age, unsure time.Duration
	// isShown is set if the last observation has the machine again.
	isShown bool
}

// isSame reports whether an observed machine with the same UID is still the ended one, from a lagging cache. If so, the
// launch times are equal. If one of them is unknown, isSame compares the launch with the end. This is less exact,
// because launch times have whole seconds and come from another clock.
func (e *ended) isSame(m *Machine) bool {
	if m.LaunchedAt.IsZero() || e.launched.IsZero() {
		return !m.LaunchedAt.After(e.at)
	}
	return m.LaunchedAt.Equal(e.launched)
}

// Ledger is the state of all accounts. It is not safe for concurrent use.
type Ledger struct {
	// Seen is the time of the last observation of the machines; zero for a new ledger.
	Seen     time.Time
	accounts map[Key]periods
	machines map[string]*record
	gone     map[string]*ended
	engines  map[Name]*engine
	// steady is a clock that never runs ahead of the elapsed time.
	steady time.Time
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{
		accounts: map[Key]periods{}, machines: map[string]*record{}, gone: map[string]*ended{}, engines: map[Name]*engine{},
	}
}

// Gap returns the time since the last observation. It is 0 for a new ledger, or if the clock is behind.
func (l *Ledger) Gap(now time.Time) time.Duration {
	if l.Seen.IsZero() {
		return 0
	}
	return max(now.Sub(l.Seen), 0)
}

// IsOpen reports whether any machine is being paid for, or may have to be.
func (l *Ledger) IsOpen() bool {
	for _, e := range l.gone {
		if e.isShown {
			return true
		}
	}
	return len(l.machines) > 0
}

// Result describes the changes since the last observation.
type Result struct {
	// IsUrgent is set if a machine is new or gone. The cluster deletes its object at its end, and then only the ledger has
	// it.
	IsUrgent bool
	// Changed is set if anything is different from before.
	Changed bool
}

// Observe records the time since the last observation. If an observation is repeated, the repetition records nothing.
func (l *Ledger) Observe(step Step) Result {
	step.Elapsed = max(step.Elapsed, 0)
	isNew := l.Seen.IsZero()
	var out Result
	present := map[string]bool{}
	for _, e := range l.gone {
		e.age, e.isShown = e.age+step.Elapsed, false
	}
	for i := range step.Machines {
		m := &step.Machines[i]
		if present[m.UID] {
			continue
		}
		present[m.UID] = true
		result := l.meet(m, &step, isNew)
		out.IsUrgent, out.Changed = out.IsUrgent || result.IsUrgent, out.Changed || result.Changed
	}
	for _, uid := range slices.Sorted(maps.Keys(l.machines)) {
		if !present[uid] {
			l.end(uid, &step)
			out.IsUrgent, out.Changed = true, true
		}
	}
	l.Seen = l.settle(&step)
	return out
}

// meet records one observed machine.
func (l *Ledger) meet(m *Machine, step *Step, isNew bool) Result {
	known, former := l.machines[m.UID], l.gone[m.UID]
	switch {
	case known == nil && former != nil && former.isSame(m):
		return Result{Changed: l.show(former, m, step)}
	case known == nil:
		l.machines[m.UID] = l.begin(m, step, isNew)
		return Result{IsUrgent: true, Changed: true}
	case !known.launched.IsZero() && m.LaunchedAt.After(known.launched):
		l.succeed(m, step)
		return Result{IsUrgent: true, Changed: true}
	case !m.LaunchedAt.IsZero():
		known.launched = m.LaunchedAt
	}
	return Result{Changed: l.advance(known, m, step)}
}

// begin opens a machine. In a ledger with an earlier observation, the machine was launched after that observation,
// unless the cache was late.
func (l *Ledger) begin(m *Machine, step *Step, isNew bool) *record {
	age := time.Duration(0)
	if !m.LaunchedAt.IsZero() {
		age = max(l.clock(step).Sub(m.LaunchedAt), 0)
		if !isNew {
			age = min(age, step.reach())
		}
	}
	out := &record{key: m.Key, from: step.At.Add(-age), millis: age.Milliseconds(), launched: m.LaunchedAt}
	l.enter(out, m, step)
	return out
}

// enter sets the first state of a machine.
func (l *Ledger) enter(out *record, m *Machine, step *Step) {
	switch out.next(m) {
	case Starting:
	case Leaked: // since an unknown time
		out.state = Leaked
	case Idle: // it served before this ledger had it
		l.turnAs(Serving, out, m, step)
	default:
		l.turn(out, m, step)
	}
}

// clock returns the time of an observation by a clock that does not jump ahead.
func (l *Ledger) clock(step *Step) time.Time {
	if step.Gap || l.steady.IsZero() {
		return step.At
	}
	return earlier(l.steady.Add(step.Elapsed), step.At)
}

// succeed ends a machine whose UID now belongs to a later one, such as another pod of a StatefulSet. The time between
// the observations is shared between the two.
func (l *Ledger) succeed(m *Machine, step *Step) {
	age := min(max(l.clock(step).Sub(m.LaunchedAt), 0), step.Elapsed).Truncate(time.Millisecond)
	before := *step
	before.At, before.Elapsed = step.At.Add(-age), step.Elapsed-age
	l.end(m.UID, &before)
	delete(l.gone, m.UID)
	next := &record{key: m.Key, from: before.At, millis: age.Milliseconds(), launched: m.LaunchedAt}
	l.enter(next, m, step)
	l.machines[m.UID] = next
}

// show notes that an ended machine is shown again. If it ended longer ago than any cache lags, the lists lacked it by
// mistake, and the time since then is charged. show reports whether it is.
func (l *Ledger) show(former *ended, m *Machine, step *Step) bool {
	former.isShown = true
	if former.age < mostLag {
		return false
	}
	missing := former.age + former.unsure
	back := &record{key: m.Key, served: former.served, from: step.At.Add(-missing), millis: missing.Milliseconds(), launched: m.LaunchedAt}
	back.state = back.next(m)
	back.served = back.served || back.state == Serving
	delete(l.gone, m.UID)
	l.machines[m.UID] = back
	return true
}

// advance charges the time since the last observation. It reports whether anything changed.
func (l *Ledger) advance(r *record, m *Machine, step *Step) bool {
	elapsed := step.Elapsed
	if step.Gap && !r.launched.IsZero() { // the clock may have jumped while no controller watched
		elapsed = min(elapsed, max(step.At.Sub(r.launched)-time.Duration(r.millis)*time.Millisecond, 0))
	}
	millis := elapsed.Milliseconds()
	if r.millis == 0 {
		r.from = step.At.Add(-step.Elapsed)
	}
	r.millis += millis
	if r.next(m) == r.state && m.Key == r.key {
		l.anchor(r, step)
		return millis > 0
	}
	l.turn(r, m, step)
	return true
}

// turn settles the open time before a change of state for the previous state. The time after the change stays open for
// the new state.
func (l *Ledger) turn(r *record, m *Machine, step *Step) { l.turnAs(r.state, r, m, step) }

// turnAs is turn with another previous state.
func (l *Ledger) turnAs(former State, r *record, m *Machine, step *Step) {
	after := int64(0)
	if !m.Since.IsZero() && m.Key == r.key && m.Owned {
		recent := r.millis
		if r.state != Starting { // the state of the last observation lasted at least until then
			recent = min(recent, step.Elapsed.Milliseconds())
		}
		after = min(max(step.At.Sub(m.Since).Milliseconds(), 0), recent)
	}
	r.millis -= after
	next := r.next(m)
	l.flush(r, former, step)
	r.key, r.state, r.served = m.Key, next, r.served || m.Served || next == Serving
	r.from, r.millis = step.At.Add(-time.Duration(after)*time.Millisecond), after
}

// next returns the state of a machine as observed.
func (r *record) next(m *Machine) State {
	switch {
	case !m.Owned:
		return Leaked
	case m.Serving:
		return Serving
	case r.served || m.Served:
		return Idle
	default:
		return Starting
	}
}

// drift reports whether the clock has jumped since the record began.
func (r *record) drift(step *Step) bool {
	off := step.At.Sub(r.from) - time.Duration(r.millis)*time.Millisecond
	return off > mostDrift || off < -mostDrift
}

// anchor moves the open time to the current clock after a jump. The time of a starting machine stays open, because it
// may turn out to be wasted.
func (l *Ledger) anchor(r *record, step *Step) {
	switch {
	case !r.drift(step):
	case r.state == Starting:
		r.from = step.At.Add(-time.Duration(r.millis) * time.Millisecond)
	default:
		l.flush(r, r.state, step)
	}
}

// end closes a deleted machine.
func (l *Ledger) end(uid string, step *Step) {
	r := l.machines[uid]
	last, guess := step.Elapsed, int64(0)
	if step.Gap {
		last = min(last, mostGuess)
		guess = last.Milliseconds()
	}
	if r.millis == 0 {
		r.from = step.At.Add(-step.Elapsed)
	}
	r.millis += last.Milliseconds()
	state := r.state
	if state == Starting {
		state = Wasted
	}
	r.doubt(l.account(r.key), guess, horizonAt(step.At))
	l.flush(r, state, step)
	delete(l.machines, uid)
	l.gone[uid] = &ended{at: step.At, launched: r.launched, served: r.served, unsure: step.Elapsed - last}
}

// doubt marks the last part of the open time as unsure, in the periods that this part is charged to.
func (r *record) doubt(account periods, guess int64, h horizon) {
	if guess == 0 {
		return
	}
	sure := r.millis - guess
	h.spread(r.from, r.millis, func(label string, millis int64) {
		seen := min(millis, sure)
		sure -= seen
		if left := millis - seen; left > 0 {
			cells := account.at(label)
			cells.Unsure = sum(cells.Unsure, left)
		}
	})
}

// flush settles the open time of a machine for a state.
func (l *Ledger) flush(r *record, state State, step *Step) {
	h := horizonAt(step.At)
	r.charge(l.account(r.key), state, &h)
	r.from, r.millis = step.At, 0
}

// charge adds the open time to an account for a state.
func (r *record) charge(account periods, state State, h *horizon) {
	h.spread(r.from, r.millis, func(label string, millis int64) {
		cell := account.at(label).of(state)
		*cell = cell.plus(amount(millis, r.key.Price))
	})
}

func (l *Ledger) account(key Key) periods {
	account := l.accounts[key]
	if account == nil {
		account = periods{}
		l.accounts[key] = account
	}
	return account
}

// settle merges old periods into coarser ones, and returns the time of this observation. It measures age by elapsed
// time. A clock that jumps ahead then merges nothing too early.
func (l *Ledger) settle(step *Step) time.Time {
	maps.DeleteFunc(l.gone, func(_ string, e *ended) bool { return e.age > keptGone })
	l.trimGone(mostGone)
	l.steady = l.clock(step)
	h := horizonAt(l.steady)
	for _, account := range l.accounts {
		account.compact(&h)
	}
	return step.At
}

// trimGone keeps at most that many machines: those that ended last.
func (l *Ledger) trimGone(most int) {
	if len(l.gone) <= most {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(l.gone), func(a, b string) int {
		if order := l.gone[a].at.Compare(l.gone[b].at); order != 0 {
			return order
		}
		return strings.Compare(a, b)
	})
	for _, uid := range oldest[:len(oldest)-most] {
		delete(l.gone, uid)
	}
}
