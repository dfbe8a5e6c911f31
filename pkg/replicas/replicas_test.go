// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at makes replicas from letters: c current, r ready, l leaving, f fixed (no update in place), a answers during an update in place, m lacks a machine, w lacks one that no deletion frees, n has
// no plan, 2 needs two machines, s is steady, d costs 2 USD per hour instead
// of 1, 0 has no known price, + costs 1.04, - costs 0.97, b is busy with 5 requests instead of 1, ? has an unknown load, u is ready for too short a time. Replicas are named in the order of their creation.
func at(letters ...string) []Replica {
	out := make([]Replica, len(letters))
	for i, text := range letters {
		out[i] = Replica{Name: string(rune('a' + i)), Created: time.Unix(int64(i), 0), CanUpdate: true, Nodes: 1, HourlyPrice: 1, Load: 1, IsLoadKnown: true}
		for _, letter := range text {
			switch letter {
			case 'c':
				out[i].IsCurrent = true
			case 'r':
				out[i].IsReady, out[i].IsProven = true, true
			case 'u':
				out[i].IsReady = true
			case 'b':
				out[i].Load = 5
			case '?':
				out[i].IsLoadKnown = false
			case 'l':
				out[i].IsLeaving = true
			case 'f':
				out[i].CanUpdate = false
			case 'a':
				out[i].StaysReady = true
			case 'm':
				out[i].LacksMachine, out[i].GainsByDeletion = true, true
			case 'w':
				out[i].LacksMachine = true
			case 'n':
				out[i].Nodes = 0
			case '2':
				out[i].Nodes = 2
			case '0':
				out[i].HourlyPrice = 0
			case 's':
				out[i].IsSteady = true
			case 'd':
				out[i].HourlyPrice = 2
			case '+':
				out[i].HourlyPrice = 1.04
			case '-':
				out[i].HourlyPrice = 0.97
			}
		}
	}
	return out
}

func TestDecide(t *testing.T) {
	three := Policy{Replicas: 3, MaxUnavailable: 1}
	tests := []struct {
		reason string
		policy Policy
		have   []Replica
		want   Decision
	}{
		{"a new set creates all its replicas", three, nil, Decision{Create: 3}},
		{"a settled set does nothing", three, at("cr", "cr", "cr"), Decision{}},
		{"a replica that is leaving does not count", three, at("cr", "crl", "cr"), Decision{Create: 1}},
		{"a huge set is created in parts", Policy{Replicas: 1000}, nil, Decision{Create: 16}},
		{"scaling down spares the ready ones, then the oldest", Policy{Replicas: 2}, at("c", "cr", "cr", "cr"), Decision{Delete: []string{"a", "d"}}},
		{"and spares the cheap ones", Policy{Replicas: 2}, at("crd", "crd", "cr"), Decision{Delete: []string{"b"}}},
		{"and those that keep off spot machines, though they are dearer", Policy{Replicas: 1}, at("crds", "cr", "cr"), Decision{Delete: []string{"c", "b"}}},
		{"and the busy ones", Policy{Replicas: 2}, at("crb", "cr", "crb"), Decision{Delete: []string{"b"}}},
		{"and those whose load is unknown", Policy{Replicas: 1}, at("cr", "cr?"), Decision{Delete: []string{"a"}}},
		{"money comes before load", Policy{Replicas: 1}, at("crdb", "cr"), Decision{Delete: []string{"a"}}},
		{"but a few cents do not", Policy{Replicas: 1}, at("cr+b", "cr"), Decision{Delete: []string{"b"}}},
		{"prices are compared with the dearest: 0.97 is less than 1.04, though neither differs from 1", Policy{Replicas: 1}, at("cr-", "crb", "crb+"), Decision{Delete: []string{"c", "b"}}},
		{"an unknown price differs from all", Policy{Replicas: 1}, at("crb", "cr0"), Decision{Delete: []string{"a"}}},
		{"but not in place of those that answer", Policy{Replicas: 1}, at("cds", "cr"), Decision{Delete: []string{"a"}}},
		{"zero replicas delete all, whatever their template", Policy{}, at("r", "cr"), Decision{Delete: []string{"a", "b"}}},

		{"an edit in place takes the newest first, one at a time", three, at("r", "r", "r"), Decision{Update: []string{"c"}, IsRolling: true}},
		{"the next one follows when that is ready", three, at("r", "r", "c"), Decision{IsRolling: true}},
		{"and not before", three, at("r", "r", "cr"), Decision{Update: []string{"b"}, IsRolling: true}},
		{"nor before that has been ready for a while", three, at("r", "r", "cu"), Decision{IsRolling: true}},
		{"a surplus replica has to prove itself, too", three, at("rf", "rf", "rf", "cu"), Decision{IsRolling: true}},
		{"a replica that is not ready goes first, and costs no readiness", three, at("", "r", "r"), Decision{Update: []string{"a"}, IsRolling: true}},
		{"a broken replica keeps the rest from the edit", three, at("r", "c", "r"), Decision{IsRolling: true}},
		{"several may be unavailable", Policy{Replicas: 3, MaxUnavailable: 2}, at("r", "r", "r"), Decision{Update: []string{"c", "b"}, IsRolling: true}},
		{"none may be unavailable: a surplus one comes first", Policy{Replicas: 3}, at("r", "r", "r"), Decision{Create: 1, IsRolling: true}},
		{"the last replica is never taken down for an edit", Policy{Replicas: 1, MaxUnavailable: 1}, at("r"), Decision{Create: 1, IsRolling: true}},
		{"an edit that leaves them ready needs no surplus one", Policy{Replicas: 3}, at("ra", "ra", "ra"), Decision{Update: []string{"c"}, IsRolling: true}},
		{"even for the last replica", Policy{Replicas: 1}, at("ra"), Decision{Update: []string{"a"}, IsRolling: true}},
		{"and still takes them one at a time", Policy{Replicas: 3}, at("ra", "ra", "c"), Decision{IsRolling: true}},
		{"which a partition limits", Policy{Replicas: 2, Partition: 1}, at("ra", "cr"), Decision{}},
		{"an edit of fixed fields replaces a replica", three, at("rf", "rf", "rf"), Decision{Create: 1, IsRolling: true}},
		{"the old one stays while the surplus one starts", three, at("rf", "rf", "rf", "c"), Decision{IsRolling: true}},
		{"and goes when that is ready", three, at("rf", "rf", "rf", "cr"), Decision{Delete: []string{"c"}, IsRolling: true}},
		{"an old one that is not ready may recover, and stays until then, too", three, at("rf", "rf", "f", "c"), Decision{IsRolling: true}},
		{"the next surplus one waits for the machines of the former", three, at("rf", "rf", "rfl", "cr"), Decision{IsRolling: true}},
		{"a surplus one without a machine gets that of an old one", three, at("rf", "rf", "rf", "cm"), Decision{Delete: []string{"c"}, IsRolling: true}},
		{"but not if no deletion frees what it lacks", three, at("rf", "rf", "rf", "cw"), Decision{IsRolling: true}},
		{"but not if none may be unavailable", Policy{Replicas: 3}, at("rf", "rf", "rf", "cm"), Decision{IsRolling: true}},
		{"one that is not ready gives its machine in any case", Policy{Replicas: 3}, at("rf", "rf", "f", "cm"), Decision{Delete: []string{"c"}, IsRolling: true}},
		{"and not the only one", Policy{Replicas: 1, MaxUnavailable: 1}, at("rf", "cm"), Decision{IsRolling: true}},
		{"after a second edit, the broken surplus one goes", three, at("rf", "rf", "rf", "f"), Decision{Delete: []string{"d"}, IsRolling: true}},
		{"after a rollback, too", three, at("cr", "cr", "cr", ""), Decision{Delete: []string{"d"}, IsRolling: true}},

		{"a rollback updates all that do not answer at once", Policy{Replicas: 3, MaxUnavailable: 1, IsRollback: true}, at("", "cm", "r"), Decision{Update: []string{"a"}, IsRolling: true}},
		{"and deletes a surplus one at once", Policy{Replicas: 2, MaxUnavailable: 1, IsRollback: true}, at("cr", "c", "f"), Decision{Delete: []string{"c"}, IsRolling: true}},
		{"and ignores a partition", Policy{Replicas: 3, MaxUnavailable: 1, Partition: 2, IsRollback: true}, at("cr", "cr", ""), Decision{Update: []string{"c"}, IsRolling: true}},
		{"but spares those that answer", Policy{Replicas: 3, MaxUnavailable: 1, IsRollback: true}, at("r", "r", "c"), Decision{IsRolling: true}},
		{"a set that cannot grow is updated as it is", Policy{Replicas: 5, MaxUnavailable: 1, NodeLimit: 3}, at("cr", "cr", ""), Decision{Update: []string{"c"}, IsRolling: true, IsLimited: true}},

		{"OnDelete leaves old replicas alone", Policy{Replicas: 2, OnDelete: true}, at("r", "r"), Decision{}},
		{"and gives new ones the edit", Policy{Replicas: 2, OnDelete: true}, at("r"), Decision{Create: 1}},
		{"a partition keeps that many", Policy{Replicas: 3, MaxUnavailable: 1, Partition: 2}, at("r", "r", "r"), Decision{Update: []string{"c"}, IsRolling: true}},
		{"and new replicas get the previous template", Policy{Replicas: 5, MaxUnavailable: 1, Partition: 4, CanRestore: true}, at("r", "r", "cr"), Decision{Create: 2, Restore: 2}},
		{"until that many have it", Policy{Replicas: 5, MaxUnavailable: 1, Partition: 3, CanRestore: true}, at("r", "r", "cr"), Decision{Create: 2, Restore: 1}},
		{"and scaling down deletes the others first", Policy{Replicas: 3, MaxUnavailable: 1, Partition: 3, CanRestore: true}, at("r", "r", "r", "cr"), Decision{Delete: []string{"d"}}},
		{"but unready ones before", Policy{Replicas: 3, MaxUnavailable: 1, Partition: 3, CanRestore: true}, at("r", "r", "", "cr"), Decision{Delete: []string{"c"}}},
		{"but not in a rollback", Policy{Replicas: 5, MaxUnavailable: 1, Partition: 4, CanRestore: true, IsRollback: true}, at("cr", "cr", "cr"), Decision{Create: 2}},
		{"nor if the previous template is unknown", Policy{Replicas: 5, MaxUnavailable: 1, Partition: 4}, at("r", "r", "cr"), Decision{Create: 2}},
		{"and no more", Policy{Replicas: 3, MaxUnavailable: 1, Partition: 2}, at("r", "r", "cr"), Decision{}},
		{"scaling down in a rollout keeps what is ready", Policy{Replicas: 1, MaxUnavailable: 1}, at("rf", "rf", "cr", "c"), Decision{Delete: []string{"d", "b"}, IsRolling: true}},

		{"a rollout that is held updates no other replica", Policy{Replicas: 3, MaxUnavailable: 3, IsHeld: true}, at("cr", "cr", "r"), Decision{IsRolling: true}},
		{"nor one that is not ready", Policy{Replicas: 3, MaxUnavailable: 3, IsHeld: true}, at("cr", "r", ""), Decision{IsRolling: true}},
		{"and creates no surplus one", Policy{Replicas: 2, IsHeld: true}, at("cr", "rf"), Decision{IsRolling: true}},
		{"and deletes none for one without a machine", Policy{Replicas: 2, MaxUnavailable: 2, IsHeld: true}, at("cr", "r", "cm"), Decision{IsRolling: true}},
		{"and new replicas get the previous template", Policy{Replicas: 5, MaxUnavailable: 1, IsHeld: true, CanRestore: true}, at("cr", "r"), Decision{Create: 3, Restore: 3, IsRolling: true}},
		{"scaling down leaves one with the previous template", Policy{Replicas: 1, MaxUnavailable: 2, IsHeld: true, CanRestore: true}, at("r", "r", "r", "cr", "cr"), Decision{Delete: []string{"e", "c", "b"}, IsRolling: true}},

		{"the limit of machines allows some", Policy{Replicas: 5, NodeLimit: 3}, at("cr"), Decision{Create: 2, IsLimited: true}},
		{"machines of those that leave count", Policy{Replicas: 3, NodeLimit: 3}, at("cr", "crl"), Decision{Create: 1, IsLimited: true}},
		{"replicas of several machines need room for all", Policy{Replicas: 5, NodeLimit: 5}, at("cr2"), Decision{Create: 1, IsLimited: true}},
		{"before the first plan, one is created", Policy{Replicas: 5, NodeLimit: 3}, nil, Decision{Create: 1, IsLimited: true}},
		{"and no other until that has one", Policy{Replicas: 5, NodeLimit: 3}, at("cn"), Decision{IsLimited: true}},
		{"without room for a surplus one, an old one makes room", Policy{Replicas: 3, MaxUnavailable: 1, NodeLimit: 3}, at("rf", "rf", "rf"), Decision{Delete: []string{"c"}, IsRolling: true}},
		{"unless none may be unavailable", Policy{Replicas: 3, NodeLimit: 3}, at("rf", "rf", "rf"), Decision{IsRolling: true, IsLimited: true}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Decide(test.policy, test.have)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	first := Names("chat", "uid", nil, 3)
	existing := []Replica{{Name: first[0]}, {Name: first[2]}}
	tests := []struct {
		reason    string
		got, want []string
	}{
		{"the same arguments give the same names", Names("chat", "uid", nil, 3), first},
		{"names in use are left out", Names("chat", "uid", existing, 1), first[1:2]},
		{"there is always another name", Names("chat", "uid", existing, 2)[:1], first[1:2]},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
	}
	if other := Names("chat", "other", nil, 1); other[0] == first[0] {
		t.Errorf("a set that is created again has the name %s of a former replica", other[0])
	}
	seen := map[string]bool{}
	for _, name := range Names("chat", "uid", nil, 1000) {
		if seen[name] || len(name) != len("chat")+NameOverhead {
			t.Fatalf("name %q is not new, or has not %d characters more than its set", name, NameOverhead)
		}
		seen[name] = true
	}
}

func ExampleNames() {
	fmt.Println(Names("chat", "6f1c2a52-3f7c-4d0e-9a55-0f6f9f6a1a11", nil, 2))
	// Output: [chat-7z4wb chat-7wx64]
}
