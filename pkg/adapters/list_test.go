// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package adapters

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	commit = "@0123456789012345678901234567890123456789"
	digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
)

func hubbed(name, revision string) Adapter {
	return Adapter{Name: name, Repository: "org/" + name + revision}
}

func TestDecode(t *testing.T) {
	good := List{
		Adapters: []Adapter{hubbed("support", ""), {Name: "a.b-1", Image: "registry.example/a:1", Path: "x/y"}},
		Gone:     []Adapter{hubbed("sales", commit)},
	}
	got, err := Decode(good.Encode())
	if diff := cmp.Diff(good, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, tc := range []struct{ reason, text string }{
		{"no JSON", "pending"},
		{"an unknown field", `{"adapters":[{"name":"a","repository":"o/a","dest":"/models"}]}`},
		{"a name that leads out of the directory", `{"adapters":[{"name":"..","repository":"o/a"}]}`},
		{"a name with a path", `{"adapters":[{"name":"../../models","repository":"o/a"}]}`},
		{"a path that leads out of the source", `{"adapters":[{"name":"a","repository":"o/a","path":"../b"}]}`},
		{"an absolute path", `{"adapters":[{"name":"a","repository":"o/a","path":"/etc"}]}`},
		{"a name twice", `{"adapters":[{"name":"a","repository":"o/a"},{"name":"a","repository":"o/b"}]}`},
		{"no source", `{"adapters":[{"name":"a"}]}`},
		{"two sources", `{"adapters":[{"name":"a","repository":"o/a","image":"x"}]}`},
		{"too many", List{Adapters: make([]Adapter, most+1)}.Encode()},
		{"a name that is no host name", `{"adapters":[{"name":"A B","repository":"o/a"}]}`},
		{"a name that is too long", `{"adapters":[{"name":"` + strings.Repeat("a", 254) + `","repository":"o/a"}]}`},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got, err := Decode(tc.text); err == nil {
				t.Errorf("accepted as %v", got)
			}
		})
	}
}

// TestNext: a running engine never gets other files under a name that it has served.
func TestNext(t *testing.T) {
	a, b, pinned := hubbed("a", ""), hubbed("b", ""), hubbed("p", commit)
	for _, tc := range []struct {
		reason   string
		now      List
		want     []Adapter
		next     List
		isReused bool
	}{
		{reason: "the first list", want: []Adapter{a}, next: List{Adapters: []Adapter{a}}},
		{reason: "one more", now: List{Adapters: []Adapter{a}}, want: []Adapter{a, b}, next: List{Adapters: []Adapter{a, b}}},
		{reason: "one less", now: List{Adapters: []Adapter{a, b}}, want: []Adapter{b}, next: List{Adapters: []Adapter{b}, Gone: []Adapter{a}}},
		{reason: "settled", now: List{Adapters: []Adapter{b}, Gone: []Adapter{a}}, want: []Adapter{b}, next: List{Adapters: []Adapter{b}, Gone: []Adapter{a}}},
		{reason: "none is left", now: List{Adapters: []Adapter{b}, Gone: []Adapter{a}}, next: List{Gone: []Adapter{a, b}}},
		{reason: "another order", now: List{Adapters: []Adapter{a, b}}, want: []Adapter{b, a}, next: List{Adapters: []Adapter{b, a}}},
		{reason: "other files under a loaded name", now: List{Adapters: []Adapter{a}}, want: []Adapter{hubbed("a", commit)}, isReused: true},
		{reason: "another path under a loaded name", now: List{Adapters: []Adapter{a}}, want: []Adapter{{Name: "a", Repository: "org/a", Path: "x"}}, isReused: true},
		{reason: "other files under a former name", now: List{Gone: []Adapter{pinned}}, want: []Adapter{hubbed("p", "")}, isReused: true},
		{reason: "a branch may have moved meanwhile", now: List{Gone: []Adapter{a}}, want: []Adapter{a}, isReused: true},
		{reason: "a commit cannot move", now: List{Gone: []Adapter{a, pinned}}, want: []Adapter{pinned}, next: List{Adapters: []Adapter{pinned}, Gone: []Adapter{a}}},
		{
			reason: "nor can a digest", now: List{Gone: []Adapter{{Name: "i", Image: "r.example/i" + digest}}},
			want: []Adapter{{Name: "i", Image: "r.example/i" + digest}}, next: List{Adapters: []Adapter{{Name: "i", Image: "r.example/i" + digest}}},
		},
		{reason: "a tag can", now: List{Gone: []Adapter{{Name: "i", Image: "r.example/i:1"}}}, want: []Adapter{{Name: "i", Image: "r.example/i:1"}}, isReused: true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			next, err := tc.now.Next(tc.want)
			if errors.Is(err, errReused) != tc.isReused || (err != nil) != tc.isReused {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tc.next.Encode(), next.Encode()); diff != "" && err == nil {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestKeep: an adapter stays listed until the status lacks it.
func TestKeep(t *testing.T) {
	a, b, c := hubbed("a", ""), hubbed("b", ""), hubbed("c", "")
	former := List{Adapters: []Adapter{a, b}, Gone: []Adapter{c}}
	next, err := former.Next([]Adapter{b})
	if err != nil {
		t.Fatal(err)
	}
	kept, isDelayed := next.Keep(former, []string{"a", "b"})
	if diff := cmp.Diff(List{Adapters: []Adapter{b, a}, Gone: []Adapter{c}}, kept); diff != "" || !isDelayed {
		t.Errorf("delayed %v (-want +got):\n%s", isDelayed, diff)
	}
	later, err := kept.Next([]Adapter{b})
	if err != nil {
		t.Fatal(err)
	}
	final, isDelayed := later.Keep(kept, []string{"b"})
	if diff := cmp.Diff(List{Adapters: []Adapter{b}, Gone: []Adapter{a, c}}, final); diff != "" || isDelayed {
		t.Errorf("delayed %v (-want +got):\n%s", isDelayed, diff)
	}
}
