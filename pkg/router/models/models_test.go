// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package models

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func owners() []Owner {
	at := func(minute int) time.Time { return time.Date(2026, 11, 24, 12, minute, 0, 0, time.UTC) }
	return []Owner{
		{Namespace: "a", Name: "new", Created: at(3), Names: []string{"phi", "phi-4"}},
		{Namespace: "a", Name: "old", Created: at(1), Names: []string{"phi", "org/phi"}, Replicas: []string{"10.0.0.2:5000", "10.0.0.1:5000"}},
		{Namespace: "b", Name: "thief", Created: at(2), Names: []string{"phi", "a:old"}},
		{Namespace: "b", Name: "asleep", Created: at(2), Names: []string{"asleep", ""}},
	}
}

func TestFind(t *testing.T) {
	all := func(string) bool { return true }
	only := func(want string) func(string) bool { return func(namespace string) bool { return namespace == want } }
	cases := []struct {
		reason, name string
		sees         func(string) bool
		want         string
	}{
		{"the oldest owner keeps its name", "phi", all, "a:old"},
		{"a tenant sees its own owner of the name", "phi", only("b"), "b:thief"},
		{"a tenant does not see another one's model", "org/phi", only("b"), ""},
		{"a name of its own", "phi-4", all, "a:new"},
		{"the full name, whatever others claim", "a:old", all, "a:old"},
		{"the full name of another tenant, though one of the tenant's own claims it", "a:old", only("b"), ""},
		{"an empty name is no name", "", all, ""},
		{"a name that nobody has", "gpt", all, ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got := ""
			if owner := New(owners()).Find(c.name, c.sees); owner != nil {
				got = owner.ID()
			}
			if got != c.want {
				t.Errorf("%q belongs to %q, want %q", c.name, got, c.want)
			}
		})
	}
}

func TestListAndConflicts(t *testing.T) {
	type row struct{ Name, Owner string }
	var first []row
	for seed := range uint64(20) {
		list := owners()
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		table := New(list)
		var got []row
		for _, m := range table.List(func(string) bool { return true }) {
			got = append(got, row{m.Name, m.Owner.ID()})
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Fatalf("the order of the facts changes the list:\n%s", diff)
		}
		want := []Conflict{{Name: "phi", Owners: []string{"a:old", "b:thief", "a:new"}}}
		if diff := cmp.Diff(want, table.Conflicts()); diff != "" {
			t.Errorf("conflicts (-want +got):\n%s", diff)
		}
	}
	want := []row{{"a:old", "a:old"}, {"asleep", "b:asleep"}, {"b:thief", "b:thief"}, {"org/phi", "a:old"}, {"phi", "a:old"}, {"phi-4", "a:new"}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:5000", "10.0.0.2:5000"}, New(owners()).Find("org/phi", func(string) bool { return true }).Replicas); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
}

// TestShadowedOwnerIsListed: an owner stays in the list if older owners have all of its names.
func TestShadowedOwnerIsListed(t *testing.T) {
	list := append(owners(), Owner{Namespace: "b", Name: "twin", Created: owners()[0].Created, Names: []string{"phi"}}, Owner{Namespace: "b", Name: "nameless"})
	var got []string
	for _, m := range New(list).List(func(namespace string) bool { return namespace == "b" }) {
		got = append(got, m.Name+" of "+m.Owner.ID())
	}
	if diff := cmp.Diff([]string{"asleep of b:asleep", "b:twin of b:twin", "phi of b:thief"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSameTime: if two owners were created at the same time, the same one always gets the name.
func TestSameTime(t *testing.T) {
	a, b := Owner{Namespace: "a", Name: "x", Names: []string{"phi"}}, Owner{Namespace: "a", Name: "y", Names: []string{"phi"}}
	for _, list := range [][]Owner{{a, b}, {b, a}} {
		if got := New(list).Find("phi", func(string) bool { return true }).ID(); got != "a:x" {
			t.Errorf("the name belongs to %s", got)
		}
	}
}

// TestLoading: an adapter that loads belongs to an owner only if nobody serves its name, and has no replica yet.
func TestLoading(t *testing.T) {
	list := append(owners(), Owner{Namespace: "b", Name: "eldest", Names: []string{"b"}, Loading: []string{"phi", "lora"}, Replicas: []string{"10.0.0.9:5000"}},
		Owner{Namespace: "c", Name: "late", Created: time.Now(), Loading: []string{"lora"}})
	cases := []struct{ reason, name, namespace, want string }{
		{"an adapter that nobody serves", "lora", "", "b:eldest"},
		{"an older owner loads an adapter with the name of a served model", "phi", "", "a:old"},
		{"a tenant sees its own owner", "lora", "c", "c:late"},
		{"a tenant does not see another one's adapter", "lora", "a", ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got := ""
			if owner := New(list).Find(c.name, func(namespace string) bool { return c.namespace == "" || namespace == c.namespace }); owner != nil {
				got = owner.ID()
			}
			if got != c.want {
				t.Errorf("%q belongs to %q, want %q", c.name, got, c.want)
			}
		})
	}
	table, all := New(list), func(string) bool { return true }
	if got := table.Find("lora", all).ReplicasOf("lora"); got != nil {
		t.Errorf("an adapter that loads has the replicas %q", got)
	}
	if diff := cmp.Diff([]string{"b", "c"}, table.Namespaces("lora")); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	var listed []string
	for _, m := range table.List(func(namespace string) bool { return namespace != "a" }) {
		listed = append(listed, m.Name+" of "+m.Owner.ID())
	}
	if diff := cmp.Diff([]string{"asleep of b:asleep", "b of b:eldest", "lora of b:eldest", "phi of b:thief"}, listed); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
}

func TestNamespaces(t *testing.T) {
	table := New(owners())
	for name, want := range map[string][]string{
		"": {"a", "b"}, "phi": {"a", "b"}, "phi-4": {"a"}, "a:old": {"a"}, "gpt": nil,
	} {
		if diff := cmp.Diff(want, table.Namespaces(name)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}
