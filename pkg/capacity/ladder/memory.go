// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"slices"
	"sync"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Memory is what all Workspaces together know of refusals. It is rebuilt from their attempts when
// the process starts, and may be used from several goroutines.
type Memory struct {
	mu        sync.Mutex
	isLoaded  bool
	cooldowns refusal.Cooldowns
}

// Learn takes in attempts; to tell one twice changes nothing.
func (m *Memory) Learn(attempts ...refusal.Attempt) {
	if len(attempts) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cooldowns = m.cooldowns.With(attempts...)
}

// Cooldowns returns what is known. The first call has the attempts of all Workspaces loaded, but for
// those that a wrong clock dated into the future.
func (m *Memory) Cooldowns(now time.Time, load func() ([]refusal.Attempt, error)) (refusal.Cooldowns, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isLoaded {
		return m.cooldowns, nil
	}
	attempts, err := load()
	if err != nil {
		return refusal.Cooldowns{}, err
	}
	m.cooldowns, m.isLoaded = m.cooldowns.With(refusal.Credible(attempts, now)...), true
	return m.cooldowns, nil
}

// Active is how many offers are left alone now.
func (m *Memory) Active(now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	isSame := func(a, b refusal.Cooldown) bool { return a.Scope == b.Scope } // of several Workspaces
	return len(slices.CompactFunc(m.cooldowns.List(now), isSame))
}
