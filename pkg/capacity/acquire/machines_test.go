// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
)

// machine returns a machine of type A.
func machine(change ...func(*capacity.Machine)) capacity.Machine {
	out := capacity.Machine{
		Name: "m", UID: "machine-1", InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand, NodeName: "node-1", NodeReady: true,
		Launched: true, Registered: true, Initialized: true,
	}
	for _, c := range change {
		c(&out)
	}
	return out
}

// planOf returns a plan for machines of type A in some zones.
func planOf(nodes int, zones ...string) *render.Revision {
	return &render.Revision{Plan: planner.Plan{InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand, Nodes: nodes, Zones: zones}}
}

// TestAreWanted covers the machines that stay if the plan names zones.
func TestAreWanted(t *testing.T) {
	in := func(zone string) func(*capacity.Machine) { return func(m *capacity.Machine) { m.Zone = zone } }
	attempt := begun(1, "m")
	attempt.Zone = "a"
	tests := []struct {
		reason  string
		machine *capacity.Machine
		want    bool
	}{
		{"it stands in one of more places than it was asked for", new(machine(in("a"))), true},
		{"it stands elsewhere", new(machine(in("c"))), false},
		{"it is not launched, and might come elsewhere", new(machine()), false},
		{"it is not there, and was asked for elsewhere", nil, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var machines acquire.Machines
			if test.machine != nil {
				machines = append(machines, *test.machine)
			}
			if got := machines.AreWanted(&attempt, []string{"m"}, planOf(1, "a", "b")); got != test.want {
				t.Errorf("wanted %t, want %t", got, test.want)
			}
		})
	}
}

func TestPrice(t *testing.T) {
	priced := func(name string, usd float64) capacity.Machine {
		return machine(func(m *capacity.Machine) { m.Name, m.HourlyPrice = name, usd })
	}
	machines := acquire.Machines{priced("a", 2), priced("b", 3), priced("c", -1)}
	for _, test := range []struct {
		reason string
		names  []string
		want   float64
	}{
		{"no machine", nil, 0}, {"the named ones alone", []string{"a", "b"}, 5}, {"one price is unknown", []string{"a", "c"}, -1},
	} {
		if got := machines.Price(test.names); got != test.want {
			t.Errorf("%s: %v, want %v", test.reason, got, test.want)
		}
	}
}

// TestTaintedMachineFitsNoEarlierPods: a plan does not take over a machine on which its pods could not run, for
// example after an edit is reverted.
func TestTaintedMachineFitsNoEarlierPods(t *testing.T) {
	plain := capacity.Machine{InstanceType: "A", CapacityType: v1beta1.CapacityOnDemand}
	tainted := plain
	tainted.Dedicated = true
	earlier, current := planOf(1), planOf(1)
	current.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue}, {Key: v1beta1.TaintKeyWorkspace, Value: "uid-1"},
	}
	for _, test := range []struct {
		reason  string
		made    *render.Revision
		machine capacity.Machine
		want    bool
	}{
		{"earlier pods, a machine without", earlier, plain, true},
		{"earlier pods, a machine with the taint", earlier, tainted, false},
		{"pods that tolerate it, a machine that was bought before", current, plain, true},
		{"pods that tolerate it, a machine with the taint", current, tainted, true},
	} {
		if got := acquire.Fits(&test.machine, test.made); got != test.want {
			t.Errorf("%s: fits is %t, want %t", test.reason, got, test.want)
		}
	}
}
