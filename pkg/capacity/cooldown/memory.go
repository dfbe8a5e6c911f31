// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cooldown remembers what all Workspaces together learned from refusals: which offers nobody asks for now, until
// when, and who asks first after that. It keeps nothing beyond the process: the attempts of all Workspaces rebuild it.
// It must not know how an answer of a cloud is read (package refusal does) or what a Workspace does next.
package cooldown

import (
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// probeLimit is how long others wait for the result of the first request after a cooldown.
const probeLimit = 15 * time.Minute

// Memory holds the refusals of all Workspaces. It is rebuilt from their attempts at the start of the process, and may
// be used from several goroutines.
type Memory struct {
	loading singleflight.Group

	mu        sync.Mutex
	isLoaded  bool
	cooldowns refusal.Cooldowns
	asking    asking
}

// Load has the attempts of all Workspaces loaded once, but for those that a wrong clock dated into the
// future.
func (m *Memory) Load(now time.Time, load func() ([]refusal.Attempt, error)) error {
	m.mu.Lock()
	isLoaded := m.isLoaded
	m.mu.Unlock()
	if isLoaded {
		return nil
	}
	_, err, _ := m.loading.Do("", func() (any, error) {
		attempts, err := load()
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.isLoaded {
			m.learn(now, refusal.Credible(attempts, now))
		}
		m.isLoaded = true
		return nil, nil
	})
	return err
}

// Learn takes in attempts, also those that go on; repeating one changes nothing. It returns the scopes that may have
// opened for others: a machine proved it, or the first to ask again has its answer.
func (m *Memory) Learn(now time.Time, attempts ...refusal.Attempt) (opened []refusal.Scope) {
	if len(attempts) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.learn(now, attempts)
}

func (m *Memory) learn(now time.Time, attempts []refusal.Attempt) (opened []refusal.Scope) {
	for _, attempt := range attempts {
		opened = append(opened, m.cooldowns.Learn(attempt)...)
	}
	for _, attempt := range attempts { // after all refusals
		if attempt.Ended.IsZero() {
			m.ask(now, attempt)
			continue
		}
		opened = append(opened, m.asking.end(attempt.Workspace, attempt.Started)...)
	}
	return opened
}

func (m *Memory) ask(now time.Time, attempt refusal.Attempt) {
	var probes []refusal.Scope
	for _, unproven := range m.cooldowns.Unproven(now, attempt.Asker, attempt.Offering) {
		probes = append(probes, unproven.Scope)
	}
	m.asking.begin(attempt, probes)
}

// Forget removes a Workspace from those that ask: nothing will become of its attempt. It returns the scopes that
// others waited for.
func (m *Memory) Forget(workspace types.UID) (opened []refusal.Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asking.forget(workspace)
}

// Exclusions returns which of the offers a Workspace leaves alone now, in their order: those that are
// cooling down, and those that another one is the first to ask for again.
func (m *Memory) Exclusions(now time.Time, who refusal.Asker, offers iter.Seq[refusal.Offering]) []Exclusion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Exclusion
	for offer := range offers {
		if excluded, ok := m.exclusion(now, who, offer); ok {
			out = append(out, excluded)
		}
	}
	return out
}

// IsOpen says whether a Workspace may ask for one of some offers now.
func (m *Memory) IsOpen(now time.Time, who refusal.Asker, offers []refusal.Offering) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(offers, func(offer refusal.Offering) bool {
		_, isExcluded := m.exclusion(now, who, offer)
		return !isExcluded
	})
}

func (m *Memory) exclusion(now time.Time, who refusal.Asker, offer refusal.Offering) (Exclusion, bool) {
	until, cause, ok := m.cooldowns.Active(now, who, offer)
	if probed, why, isProbed := m.probed(now, who, offer); isProbed && probed.After(until) {
		until, cause, ok = probed, why, true
	}
	return Exclusion{Offering: offer, Until: until, Cause: cause}, ok
}

// Zones returns the zones in which a Workspace leaves an offer alone now that it would take in any.
func (m *Memory) Zones(now time.Time, who refusal.Asker, offer refusal.Offering) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cooldowns.Zones(now, who, offer)
}

// Ask reports whether a Workspace may request an offer now. After a cooldown one asks first, and the others wait for
// its result: they would all be refused at once.
func (m *Memory) Ask(now time.Time, who refusal.Asker, offer refusal.Offering) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, isProbed := m.probed(now, who, offer); isProbed {
		return false
	}
	m.ask(now, refusal.Attempt{Asker: who, Offering: offer, Started: now})
	return true
}

// probed returns until when the offer is left to another Workspace that asks for it first.
func (m *Memory) probed(now time.Time, who refusal.Asker, offer refusal.Offering) (time.Time, refusal.Cause, bool) {
	for _, unproven := range m.cooldowns.Unproven(now, who, offer) {
		if began, ok := m.asking.first(who, unproven); ok && began.Add(probeLimit).After(now) {
			return began.Add(probeLimit), unproven.Cause, true
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
