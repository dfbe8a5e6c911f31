// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import "time"

// Failure is the state of a rollout under a deadline.
type Failure struct {
	// Replica with the current template that proves the failure; empty while the rollout has not failed.
	Replica string
	// IsLate: the replica did not answer in time. Otherwise it is stalled, or its pods fail for good.
	IsLate bool
	// Next is when the next replica will be late; zero if none is starting.
	Next time.Time
}

// Fails reports whether a rollout that began at a time has failed: a replica with the current template is stalled, its
// pods fail for good, or it has not answered within the deadline. The deadline of a replica starts when the rollout
// began or when the replica got its machines, whichever is later. The supply of machines says nothing about a template,
// so replicas without machines do not count.
func Fails(all []Replica, began, now time.Time, deadline time.Duration) Failure {
	var out Failure
	for _, replica := range all {
		if !replica.IsCurrent || replica.IsLeaving || replica.IsReady || replica.LacksMachine {
			continue
		}
		if replica.IsStalled || replica.IsFailing {
			return Failure{Replica: replica.Name}
		}
		if replica.Starting.IsZero() {
			continue
		}
		from := began
		if replica.Starting.After(from) {
			from = replica.Starting
		}
		late := from.Add(deadline)
		switch {
		case !now.Before(late):
			if out.Replica == "" {
				out.Replica, out.IsLate = replica.Name, true
			}
		case out.Next.IsZero() || late.Before(out.Next):
			out.Next = late
		}
	}
	return out
}
