// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Times are when something first happened to each Workspace, by its name.
type Times map[string]time.Time

func (t Times) first(name string, at time.Time) {
	if known, ok := t[name]; name != "" && (!ok || at.Before(known)) {
		t[name] = at
	}
}

// span is how long after the first of them the last came.
func (t Times) span() time.Duration {
	all := slices.SortedFunc(maps.Values(t), time.Time.Compare)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Sub(all[0])
}

// Course is the course of one namespace's Workspaces, or of their stand-ins.
type Course struct {
	namespace string
	// Applied is when the server took each, Claimed when the first of its
	// NodeClaims was stored, Ready when it first said so of itself, and Serving
	// when the first of its pods was Ready.
	Applied, Claimed, Ready, Serving Times
}

// NewCourse returns an empty course.
func NewCourse(namespace string) *Course {
	return &Course{namespace: namespace, Applied: Times{}, Claimed: Times{}, Ready: Times{}, Serving: Times{}}
}

// Add notes the effects of requests.
func (c *Course) Add(requests []Request) {
	for _, r := range requests {
		if r.isAccepted() && !r.isDryRun() {
			c.add(r)
		}
	}
}

func (c *Course) add(r Request) {
	labels := r.Sent.Metadata.Labels
	ours := r.Object.Namespace == c.namespace
	switch {
	case r.resource() == "workspaces" && r.Verb == "create" && ours:
		c.Applied.first(r.Object.Name, r.Received)
	case r.resource() == "workspaces/status" && ours && r.isTrue(v1beta1.ConditionReady):
		c.Ready.first(r.Object.Name, r.Done)
	case r.resource() == "nodeclaims" && labels[v1beta1.LabelMachineWorkspaceNamespace] == c.namespace:
		c.Claimed.first(labels[v1beta1.LabelMachineWorkspaceName], r.Done)
		if r.User.Username == administrator {
			// Without a Workspace its NodeClaim is applied first.
			c.Applied.first(labels[v1beta1.LabelMachineWorkspaceName], r.Received)
		}
	case r.resource() == "pods/status" && ours:
		c.Serving.first(workspaceOf(r.Object.Name), r.Done)
	}
}

// workspaceOf returns the name of the pod's StatefulSet, equal to the Workspace's.
func workspaceOf(pod string) string {
	for i := len(pod) - 1; i > 0; i-- {
		if pod[i] == '-' {
			return pod[:i]
		}
	}
	return ""
}

// Delays returns the times between two moments, shortest first, for all with both.
func Delays(from, to Times) []time.Duration {
	var out []time.Duration
	for name, start := range from {
		if end, ok := to[name]; ok {
			out = append(out, end.Sub(start))
		}
	}
	slices.Sort(out)
	return out
}

// Percentile returns the smallest of the sorted values not exceeded by at least p of 100.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Tally counts requests of one identity. A dry run reads: it stores nothing.
type Tally struct {
	Writes, Reads, Events, Leases, Watches int
	// Kinds counts writes and reads by kind.
	Kinds map[string]int
}

// Count tallies a user's requests received from one moment until another.
func Count(requests []Request, user string, from, until time.Time) Tally {
	t := Tally{Kinds: map[string]int{}}
	for _, r := range requests {
		if r.User.Username != user || r.Received.Before(from) || !r.Received.Before(until) {
			continue
		}
		switch {
		case r.Object.Resource == "events":
			t.Events++
			continue
		case r.Object.Resource == "leases":
			t.Leases++
			continue
		case r.Verb == "watch":
			t.Watches++
			continue
		case r.isDryRun():
			t.Reads++
			t.Kinds[r.Verb+" "+r.resource()+", dry run"]++
			continue
		case r.Verb == "get" || r.Verb == "list":
			t.Reads++
		default:
			t.Writes++
		}
		t.Kinds[r.Verb+" "+r.resource()]++
	}
	return t
}
