// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"maps"
	"slices"
	"time"
)

// Restore returns a ledger that continues from copies of some namespaces, with the present machines of all namespaces.
// It charges each namespace since the time of its own copy, or without a copy since its machines were launched. Thus no
// minute counts twice, and no copy changes the costs of another namespace. Restore changes the copies.
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
		part.Observe(Step{At: now, Elapsed: part.Gap(now), Gap: true, Machines: present[namespace], isRestored: true})
		maps.Copy(out.accounts, part.accounts) // keys contain the namespace
		maps.Copy(out.machines, part.machines)
		maps.Copy(out.engines, part.engines)
		maps.Copy(out.gone, part.gone)
	}
	return out
}
