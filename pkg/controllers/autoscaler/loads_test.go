// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLoads: the requests of answering replicas are known for a while, and for no longer than the set has a policy.
func TestLoads(t *testing.T) {
	w := newWorld(t, set(2))
	loads := NewLoads()
	w.reconciler.Loads = loads
	key := client.ObjectKeyFromObject(set(0))
	known := func() map[types.UID]float64 {
		out := map[types.UID]float64{}
		for _, replica := range []types.UID{"chat-0", "chat-1", "chat-2"} {
			if requests, ok := loads.Of(key, replica, w.clock.Now()); ok {
				out[replica] = requests
			}
		}
		return out
	}
	w.run(t, 2)
	w.requests(1, 7) // the other engine is silent
	s := w.load[address(0)]
	s.Waiting = 2
	w.load[address(0)] = s
	w.pass(t)
	if diff := cmp.Diff(map[types.UID]float64{"chat-0": 9}, known()); diff != "" {
		t.Errorf("loads (-want +got):\n%s", diff)
	}
	w.clock.SetTime(w.clock.Now().Add(loadsFor))
	if diff := cmp.Diff(map[types.UID]float64{"chat-0": 9}, known()); diff != "" {
		t.Errorf("loads after two intervals (-want +got):\n%s", diff)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	if diff := cmp.Diff(map[types.UID]float64{}, known()); diff != "" {
		t.Errorf("old loads (-want +got):\n%s", diff)
	}
	w.pass(t)
	found := w.read(t)
	found.Spec.Autoscaling = nil
	if err := w.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	w.pass(t)
	if diff := cmp.Diff(map[types.UID]float64{}, known()); diff != "" {
		t.Errorf("loads of a set without a policy (-want +got):\n%s", diff)
	}
}
