// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
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
	// RequireEnforcement: only if the network is verified to keep other pods from the group.
	RequireEnforcement Policy = "RequireEnforcement"
	// Allow: always.
	Allow Policy = "Allow"
)

// Policies are all of them.
func Policies() []Policy { return []Policy{Disabled, RequireEnforcement, Allow} }

const (
	// exposedFor is how long one exposed group prevents the purchase of others. After repairing the network,
	// restart the controller, or let a delayed group be probed again.
	exposedFor = 24 * time.Hour
	// mostProbes is how many groups are probed at once.
	mostProbes = 4
)

// Guard applies a policy to groups. It is safe for concurrent use; nil allows everything.
type Guard struct {
	policy Policy
	probe  func(context.Context, []Member) Finding
	clock  clock.PassiveClock
	// probing has an entry for each running probe of a group.
	probing chan struct{}

	mu      sync.Mutex
	exposed string
	at      time.Time
}

// NewGuard returns a Guard with a probe function such as Prober.Probe.
func NewGuard(policy Policy, probe func(context.Context, []Member) Finding, c clock.PassiveClock) *Guard {
	return &Guard{policy: policy, probe: probe, clock: c, probing: make(chan struct{}, mostProbes)}
}

// HoldsGroups reports whether the engines of new groups wait until they are found isolated.
func (g *Guard) HoldsGroups() bool { return g != nil && g.policy != Allow }

// Refusal says in words why no group may be bought now; empty if one may.
func (g *Guard) Refusal() string {
	if g == nil || g.policy == Allow {
		return ""
	}
	if g.policy == Disabled {
		return "the administrator has turned models on several machines off (multiNode: Disabled)"
	}
	return g.Exposure()
}

// Exposure describes a group found exposed within a day; empty if there is none, or one was found isolated since.
func (g *Guard) Exposure() string {
	if !g.HoldsGroups() {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.exposed == "" || g.clock.Since(g.at) >= exposedFor {
		return ""
	}
	return "the cluster does not enforce NetworkPolicies (" + g.exposed + ")"
}

// Check probes a group and remembers the result; false if too many other probes are running.
func (g *Guard) Check(ctx context.Context, members []Member) (Finding, bool) {
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
	g.mu.Lock()
	defer g.mu.Unlock()
	if found.Outcome == Isolated {
		g.exposed = ""
	}
	return found, true
}

// Expose remembers an exposed group: others are not bought for a while.
func (g *Guard) Expose(found Finding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exposed, g.at = found.Message, g.clock.Now()
}
