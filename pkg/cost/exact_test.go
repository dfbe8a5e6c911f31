// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/cost"
)

// sample is the longest time between two looks of a leader.
const sample = time.Minute

// guess is the longest charged time of a machine after an unobserved end.
const guess = 15 * time.Minute

// lag is how long a missing machine is not charged. hidden is the longest time for which lists lack a machine.
const (
	lag    = 5 * time.Minute
	hidden = 2 * sample
)

// billed is a machine with the exact time for which the cloud charges.
type billed struct {
	machine  cost.Machine
	launched time.Time
	// ended is when the machine was gone; zero while it is there.
	ended time.Time
	// hides and shows are the last time in which lists lack the machine.
	hides, shows time.Time
	// doubt is the time that may be missing: the machine ended before a ledger with it was stored.
	doubt time.Duration
	// missed is the time that may be missing because no process ran for longer than the ledger charges.
	missed time.Duration
	// isStored is set once a stored ledger has the machine, after lists lacked it for the last time.
	isStored bool
}

func (b *billed) time(now time.Time) time.Duration {
	if b.ended.IsZero() {
		return now.Sub(b.launched)
	}
	return b.ended.Sub(b.launched)
}

// leader is a process with a ledger in memory. It continues from the stored version.
type leader struct {
	ledger  *cost.Ledger
	version int
	looked  time.Time
	// isFresh is set until the first look at a ledger of another process.
	isFresh bool
}

// payer is a world in which the cloud's bill is known exactly. Lists lack machines for a while, prices and Workspaces
// change, clocks jump, leaders crash and overlap, and writes or their answers are lost.
type payer struct {
	t        *testing.T
	random   *rand.Rand
	now      time.Time
	jump     time.Duration
	machines []*billed
	stored   []byte
	version  int
}

func newPayer(t *testing.T, seed uint64) *payer {
	t.Helper()
	return &payer{t: t, random: rand.New(rand.NewPCG(seed, 13)), now: noon}
}

// live lets a moment pass in which machines begin, change and end.
func (p *payer) live() {
	p.now = p.now.Add(time.Duration(p.random.Int64N(int64(sample / 4))).Truncate(time.Millisecond))
	for _, b := range p.machines {
		if b.ended.IsZero() {
			p.change(b)
		}
	}
	if p.random.IntN(6) == 0 {
		key := chat()
		key.Workspace, key.Labels = fmt.Sprint("model-", len(p.machines)), "team=a"
		p.machines = append(p.machines, &billed{launched: p.now, machine: cost.Machine{
			UID: fmt.Sprint("machine-", len(p.machines)), Key: key, Owned: true, LaunchedAt: p.now,
		}})
	}
}

// change changes one machine.
func (p *payer) change(b *billed) {
	m := &b.machine
	switch p.random.IntN(60) {
	case 0:
		b.ended = p.now
		if !b.isStored { // every process that saw it may crash, or has not yet seen it for long enough
			b.doubt = p.now.Sub(later(b.hides, b.launched)) + sample
		}
	case 1: // the price of its type changes
		m.Key.Price = int64(p.random.IntN(50_000_000))
	case 2, 3, 4:
		m.Serving, m.Since = !m.Serving, p.now
	case 5: // its Workspace is deleted, and perhaps created again with the same name and other labels
		m.Owned, m.Serving, m.Key.Labels = p.random.IntN(2) == 0, false, ""
	case 6:
		if since := later(b.hides, b.launched); p.now.After(since.Add(2 * lag)) {
			b.isStored = false
			b.hides, b.shows = p.now, p.now.Add(time.Duration(p.random.Int64N(int64(hidden))))
		}
	}
}

// clockOf formats a time of the story.
func clockOf(at time.Time) string { return at.Format(time.TimeOnly) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start starts a process, which continues from the stored ledger.
func (p *payer) start() *leader {
	out := &leader{ledger: cost.New(), version: p.version}
	if p.version > 0 {
		out.ledger, out.isFresh = decoded(p.t, p.stored), true
	}
	return out
}

// look is the look of a leader at the machines.
func (p *payer) look(l *leader) {
	step := cost.Step{At: p.now.Add(p.jump)}
	switch {
	case l.isFresh:
		step.Elapsed, step.Gap = l.ledger.Gap(step.At), true
	case !l.looked.IsZero():
		step.Elapsed = p.now.Sub(l.looked)
	}
	for _, b := range p.machines {
		if b.ended.IsZero() && !p.now.Before(b.shows) {
			step.Machines = append(step.Machines, b.machine)
		}
	}
	for _, b := range p.machines {
		if step.Gap && !b.ended.IsZero() {
			b.missed = max(b.missed, step.Elapsed-guess)
		}
	}
	l.ledger.Observe(step)
	l.looked, l.isFresh = p.now, false
}

// write stores the ledger of a leader, unless another one has written since. The answer may be lost.
func (p *payer) write(l *leader) {
	if l.version != p.version {
		*l = *p.start() // it reads the newer ledger
		p.look(l)
		return
	}
	p.stored, p.version = encoded(p.t, l.ledger), p.version+1
	p.stores(l)
	if p.random.IntN(10) > 0 {
		l.version = p.version
	}
}

// stores notes the machines of a ledger that is stored or never lost.
func (p *payer) stores(l *leader) {
	for _, b := range p.machines {
		begun := b.launched
		if !b.hides.IsZero() {
			begun = b.hides.Add(lag + sample)
		}
		b.isStored = b.isStored || b.ended.IsZero() && begun.Before(l.looked)
	}
}

// check compares the charged time of each machine with its bill. A machine is charged until the look that finds it
// gone, which is a sample later at most, unless the ledger reports its end as uncertain. Of a long uncertain time, only a
// part is charged. Less may be charged by a sample, from its launch to its first look.
func (p *payer) check(seed uint64, l *cost.Ledger) {
	p.t.Helper()
	sums := map[string]*cost.Cells{}
	for _, charge := range l.Charges(time.Time{}) {
		if sums[charge.Workspace] == nil {
			sums[charge.Workspace] = &cost.Cells{}
		}
		sums[charge.Workspace].Add(&charge.Cells)
		if whole := charge.Cells.Total().Millis; charge.Cells.Unsure > whole {
			p.t.Fatalf("seed %d: %s has %d ms in %q, and %d ms of them are unsure", seed, charge.Workspace, whole, charge.Period, charge.Cells.Unsure)
		}
	}
	for _, b := range p.machines {
		cells := sums[b.machine.Key.Workspace]
		if cells == nil {
			cells = &cost.Cells{}
		}
		got, want := time.Duration(cells.Total().Millis)*time.Millisecond, b.time(p.now)
		most, fewest := want, want-sample-b.doubt
		if unsure := time.Duration(cells.Unsure) * time.Millisecond; !b.ended.IsZero() {
			most += sample + unsure
			if unsure >= guess {
				fewest -= b.missed
			}
		}
		if got > most || got < fewest {
			p.t.Fatalf("seed %d: %s is charged for %s of %s (uncertain %d ms, doubt %s), launched %s, hidden %s to %s, ended %s",
				seed, b.machine.UID, got, want, cells.Unsure, b.doubt, clockOf(b.launched), clockOf(b.hides), clockOf(b.shows), clockOf(b.ended))
		}
	}
}

// rest lets time pass until every list is complete again.
func (p *payer) rest(l *leader) {
	for _, b := range p.machines {
		b.shows = p.now
	}
	for range 2 * lag / sample {
		p.now = p.now.Add(sample)
		p.look(l)
	}
}

// TestClockJumpsChangeNoTime compares one process with the bill, while its clock jumps.
func TestClockJumpsChangeNoTime(t *testing.T) {
	for seed := range uint64(40) {
		p := newPayer(t, seed)
		l := p.start()
		p.look(l)
		for range 300 {
			if p.random.IntN(30) == 0 {
				p.jump = time.Duration(p.random.Int64N(int64(10*time.Hour))) - 5*time.Hour
			}
			p.live()
			p.look(l)
			p.stores(l)
		}
		p.rest(l)
		p.check(seed, l.ledger)
	}
}

// TestLeadersChargeOnce compares leaders that crash at any write, overlap, and lose answers with the bill.
func TestLeadersChargeOnce(t *testing.T) {
	for seed := range uint64(40) {
		p := newPayer(t, seed)
		leaders := []*leader{p.start()}
		p.look(leaders[0])
		p.write(leaders[0])
		for range 300 {
			p.live()
			for _, l := range leaders {
				p.look(l)
			}
			switch p.random.IntN(20) {
			case 0: // a crash, and a while without a leader
				leaders = nil
				p.now = p.now.Add(time.Duration(p.random.Int64N(int64(guess))).Truncate(time.Millisecond))
			case 1: // another leader begins before the former one has ended
				leaders = append(leaders[max(len(leaders)-1, 0):], p.start())
			case 2, 3, 4, 5, 6, 7, 8:
				if len(leaders) > 0 {
					p.write(leaders[p.random.IntN(len(leaders))])
				}
			}
			if len(leaders) == 0 {
				leaders = []*leader{p.start()}
				p.look(leaders[0])
			}
		}
		last := p.start()
		p.look(last)
		p.rest(last)
		p.check(seed, last.ledger)
	}
}
