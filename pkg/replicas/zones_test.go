// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// zoned makes replicas from texts such as "x:cr": the zone, and the letters of at.
func zoned(texts ...string) []Replica {
	letters, zones := make([]string, len(texts)), make([]string, len(texts))
	for i, text := range texts {
		zones[i], letters[i] = text[:1], text[2:]
	}
	out := at(letters...)
	for i := range out {
		if zones[i] != "-" {
			out[i].Zone = zones[i]
		}
	}
	return out
}

func TestNext(t *testing.T) {
	xyz, xy := Spread{Zones: []string{"x", "y", "z"}, MaxSkew: 1}, Spread{Zones: []string{"x", "y"}, MaxSkew: 1}
	strict := Spread{Zones: xyz.Zones, MaxSkew: 1, IsStrict: true}
	loose := Spread{Zones: xyz.Zones, MaxSkew: 2, IsStrict: true}
	tests := []struct {
		reason  string
		spread  Spread
		policy  Policy
		have    []Replica
		refused []string
		want    string
	}{
		{"the first replica is in the preferred zone", xyz, Policy{Replicas: 1}, nil, nil, "x"},
		{"the next one in the emptiest", xyz, Policy{Replicas: 3}, zoned("x:cr", "z:cr"), nil, "y"},
		{"of equals the first", xyz, Policy{Replicas: 3}, zoned("z:cr"), nil, "x"},
		{"a starting replica counts where it is to run", xyz, Policy{Replicas: 3}, zoned("x:c"), nil, "y"},
		{"one that is being deleted does not", xyz, Policy{Replicas: 3}, zoned("x:crl"), nil, "x"},
		{"nor does one in an unknown zone", xyz, Policy{Replicas: 3}, zoned("-:cr"), nil, "x"},
		{"a zone that refuses others is the last choice", xyz, Policy{Replicas: 3}, zoned("y:cr", "z:cr"), []string{"x"}, "y"},
		{"if all refuse, the emptiest", xyz, Policy{Replicas: 3}, zoned("x:c", "y:c"), []string{"x", "y", "z"}, "z"},
		{"a strict set, too, tries another zone within the skew", strict, Policy{Replicas: 4}, zoned("x:c", "y:cr", "z:cr", "y:cr"), []string{"x"}, "z"},
		{"but waits for its zone if there is none", strict, Policy{Replicas: 4}, zoned("y:cr", "z:cr"), []string{"x"}, "x"},
		{"unless a larger skew allows another", loose, Policy{Replicas: 4}, zoned("y:cr", "z:cr"), []string{"x"}, "y"},
		{
			"in a rollout, the new ones spread among themselves: x and its former replica are about to go",
			xyz,
			Policy{Replicas: 3, MaxUnavailable: 0},
			zoned("x:cr", "y:r", "z:r"), nil, "y",
		},
		{"the former ones count among equals", xyz, Policy{Replicas: 3}, zoned("x:r", "y:r", "x:r"), nil, "z"},
		{"those updated in place stay where they are", xy, Policy{Replicas: 4, MaxUnavailable: 1}, zoned("x:r", "x:r", "y:cr"), nil, "y"},
		{"so do those that a partition keeps", xy, Policy{Replicas: 4, Partition: 2}, zoned("x:rf", "x:rf", "y:cr"), nil, "y"},
		{"those replaced do not", xy, Policy{Replicas: 4, MaxUnavailable: 1}, zoned("x:rf", "x:rf", "y:cr"), nil, "x"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := test.spread.Next(test.policy, test.have, test.refused); got != test.want {
				t.Errorf("zone %q, want %q", got, test.want)
			}
		})
	}
}

func TestAnother(t *testing.T) {
	xyz, policy := Spread{Zones: []string{"x", "y", "z"}, MaxSkew: 1}, Policy{Replicas: 4}
	strict := Spread{Zones: xyz.Zones, MaxSkew: 1, IsStrict: true}
	loose := Spread{Zones: xyz.Zones, MaxSkew: 2, IsStrict: true}
	tests := []struct {
		reason         string
		spread         Spread
		have           []Replica // the first one looks for a machine
		tried, refused []string
		want           string
	}{
		{"the emptiest zone is next", xyz, zoned("x:c", "y:cr"), []string{"x"}, []string{"x"}, "z"},
		{"then the last one", xyz, zoned("z:c", "y:cr"), []string{"x", "z"}, []string{"x", "z"}, "y"},
		{"then none", xyz, zoned("y:c"), []string{"x", "z", "y"}, nil, ""},
		{"a zone that refuses others comes later", xyz, zoned("x:c", "z:cr"), []string{"x"}, []string{"x", "y"}, "z"},
		{"a strict set waits", strict, zoned("x:c", "y:cr", "z:cr"), []string{"x"}, []string{"x"}, ""},
		{"but uses a zone that is as empty", strict, zoned("x:c", "y:cr"), []string{"x"}, []string{"x"}, "z"},
		{"or one within the skew", loose, zoned("x:c", "y:cr", "z:cr"), []string{"x"}, []string{"x"}, "y"},
		{"unless its own zone would be too empty", loose, zoned("x:c", "y:cr", "y:cr", "y:cr", "z:cr"), []string{"x"}, []string{"x"}, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := test.spread.Another(policy, test.have, "a", test.tried, test.refused); got != test.want {
				t.Errorf("zone %q, want %q", got, test.want)
			}
		})
	}
}

func TestScalingDownKeepsTheBalance(t *testing.T) {
	tests := []struct {
		reason string
		policy Policy
		have   []Replica
		want   []string
	}{
		{"the most crowded zone loses one", Policy{Replicas: 3}, zoned("x:cr", "x:cr", "y:cr", "z:cr"), []string{"b"}},
		{"and then the next", Policy{Replicas: 2}, zoned("x:cr", "x:cr", "y:cr", "y:cr", "x:cr"), []string{"e", "d", "b"}},
		{"though others are dearer", Policy{Replicas: 2}, zoned("x:cr", "x:cr", "y:crd"), []string{"b"}},
		{"or less busy", Policy{Replicas: 2}, zoned("x:crb", "x:crb", "y:cr"), []string{"b"}},
		{"within a zone, the dearest", Policy{Replicas: 2}, zoned("x:crd", "x:cr", "y:cr"), []string{"a"}},
		{"unready ones go first", Policy{Replicas: 2}, zoned("x:cr", "x:cr", "y:c"), []string{"c"}},
		{"so do those that may use spot machines", Policy{Replicas: 2}, zoned("x:crs", "x:crs", "y:cr"), []string{"c"}},
		{"an unready one relieves its zone", Policy{Replicas: 2}, zoned("x:c", "x:cr", "y:cr", "y:cr"), []string{"a", "d"}},
		{"an unknown zone counts as one", Policy{Replicas: 2}, zoned("-:cr", "-:cr", "y:cr"), []string{"b"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Decide(test.policy, test.have).Delete); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// terrain is a cluster with zones, in which replicas find machines, or not.
type terrain struct {
	*world
	spread Spread
	// soldOut are the zones without machines. tried are the zones that each replica has tried, with the present one.
	soldOut map[string]bool
	tried   map[string][]string
	// hasMachine is set for replicas with a machine.
	hasMachine map[string]bool
}

func newTerrain(seed uint64) *terrain {
	random := rand.New(rand.NewPCG(seed, 3))
	return &terrain{
		world:   &world{random: random, policy: Policy{Replicas: random.IntN(9), MaxUnavailable: random.IntN(3)}},
		spread:  Spread{Zones: []string{"x", "y", "z"}[:2+random.IntN(2)], MaxSkew: 1 + random.IntN(2), IsStrict: random.IntN(3) == 0},
		soldOut: map[string]bool{}, tried: map[string][]string{}, hasMachine: map[string]bool{},
	}
}

// open returns the zones in which a replica may find a machine.
func (e *terrain) open(r *Replica) []string {
	zones := e.tried[r.Name]
	if e.spread.IsStrict {
		zones = zones[len(zones)-1:]
	}
	return slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return e.soldOut[zone] })
}

func (e *terrain) lacks(r *Replica) bool { return !e.hasMachine[r.Name] && len(e.open(r)) == 0 }

func (e *terrain) refused() []string {
	var out []string
	for i := range e.replicas {
		if r := &e.replicas[i]; !r.IsLeaving && e.lacks(r) {
			out = append(out, e.tried[r.Name]...)
		}
	}
	return out
}

// step decides, carries it out, and lets some time pass. It reports whether there was nothing to do.
func (e *terrain) step(t *testing.T) (isIdle bool) {
	t.Helper()
	isIdle = true
	for i := range e.replicas {
		r := &e.replicas[i]
		if r.IsLeaving || !r.IsCurrent || !e.lacks(r) {
			continue
		}
		next := e.spread.Another(e.policy, e.replicas, r.Name, e.tried[r.Name], e.refused())
		if next == "" {
			continue
		}
		if slices.Contains(e.tried[r.Name], next) {
			t.Fatalf("%s tries %s again, after %v", r.Name, next, e.tried[r.Name])
		}
		isIdle = false
		e.tried[r.Name], r.Zone = append(slices.Clone(e.tried[r.Name]), next), next
	}
	d := Decide(e.policy, e.replicas)
	isIdle = isIdle && d.IsIdle() && !d.IsRolling
	for _, name := range d.Delete {
		e.find(name).IsLeaving = true
	}
	for _, name := range d.Update {
		r := e.find(name)
		r.IsCurrent, r.IsReady, r.IsProven = true, false, false
	}
	for range d.Create {
		zone := e.spread.Next(e.policy, e.replicas, e.refused())
		price := float64(1 + slices.Index(e.spread.Zones, zone))
		e.add(Replica{IsCurrent: true, CanUpdate: e.random.IntN(2) == 0, Nodes: 1, Zone: zone, HourlyPrice: price})
		name := e.replicas[len(e.replicas)-1].Name
		e.tried[name] = []string{zone}
	}
	e.replicas = slices.DeleteFunc(e.replicas, func(r Replica) bool { return r.IsLeaving && e.random.IntN(3) == 0 })
	for i := range e.replicas {
		r := &e.replicas[i]
		open := e.open(r)
		if !e.hasMachine[r.Name] && len(open) > 0 && e.random.IntN(2) == 0 {
			e.hasMachine[r.Name], r.Zone = true, open[e.random.IntN(len(open))]
		}
		if e.hasMachine[r.Name] && e.random.IntN(2) == 0 {
			r.IsReady, r.IsProven = true, true
		}
	}
	return isIdle && e.live() == e.policy.Replicas && e.ready() == e.policy.Replicas
}

// settle goes on until there is nothing left to do.
func (e *terrain) settle(t *testing.T, seed uint64) {
	t.Helper()
	for range 500 {
		if e.step(t) {
			return
		}
	}
	t.Fatalf("seed %d: never settled: %+v with %+v: %+v", seed, e.spread, e.policy, e.replicas)
}

// edit changes the template, or the number of replicas.
func (e *terrain) edit() {
	if e.random.IntN(2) == 0 {
		e.policy.Replicas = e.random.IntN(9)
		return
	}
	canUpdate := e.random.IntN(2) == 0
	for i := range e.replicas {
		e.replicas[i].IsCurrent, e.replicas[i].CanUpdate = false, canUpdate
	}
}

func (e *terrain) skew() int {
	_, _, skew := e.spread.Extremes(Count(e.replicas))
	return skew
}

// TestSkewHolds: while each zone has machines, the balance survives scaling and edits of the template, in place or by
// surplus replicas.
func TestSkewHolds(t *testing.T) {
	for seed := range uint64(300) {
		e := newTerrain(seed)
		for range 8 {
			e.settle(t, seed)
			if e.skew() > e.spread.MaxSkew {
				t.Fatalf("seed %d: skew %d with %+v and %+v: %+v", seed, e.skew(), e.spread, e.policy, e.replicas)
			}
			e.edit()
		}
	}
}

// TestRefusedZonesBlockNothing: if one zone has machines, all replicas of a set that is not strict get one. No replica
// with a machine changes its zone.
func TestRefusedZonesBlockNothing(t *testing.T) {
	for seed := range uint64(300) {
		e := newTerrain(seed)
		e.spread.IsStrict = false
		for range 6 {
			open := e.random.IntN(len(e.spread.Zones))
			for i, zone := range e.spread.Zones {
				e.soldOut[zone] = i != open && e.random.IntN(2) == 0
			}
			where := map[string]string{}
			for range 400 {
				e.step(t)
				for i := range e.replicas {
					r := &e.replicas[i]
					if was := where[r.Name]; was != "" && was != r.Zone {
						t.Fatalf("seed %d: %s moved from %s to %s", seed, r.Name, was, r.Zone)
					}
					if e.hasMachine[r.Name] {
						where[r.Name] = r.Zone
					}
				}
			}
			if e.ready() != e.policy.Replicas || e.live() != e.policy.Replicas {
				t.Fatalf("seed %d: %d of %d replicas are ready, sold out %v: %+v", seed, e.ready(), e.policy.Replicas, e.soldOut, e.replicas)
			}
			e.edit()
		}
	}
}

// TestStrictSetsWait: a strict set never exceeds the skew, whatever is sold out. Scaling down is another matter.
func TestStrictSetsWait(t *testing.T) {
	for seed := range uint64(300) {
		e := newTerrain(seed)
		e.spread.IsStrict, e.policy.Replicas = true, 1
		for range 6 {
			for _, zone := range e.spread.Zones {
				e.soldOut[zone] = e.random.IntN(2) == 0
			}
			for range 60 {
				e.step(t)
				if e.skew() > e.spread.MaxSkew {
					t.Fatalf("seed %d: skew %d with %+v, sold out %v: %+v", seed, e.skew(), e.spread, e.soldOut, e.replicas)
				}
			}
			e.policy.Replicas += e.random.IntN(4)
		}
	}
}

// TestZonesDoNotDependOnOrder: a list of replicas may have any order.
func TestZonesDoNotDependOnOrder(t *testing.T) {
	for seed := range uint64(500) {
		w := newWorld(seed)
		for i := range w.replicas {
			w.replicas[i].Zone = []string{"", "x", "y", "z"}[w.random.IntN(4)]
		}
		spread := Spread{Zones: []string{"x", "y", "z"}, MaxSkew: 1, IsStrict: seed%2 == 0}
		look := func() string {
			return fmt.Sprint(spread.Next(w.policy, w.replicas, []string{"y"}), Decide(w.policy, w.replicas))
		}
		want := look()
		w.random.Shuffle(len(w.replicas), func(i, j int) { w.replicas[i], w.replicas[j] = w.replicas[j], w.replicas[i] })
		if got := look(); got != want {
			t.Fatalf("seed %d: %s, and in another order %s", seed, want, got)
		}
	}
}

// TestOneZoneChangesNothing: replicas of one zone, known or not, are deleted in the order of sets without zones.
func TestOneZoneChangesNothing(t *testing.T) {
	for seed := range uint64(500) {
		w := newWorld(seed)
		want := Decide(w.policy, w.replicas)
		for i := range w.replicas {
			w.replicas[i].Zone = "x"
		}
		if diff := cmp.Diff(want, Decide(w.policy, w.replicas)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		s := observe(w.policy, w.replicas)
		plain := slices.Clone(s.live)
		slices.SortFunc(plain, bySparing)
		s.live = slices.Clone(plain)
		s.uncrowd()
		if diff := cmp.Diff(plain, s.live); diff != "" {
			t.Fatalf("seed %d: the order (-without +with zones):\n%s", seed, diff)
		}
	}
}

func TestCount(t *testing.T) {
	got := Count(zoned("x:cr", "x:c", "y:crl", "-:cr"))
	if diff := cmp.Diff(map[string]int{"x": 2, "": 1}, got); diff != "" {
		t.Errorf("count (-want +got):\n%s", diff)
	}
}
