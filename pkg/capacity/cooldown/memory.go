// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cooldown remembers the refusals of all Workspaces.
//
// It decides the excluded offers, the end of each exclusion, and the first Workspace to try an offer again. The memory
// is lost with the process, and rebuilt from the attempts of all Workspaces. The package must not depend on the
// messages of clouds (package refusal interprets them), or on a Workspace's next step.
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

// probeLimit is how long other Workspaces wait for the result of the first request after a cooldown.
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

// Load loads the attempts of all Workspaces once, except those with times in the future from a wrong clock.
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

// Learn records attempts, including open ones. A repeated attempt changes nothing. Learn returns the scopes that may
// be open again for others, because a machine disproved the refusal, or because the first new request has its result.
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

// Forget ends the probe of a Workspace whose attempt will not continue. It returns the scopes of the probe.
func (m *Memory) Forget(workspace types.UID) (opened []refusal.Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asking.forget(workspace)
}

// Exclusions returns those offers, in the same order, that a Workspace must not request now: they are cooling down, or
// another Workspace is the first to request them again.
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

// IsOpen reports whether a Workspace may request one of these offers now.
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

// Zones returns the zones to exclude for a Workspace whose offer allows any zone.
func (m *Memory) Zones(now time.Time, who refusal.Asker, offer refusal.Offering) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cooldowns.Zones(now, who, offer)
}

// Ask reports whether a Workspace may request an offer now. After a cooldown, one Workspace tries first, and the others
// wait for its result, because otherwise all of them might be refused at once.
func (m *Memory) Ask(now time.Time, who refusal.Asker, offer refusal.Offering) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, isProbed := m.probed(now, who, offer); isProbed {
		return false
	}
	m.ask(now, refusal.Attempt{Asker: who, Offering: offer, Started: now})
	return true
}

// probed returns when another Workspace's reservation of an offer for its probe ends.
func (m *Memory) probed(now time.Time, who refusal.Asker, offer refusal.Offering) (time.Time, refusal.Cause, bool) {
	for _, unproven := range m.cooldowns.Unproven(now, who, offer) {
		if began, ok := m.asking.requestedSince(who, unproven); ok && began.Add(probeLimit).After(now) {
			return began.Add(probeLimit), unproven.Cause, true
		}
	}
	return time.Time{}, refusal.None, false
}

// Active returns the number of scopes that are cooling down now.
func (m *Memory) Active(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	isSame := func(a, b refusal.Cooldown) bool { return a.Scope == b.Scope } // cooldowns of several Workspaces
	return len(slices.CompactFunc(m.cooldowns.List(now), isSame))
}
