// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// clockLead is how far the clock of an earlier process may have been ahead of ours.
const clockLead = 5 * time.Minute

// Asker is a Workspace that requests machines, with its namespace.
type Asker struct {
	Workspace types.UID
	Namespace string
}

// Attempt is one try to get machines, by any Workspace.
type Attempt struct {
	Asker

	Offering Offering
	Started  time.Time
	// Ended is when it failed, or when its machines were usable; zero while it continues.
	Ended time.Time
	// Launched is set if the cloud has launched a machine for an open attempt.
	Launched bool
	// Cause is None if the attempt got its machines.
	Cause    Cause
	Scope    Scope
	Cooldown time.Duration
	// Guessed as in the verdict: at first the refusal applies only to this Workspace. Once a second Workspace of the
	// namespace has the same refusal, it applies to the namespace, and never to others.
	Guessed bool
}

// Credible drops attempts that end in the future, with tolerance for clocks that differ. Such an attempt could start a
// cooldown that ends years from now.
func Credible(attempts []Attempt, now time.Time) []Attempt {
	return slices.DeleteFunc(slices.Clone(attempts), func(a Attempt) bool { return a.Ended.After(now.Add(clockLead)) })
}

// compareAttempts orders attempts by their end; different attempts are never equal.
func compareAttempts(a, b Attempt) int {
	return cmp.Or(
		a.Ended.Compare(b.Ended),
		a.Started.Compare(b.Started),
		strings.Compare(a.Scope.String(), b.Scope.String()),
		cmp.Compare(a.Cause, b.Cause),
		cmp.Compare(a.Cooldown, b.Cooldown),
		cmp.Compare(a.Offering.InstanceType, b.Offering.InstanceType),
		cmp.Compare(a.Offering.Family, b.Offering.Family),
		cmp.Compare(a.Offering.Zone, b.Offering.Zone),
		cmp.Compare(a.Offering.CapacityType, b.Offering.CapacityType),
		cmp.Compare(a.Offering.NodeClass, b.Offering.NodeClass),
		cmp.Compare(a.Workspace, b.Workspace),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(weigh(a.Guessed), weigh(b.Guessed)),
	)
}
