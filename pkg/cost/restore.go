// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"maps"
	"slices"
	"time"
)

// Restore returns a ledger that continues from the copies of some namespaces, with the present machines of all. Each
// namespace is charged since its own copy was seen, or since its machines were launched if it has none: a copy must not
// change the costs of another namespace. The copies are used up.
func Restore(now time.Time, copies map[string]*Ledger, machines []Machine) *Ledger {
	present := map[string][]Machine{}
	for i := range machines {
		present[machines[i].Key.Namespace] = append(present[machines[i].Key.Namespace], machines[i])
	}
	parts := maps.Clone(copies)
	for namespace := range present {
		if parts[namespace] == nil {
			parts[namespace] = New()
		}
	}
	out := New()
	out.Seen = now
	for _, namespace := range slices.Sorted(maps.Keys(parts)) {
		part := parts[namespace]
		part.Observe(Step{At: now, Elapsed: part.Gap(now), Gap: true, Machines: present[namespace]})
		maps.Copy(out.accounts, part.accounts) // the keys have the namespace
		maps.Copy(out.machines, part.machines)
		maps.Copy(out.engines, part.engines)
	}
	return out
}
