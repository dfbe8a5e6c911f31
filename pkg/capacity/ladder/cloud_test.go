// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// behaviour is what the scripted cloud does with claims for one machine type.
type behaviour int

const (
	works behaviour = iota
	vanishes
	refusesQuota
	hangs
	neverJoins
	neverShows
	dies
	behaviours
)

// claim is one machine in the scripted cloud.
type claim struct {
	name    string
	uid     types.UID
	attempt int
	offer   string
	created time.Time
	does    behaviour
	// goes is when it is on its way out, gone when it is away; zero is never.
	goes, gone time.Time
}

// cloud answers claims by the clock.
type cloud struct {
	random *rand.Rand
	script map[string]behaviour
	claims map[string]*claim
	events map[types.UID][]refusal.Event
	loses  bool // events
	bought int
}

// Times of the scripted cloud.
const (
	launchTime  = 20 * time.Second
	joinTime    = 2 * time.Minute
	showTime    = 4 * time.Minute
	lifeTime    = 90 * time.Minute
	leavingTime = 30 * time.Second
)

func (c *cloud) ask(name, offer string, attempt int, now time.Time) types.UID {
	if known, ok := c.claims[name]; ok {
		return known.uid
	}
	c.bought++
	made := &claim{
		name: name, uid: types.UID(fmt.Sprintf("uid-%d", c.bought)), attempt: attempt, offer: offer, created: now, does: c.script[offer],
	}
	switch made.does {
	case vanishes:
		made.goes = now.Add(launchTime)
		if !c.loses {
			c.events[made.uid] = []refusal.Event{{
				UID: made.uid, Reason: "InsufficientCapacityError", At: made.goes,
				Message: "NodeClaim x event: insufficient capacity, all requested instance types were unavailable during launch",
			}}
		}
	case hangs: // Karpenter gives it up
		made.goes = now.Add(5 * time.Minute)
	case neverJoins:
		made.goes = now.Add(15 * time.Minute)
	case dies:
		made.goes = now.Add(lifeTime)
	}
	if !made.goes.IsZero() {
		made.gone = made.goes.Add(time.Duration(c.random.IntN(20)) * time.Second)
	}
	c.claims[name] = made
	return made.uid
}

func (c *cloud) release(name string, now time.Time) {
	if known, ok := c.claims[name]; ok && !known.leaves(now) {
		known.goes, known.gone = now, now.Add(leavingTime)
	}
}

// pass lets what is due happen.
func (c *cloud) pass(now time.Time) {
	maps.DeleteFunc(c.claims, func(_ string, known *claim) bool { return !known.gone.IsZero() && !now.Before(known.gone) })
}

func (c *claim) leaves(now time.Time) bool { return !c.goes.IsZero() && !now.Before(c.goes) }

func (c *claim) reached(after time.Duration, now time.Time) bool {
	return !now.Before(c.created.Add(after))
}

func (c *claim) isUsable(now time.Time) bool {
	return (c.does == works || c.does == dies) && c.reached(showTime, now) && !c.leaves(now)
}

// observe is what a controller sees of a claim that is there.
func (c *claim) observe(seen *refusal.Observation, now time.Time) {
	is := func(yes bool, since time.Duration) refusal.Condition {
		if yes {
			return refusal.Condition{Status: refusal.StatusTrue, Since: c.created.Add(since)}
		}
		return refusal.Condition{Status: refusal.StatusUnknown, Reason: "AwaitingReconciliation", Since: c.created}
	}
	seen.UID, seen.CreatedAt = c.uid, c.created
	if c.leaves(now) {
		seen.GoneAt = c.goes
	}
	seen.Launched = is(c.does != vanishes && c.does != refusesQuota && c.does != hangs && c.reached(launchTime, now), launchTime)
	joins := c.does == works || c.does == dies || c.does == neverShows
	seen.Registered = is(joins && c.reached(joinTime, now), joinTime)
	seen.Initialized = is((c.does == works || c.does == dies) && c.reached(showTime, now), showTime)
	if seen.Initialized.Status == refusal.StatusTrue {
		seen.GPUs = 1
	}
	if c.does == refusesQuota && c.reached(launchTime, now) {
		seen.Launched = refusal.Condition{
			Status: refusal.StatusUnknown, Reason: "SubscriptionQuotaReached", Since: c.created,
			Message: "subscription level on-demand vCPU quota for " + c.offer + " has been reached (may try provision an alternative instance type)",
		}
	}
}

// next is when something happens in the cloud by itself; zero is never.
func (c *cloud) next(now time.Time) time.Time {
	var at time.Time
	for _, known := range c.claims {
		moments := []time.Time{known.goes, known.gone}
		for _, after := range []time.Duration{launchTime, joinTime, showTime} {
			moments = append(moments, known.created.Add(after))
		}
		for _, moment := range moments {
			if moment.After(now) {
				at = ladder.Earliest(at, moment)
			}
		}
	}
	return at
}

// names are those of all claims, in order.
func (c *cloud) names() []string { return slices.Sorted(maps.Keys(c.claims)) }
