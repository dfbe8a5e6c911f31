// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"slices"
	"strings"
	"time"
)

// Name identifies a Workspace.
type Name struct{ Namespace, Workspace string }

// Counters are the token counters of an engine's process since its start.
type Counters struct {
	// Incarnation identifies the process. The counters of another process begin at 0.
	Incarnation    string
	Prompt, Output int64
}

// Engine is the observed state of the engine of a Workspace.
type Engine struct {
	Name Name
	// Key is the account of the serving machines.
	Key Key
	// Plan is the planned price of a million output tokens in USD; empty if it is unknown.
	Plan string
	// Counters has the counters of each process of the engine; empty if none answered.
	Counters []Counters
}

// engine has the last counters of a Workspace's engine.
type engine struct {
	plan string
	last []Counters
}

// Count adds an engine's tokens since the last observation. If a process is new or its counter has fallen, the counter
// began at 0. The tokens between the last observation of a process and its end are lost. Count reports whether anything
// changed.
func (l *Ledger) Count(at time.Time, seen Engine) bool {
	known := l.engines[seen.Name]
	if known == nil {
		known = &engine{}
		l.engines[seen.Name] = known
	}
	changed := known.plan != seen.Plan
	known.plan = seen.Plan
	var prompt, output int64
	seen.Counters = slices.Clone(seen.Counters)
	for i := range seen.Counters {
		now := &seen.Counters[i]
		now.Prompt, now.Output = min(max(now.Prompt, 0), mostTokens), min(max(now.Output, 0), mostTokens)
		was := Counters{Incarnation: now.Incarnation}
		if i := slices.IndexFunc(known.last, func(c Counters) bool { return c.Incarnation == now.Incarnation }); i >= 0 {
			was = known.last[i]
		}
		prompt = sum(prompt, since(was.Prompt, now.Prompt))
		output = sum(output, since(was.Output, now.Output))
	}
	if len(seen.Counters) == 0 {
		return changed
	}
	next := known.after(seen.Counters)
	changed = changed || !slices.Equal(known.last, next)
	known.last = next
	if prompt != 0 || output != 0 {
		h := horizonAt(at)
		label, _ := h.period(at)
		cells := l.account(seen.Key).at(label)
		cells.Prompt = sum(cells.Prompt, prompt)
		cells.Output = sum(cells.Output, output)
	}
	return changed
}

// mostProcesses is how many processes of one engine are remembered.
const mostProcesses = 8

// after returns the counters for the comparison with the next observation. It keeps processes that did not answer,
// because they may answer the next time.
func (e *engine) after(seen []Counters) []Counters {
	out := slices.DeleteFunc(slices.Clone(e.last), func(old Counters) bool {
		return slices.ContainsFunc(seen, func(c Counters) bool { return c.Incarnation == old.Incarnation })
	})
	seen = slices.SortedFunc(slices.Values(seen), func(a, b Counters) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	out = append(out, seen...)
	return out[max(len(out)-mostProcesses, 0):]
}

const (
	// mostTokens is the largest counter that is stored. It replaces larger, nonsensical ones.
	mostTokens = 1 << 50
	// mostGrowth is the most tokens of a process between two observations. No engine comes near it.
	mostGrowth = 1 << 40
)

// since returns the growth of a counter.
func since(was, now int64) int64 {
	if now < was {
		was = 0
	}
	return min(now-was, mostGrowth)
}

// Keep drops the engines of deleted Workspaces.
func (l *Ledger) Keep(exists func(Name) bool) {
	for name := range l.engines {
		if !exists(name) {
			delete(l.engines, name)
		}
	}
}
