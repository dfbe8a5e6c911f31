// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// probeLimit is how long others wait for what becomes of the first to ask again after a cooldown.
const probeLimit = 15 * time.Minute

// Memory is what all Workspaces together know of refusals. It is rebuilt from their attempts when
// the process starts, and may be used from several goroutines.
type Memory struct {
	mu        sync.Mutex
	isLoaded  bool
	cooldowns refusal.Cooldowns
	// asking are the attempts that go on and have not got their machines, by Workspace.
	asking map[types.UID]refusal.Attempt
}

// Load has the attempts of all Workspaces loaded once, but for those that a wrong clock dated into the
// future.
func (m *Memory) Load(now time.Time, load func() ([]refusal.Attempt, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isLoaded {
		return nil
	}
	attempts, err := load()
	if err != nil {
		return err
	}
	m.learn(refusal.Credible(attempts, now))
	m.isLoaded = true
	return nil
}

// Learn takes in attempts, also those that go on; to tell one twice changes nothing.
func (m *Memory) Learn(attempts ...refusal.Attempt) {
	if len(attempts) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(attempts)
}

func (m *Memory) learn(attempts []refusal.Attempt) {
	m.cooldowns = m.cooldowns.With(attempts...)
	for _, attempt := range attempts {
		known, isKnown := m.asking[attempt.Workspace]
		switch {
		case attempt.Ended.IsZero():
			m.ask(attempt)
		case isKnown && !attempt.Started.Before(known.Started.Truncate(time.Second)):
			delete(m.asking, attempt.Workspace)
		}
	}
}

func (m *Memory) ask(attempt refusal.Attempt) {
	if m.asking == nil {
		m.asking = map[types.UID]refusal.Attempt{}
	}
	m.asking[attempt.Workspace] = attempt
}

// Forget takes a Workspace off those that ask: nothing will become of its attempt.
func (m *Memory) Forget(workspace types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asking, workspace)
}

// Exclusions returns which of the offers a Workspace leaves alone now, in their order: those that are
// cooling down, and those that another one is the first to ask for again.
func (m *Memory) Exclusions(now time.Time, workspace types.UID, offers iter.Seq[refusal.Offering]) []Exclusion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Exclusion
	for offer := range offers {
		until, cause, ok := m.cooldowns.Active(now, workspace, offer)
		if probed, why, isProbed := m.probed(now, workspace, offer); isProbed && probed.After(until) {
			until, cause, ok = probed, why, true
		}
		if ok {
			out = append(out, Exclusion{Offering: offer, Until: until, Cause: cause})
		}
	}
	return out
}

// Zones returns the zones in which a Workspace leaves an offer alone now that it would take in any.
func (m *Memory) Zones(now time.Time, workspace types.UID, offer refusal.Offering) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cooldowns.Zones(now, workspace, offer)
}

// Ask says whether a Workspace may ask for an offer now. After a cooldown one asks first, and the others
// wait for what becomes of it: they would all be refused at once.
func (m *Memory) Ask(now time.Time, workspace types.UID, offer refusal.Offering) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, isProbed := m.probed(now, workspace, offer); isProbed {
		return false
	}
	m.ask(refusal.Attempt{Workspace: workspace, Offering: offer, Started: now})
	return true
}

// probed returns until when the offer is left to another Workspace that asks for it first.
func (m *Memory) probed(now time.Time, workspace types.UID, offer refusal.Offering) (time.Time, refusal.Cause, bool) {
	for _, unproven := range m.cooldowns.Unproven(now, offer) {
		for _, other := range slices.Sorted(maps.Keys(m.asking)) {
			attempt := m.asking[other]
			until := attempt.Started.Add(probeLimit)
			isProbe := other != workspace && unproven.Scope.Covers(attempt.Offering) && !attempt.Started.Before(unproven.Until)
			if isProbe && until.After(now) {
				return until, unproven.Cause, true
			}
		}
	}
	return time.Time{}, refusal.None, false
}

// Active is how many offers are left alone now.
func (m *Memory) Active(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	isSame := func(a, b refusal.Cooldown) bool { return a.Scope == b.Scope } // of several Workspaces
	return len(slices.CompactFunc(m.cooldowns.List(now), isSame))
}
