// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// mostHistories bounds the kept histories: a tenant can make up any number of zone names.
const mostHistories = 4096

// Cooldowns remembers refused offers. The zero Cooldowns is empty. The cost of a repeated Learn of the same attempt
// does not depend on the size of the memory. Cooldowns is not safe for concurrent use.
type Cooldowns struct {
	// places are the histories, by the names of their scopes. An offer has at most three such names.
	places map[string]places
	size   int
	// got and launched are the latest starts of attempts with usable machines, and of attempts with a launched
	// machine.
	got, launched since
}

// since are times by the scopes around the requested offering.
type since map[Scope]time.Time

// places are the histories of scopes with one name. The capacity type of these scopes is empty.
type places map[Scope]map[audience]*history

// audience are the Workspaces that a cooldown applies to.
type audience struct {
	reach reach
	Asker
}

type reach int

const (
	everybody reach = iota
	oneNamespace
	oneWorkspace
)

// audiences returns the audiences that an asker belongs to.
func (who Asker) audiences() [3]audience {
	return [3]audience{
		{},
		{reach: oneNamespace, Asker: Asker{Namespace: who.Namespace}},
		{reach: oneWorkspace, Asker: who},
	}
}

// NewCooldowns returns a memory of attempts, for example of all attempts in the Workspaces' statuses.
func NewCooldowns(attempts []Attempt) *Cooldowns {
	out := &Cooldowns{}
	for _, attempt := range attempts {
		out.Learn(attempt)
	}
	return out
}

// Learn adds one attempt; the order of attempts does not matter. It returns the scopes that the attempt proves to
// be open again.
func (c *Cooldowns) Learn(a Attempt) (opened []Scope) {
	switch {
	case a.Ended.IsZero() && a.Launched:
		if c.launched == nil {
			c.launched = since{}
		}
		return c.prove(c.launched, a)
	case a.Ended.IsZero():
		return nil
	case a.Cause == None:
		if c.got == nil {
			c.got = since{}
		}
		return c.prove(c.got, a)
	case a.Cooldown <= 0:
		return nil // Misconfigured: it affects no other Workspace, and time does not help
	}
	for _, who := range a.audiences() {
		if a.Guessed == (who.reach != everybody) {
			c.refuse(who, a)
		}
	}
	return nil
}

// refuse adds a refusal to the history of an audience.
func (c *Cooldowns) refuse(who audience, a Attempt) {
	place := a.Scope
	place.CapacityType = ""
	known := c.places[place.Name][place][who]
	if known == nil {
		known = &history{needsTwo: who.reach == oneNamespace}
		c.keep(place, who, known)
	}
	if known.add(a) {
		known.settle(c.proofsOf(place))
	}
}

// prove records that the requested offering is available.
func (c *Cooldowns) prove(proved since, a Attempt) (opened []Scope) {
	at := a.Started
	if !a.Ended.After(at) {
		// A status has whole seconds. The order of this proof and a refusal in the same second is unknown, and a
		// launched machine may even belong to the refused attempt.
		at = at.Add(-time.Nanosecond)
	}
	for _, scope := range scopesAround(a.Offering) {
		if known, ok := proved[scope]; ok && !at.After(known) {
			continue
		}
		proved[scope] = at
		place := scope
		place.CapacityType = ""
		for _, known := range c.places[place.Name][place] {
			before := known.now.cooldowns
			known.settle(c.proofsOf(place))
			if len(known.now.cooldowns) < len(before) && !slices.Contains(opened, scope) {
				opened = append(opened, scope)
			}
		}
	}
	if len(proved) > mostHistories {
		proved.dropOlder()
	}
	return opened
}

// proofsOf returns a function for the time until which refusals at a place have been disproved.
func (c *Cooldowns) proofsOf(place Scope) proofs {
	return func(cause Cause, capacityType v1beta1.CapacityType) time.Time {
		scope := place
		scope.CapacityType = capacityType
		until := c.got[scope]
		if cause.isOverOnceLaunched() {
			return later(until, c.launched[scope])
		}
		return until
	}
}

func (c *Cooldowns) keep(place Scope, who audience, added *history) {
	if c.size >= mostHistories {
		c.drop(mostHistories / 4)
	}
	if c.places == nil {
		c.places = map[string]places{}
	}
	if c.places[place.Name] == nil {
		c.places[place.Name] = places{}
	}
	if c.places[place.Name][place] == nil {
		c.places[place.Name][place] = map[audience]*history{}
	}
	c.places[place.Name][place][who] = added
	c.size++
}

// drop deletes histories: first those of single Workspaces and namespaces, then the shared ones, and among these the
// ones that end first.
func (c *Cooldowns) drop(count int) {
	type entry struct {
		place Scope
		who   audience
		until time.Time
	}
	entries := make([]entry, 0, c.size)
	c.each(func(place Scope, who audience, known *history) {
		e := entry{place: place, who: who}
		for _, cooldown := range known.now.cooldowns {
			e.until = later(e.until, cooldown.Until)
		}
		entries = append(entries, e)
	})
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(min(b.who.reach, oneNamespace), min(a.who.reach, oneNamespace)),
			a.until.Compare(b.until),
		)
	})
	for _, e := range entries[:min(count, len(entries))] {
		delete(c.places[e.place.Name][e.place], e.who)
		if len(c.places[e.place.Name][e.place]) == 0 {
			delete(c.places[e.place.Name], e.place)
		}
		if len(c.places[e.place.Name]) == 0 {
			delete(c.places, e.place.Name)
		}
		c.size--
	}
}

// dropOlder deletes the older half.
func (s since) dropOlder() {
	starts := slices.SortedFunc(maps.Values(s), time.Time.Compare)
	middle := starts[len(starts)/2]
	maps.DeleteFunc(s, func(_ Scope, at time.Time) bool { return !at.After(middle) })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (c *Cooldowns) each(visit func(place Scope, who audience, known *history)) {
	for _, named := range c.places {
		for place, of := range named {
			for who, known := range of {
				visit(place, who, known)
			}
		}
	}
}

// around calls visit for each cooldown of an asker around an offering, including past ones.
func (c *Cooldowns) around(who Asker, o Offering, visit func(audience, Cooldown)) {
	if !c.knows(o) {
		return
	}
	for _, scope := range scopesAround(o) {
		place := scope
		place.CapacityType = ""
		of := c.places[place.Name][place]
		if len(of) == 0 {
			continue
		}
		for _, audience := range who.audiences() {
			if known := of[audience]; known != nil {
				if cooldown, ok := known.now.cooldowns[scope.CapacityType]; ok {
					visit(audience, cooldown)
				}
			}
		}
	}
}

// knows reports whether the memory has anything about an offering. For most offerings it has nothing.
func (c *Cooldowns) knows(o Offering) bool {
	return len(c.places[o.InstanceType]) > 0 || len(c.places[""]) > 0 || o.Family != "" && len(c.places[o.Family]) > 0
}

// Active returns until when an offering is excluded for an asker, and why; ok is false if it is not excluded.
func (c *Cooldowns) Active(now time.Time, who Asker, o Offering) (until time.Time, cause Cause, ok bool) {
	until, cause, ok = c.activeIn(now, who, o)
	if ok || !strings.Contains(o.Zone, zoneSeparator) || !c.knows(o) {
		return until, cause, ok
	}
	// One open zone of several is enough: the offering is excluded only if each zone is.
	for i, zone := range strings.Split(o.Zone, zoneSeparator) {
		in := o
		in.Zone = zone
		reopens, why, isOut := c.activeIn(now, who, in)
		if !isOut {
			return time.Time{}, None, false
		}
		if i == 0 || reopens.Before(until) {
			until, cause, ok = reopens, why, true
		}
	}
	return until, cause, ok
}

// activeIn is Active for exactly this offering. A list of several zones counts as one place.
func (c *Cooldowns) activeIn(now time.Time, who Asker, o Offering) (until time.Time, cause Cause, ok bool) {
	c.around(who, o, func(_ audience, known Cooldown) {
		if known.Until.After(now) && known.Until.After(until) {
			until, cause, ok = known.Until, known.Cause, true
		}
	})
	return until, cause, ok
}

// Zones returns the sorted single zones in cooldown for an asker whose offering allows any zone.
func (c *Cooldowns) Zones(now time.Time, who Asker, o Offering) []string {
	var out []string
	for place := range c.places[o.InstanceType] {
		in := o
		in.Zone = place.Zone
		isOne := place.Breadth == OneOffering && in.Zone != "" && in.Zone != Any && !strings.Contains(in.Zone, zoneSeparator)
		if !isOne || slices.Contains(out, in.Zone) {
			continue
		}
		c.around(who, in, func(_ audience, known Cooldown) {
			if known.Scope.Breadth == OneOffering && known.Until.After(now) {
				out = append(out, in.Zone)
			}
		})
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Unproven returns the past cooldowns around an offering that apply to an asker, if no attempt has succeeded since:
// the offering's availability is unknown.
func (c *Cooldowns) Unproven(now time.Time, who Asker, o Offering) []Cooldown {
	var out []Cooldown
	c.around(who, o, func(of audience, known Cooldown) {
		if of.reach == oneWorkspace || !known.isUnproven(now) {
			return
		}
		known.Asker = of.Asker
		out = append(out, known)
	})
	return out
}

// List returns the present cooldowns, ordered by scope. Within a scope, the shared ones come first.
func (c *Cooldowns) List(now time.Time) []Cooldown {
	var out []Cooldown
	c.each(func(_ Scope, who audience, known *history) {
		for _, cooldown := range known.now.cooldowns {
			if cooldown.Until.After(now) {
				cooldown.Asker = who.Asker
				out = append(out, cooldown)
			}
		}
	})
	slices.SortFunc(out, func(a, b Cooldown) int {
		return cmp.Or(
			strings.Compare(a.Scope.String(), b.Scope.String()),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workspace, b.Workspace),
		)
	})
	return out
}
