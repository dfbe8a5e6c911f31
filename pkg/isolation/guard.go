// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Policy says when several machines may serve one model.
type Policy string

// Policies.
const (
	// Disabled: never.
	Disabled Policy = "Disabled"
	// RequireEnforcement: only if a probe shows that the network keeps other pods from the group.
	RequireEnforcement Policy = "RequireEnforcement"
	// Allow: always.
	Allow Policy = "Allow"
)

// Policies returns all policies.
func Policies() []Policy { return []Policy{Disabled, RequireEnforcement, Allow} }

const (
	// exposedFor is how long an exposed group prevents buying other groups in its namespace.
	exposedFor = 24 * time.Hour
	// mostProbes is the largest number of groups under probe at once.
	mostProbes = 4
)

// Group is the name of a group of pods.
type Group struct{ Namespace, Name string }

// exposure is the evidence that other pods reached a group.
type exposure struct {
	message string
	at      time.Time
}

// Guard applies a policy to groups. It is safe for concurrent use. A nil Guard allows everything.
//
// A finding counts only in the namespace of its group. A NetworkPolicy of that namespace may have opened the group, so
// the finding proves nothing about other namespaces, and its evidence names pods.
type Guard struct {
	policy Policy
	probe  func(context.Context, []Member) Finding
	clock  clock.PassiveClock
	// probing has an entry for each running probe of a group.
	probing chan struct{}

	mu      sync.Mutex
	exposed map[Group]exposure
}

// NewGuard returns a Guard that uses a probe function, such as Prober.Probe.
func NewGuard(policy Policy, probe func(context.Context, []Member) Finding, c clock.PassiveClock) *Guard {
	return &Guard{policy: policy, probe: probe, clock: c, probing: make(chan struct{}, mostProbes), exposed: map[Group]exposure{}}
}

// HoldsGroups reports whether the engines of a new group wait until a probe finds the group isolated.
func (g *Guard) HoldsGroups() bool { return g != nil && g.policy != Allow }

// Refusal explains why no group may be bought in a namespace now; empty if groups may be bought.
func (g *Guard) Refusal(namespace string) string {
	if g == nil || g.policy == Allow {
		return ""
	}
	if g.policy == Disabled {
		return "the administrator does not allow models on several machines (multiNode: Disabled)"
	}
	return g.describe(func(group Group) bool { return group.Namespace == namespace })
}

// Exposure describes how a group was exposed within the last day; empty if it was not, or if a group of its namespace
// was found isolated since.
func (g *Guard) Exposure(of Group) string {
	return g.describe(func(group Group) bool { return group == of })
}

// describe returns the latest evidence against the groups that match.
func (g *Guard) describe(matches func(Group) bool) string {
	if !g.HoldsGroups() {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var latest exposure
	for group, found := range g.exposed {
		isLater := found.at.After(latest.at) || found.at.Equal(latest.at) && found.message < latest.message
		if matches(group) && g.isFresh(found) && (latest.message == "" || isLater) {
			latest = found
		}
	}
	if latest.message == "" {
		return ""
	}
	return "other pods can reach the groups of this namespace (" + latest.message + ")"
}

func (g *Guard) isFresh(found exposure) bool { return g.clock.Since(found.at) < exposedFor }

// Check probes a group, and forgets the namespace's evidence if the group is isolated. It returns false if too many
// other probes are running.
func (g *Guard) Check(ctx context.Context, group Group, members []Member) (Finding, bool) {
	if !g.HoldsGroups() {
		return Finding{Outcome: Isolated}, true
	}
	select {
	case g.probing <- struct{}{}:
		defer func() { <-g.probing }()
	default:
		return Finding{}, false
	}
	found := g.probe(ctx, members)
	if found.Outcome == Isolated {
		g.Forget(group.Namespace)
	}
	return found, true
}

// Expose records an exposed group, so that no other group of its namespace is bought for a while.
func (g *Guard) Expose(group Group, found Finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.exposed, func(_ Group, known exposure) bool { return !g.isFresh(known) })
	g.exposed[group] = exposure{found.Message, g.clock.Now()}
}

// Forget drops the evidence in a namespace, so that groups may be bought there again.
func (g *Guard) Forget(namespace string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.exposed, func(group Group, _ exposure) bool { return group.Namespace == namespace })
}
