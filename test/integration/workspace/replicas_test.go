// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestReplicas: one of two replicas leads. The other one requests only the Lease. Once it leads, it reads everything
// that it needs.
func TestReplicas(t *testing.T) {
	w := enter(t)
	o := w.options()
	o.LeaderElect, o.LeaderElectionNamespace = true, w.namespace(t)
	leader := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	pod := w.podUID(t, ws)

	next := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	eventually(t, "the second replica asks for the Lease", func() (bool, string) {
		return len(next.requests.about("/leases/")) > 0, "it does not"
	})
	others := func() int { // such as API discovery, which precedes leadership
		isLease := func(sent string) bool { return strings.Contains(sent, "/leases/") }
		return len(slices.DeleteFunc(next.requests.about(""), isLease))
	}
	before := others()
	during(t, "it asks for nothing else", 3*time.Second, func() (bool, string) {
		return others() == before && next.watches.Load() == 0, fmt.Sprintf("%q, and watches %q", next.requests.about(""), next.watches.about(""))
	})

	leader.end(t)
	later := kaitoForm(ws.Namespace, "talk")
	w.create(t, later)
	w.untilServing(t, later)
	if w.podUID(t, ws) != pod || w.karpenter.ClaimsEver(ws.UID) != 1 {
		t.Error("what served has been touched")
	}
	w.remove(t, later)
	w.remove(t, ws)
}
