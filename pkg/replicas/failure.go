// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"slices"
	"time"
)

// Patience is how long a rollout waits for its replicas.
type Patience struct {
	// Settling is how long after an update a failure may have another cause than the template: pods of the former
	// template, or a missing object that is applied a moment later.
	Settling time.Duration
	// Deadline is the time in which a replica becomes available: ready for as long as the set requires.
	Deadline time.Duration
}

// Progress is a set's record of a rollout.
type Progress struct {
	// Updated is when the last replica got the template.
	Updated time.Time
	// Changed is when the number of available replicas with the template last changed; zero if it never has.
	Changed time.Time
}

// Failure is the state of a rollout under a deadline.
type Failure struct {
	// Replica with the current template that proves the failure; empty while the rollout has not failed.
	Replica string
	// IsLate: the replica was not available in time. If unset, its failure is permanent.
	IsLate bool
	// Next is when the verdict on a replica may change without an event; zero if that cannot happen.
	Next time.Time
}

// Fails reports whether a rollout has failed: a replica with the current template is failing for good, or was not
// available within the deadline. The deadline of a replica starts with its machines, with the last update, or with the
// last progress, whichever is latest. A replica that is ready for a moment makes no progress, but it is not late before
// that moment ends. The supply of machines says nothing about a template, so replicas that wait for machines do not
// count.
func Fails(all []Replica, progress Progress, now time.Time, patience Patience) Failure {
	var out Failure
	for _, replica := range all {
		if !replica.IsCurrent || replica.IsLeaving || replica.IsReady || replica.LacksMachine {
			continue
		}
		if replica.IsFailing {
			out.add(replica.Name, false, progress.Updated.Add(patience.Settling), now)
		}
		if !replica.Starting.IsZero() {
			from := slices.MaxFunc([]time.Time{replica.Starting, progress.Updated, progress.Changed}, time.Time.Compare)
			out.add(replica.Name, true, from.Add(patience.Deadline), now)
		}
	}
	return out
}

// add notes that a replica proves the failure from a time on. The first proof counts.
func (f *Failure) add(name string, isLate bool, from, now time.Time) {
	switch {
	case now.Before(from):
		if f.Next.IsZero() || from.Before(f.Next) {
			f.Next = from
		}
	case f.Replica == "":
		f.Replica, f.IsLate = name, isLate
	}
}
