// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package models decides which replicas serve a model's name. It builds one table of all names from the objects in the
// cluster. A name belongs to its oldest owner, so that no later Workspace can take over the requests of an earlier one.
//
// It must not know HTTP, clients or where the objects come from.
package models

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/router/balance"
)

// Owner is a Workspace without a set, or a set with its Workspaces.
type Owner struct {
	Namespace, Name string
	// Kind is Workspace or KindSet.
	Kind    string
	Created time.Time
	// Names are the names that the engines serve, the main one first. While no engine answers, they are the expected
	// names.
	Names []string
	// Loading are adapters that no replica serves yet: a replica loads them now, or will do so when it starts. None of
	// them is in Names.
	Loading []string
	// Replicas are the addresses of the ready pods, HOST:PORT.
	Replicas []string
	// Partial has the replicas of names that only some of Replicas serve, such as adapters that are still loading
	// elsewhere.
	Partial map[string][]string
	// Canary has the replicas with a new template and their share of the requests; nil if all have the same template.
	Canary *balance.Canary
	// Problem is the reason for clients why no pod answers.
	Problem Problem
	// IsWakeable: waiting requests can start replicas. IsAsleep: the number of replicas is set to 0.
	IsWakeable, IsAsleep bool
	// Woken is when a router or a person last requested a replica of the set; zero means never.
	Woken time.Time
}

// KindSet is the kind of an owner that is a set.
const KindSet = "InferenceSet"

// Problem is the reason why an owner has no replicas.
type Problem struct {
	// Reason and Message come from the condition; empty if there is no condition yet.
	Reason, Message string
	// Stalled: nothing changes until a person acts.
	Stalled bool
}

// Model is a name and its owner.
type Model struct {
	Name  string
	Owner *Owner
}

// ID returns NAMESPACE:NAME. It always identifies this owner, even if other owners have the same name.
func (o *Owner) ID() string { return o.Namespace + Separator + o.Name }

// Served returns the engine's name of the model for the name in a request.
func (o *Owner) Served(name string) string {
	if name == o.ID() && len(o.Names) > 0 {
		return o.Names[0]
	}
	return name
}

// ReplicasOf returns the ready replicas that serve a name of the owner.
func (o *Owner) ReplicasOf(name string) []string {
	if some, isPartial := o.Partial[name]; isPartial {
		return some
	}
	if slices.Contains(o.Loading, name) {
		return nil
	}
	return o.Replicas
}

// Separator separates the namespace and the name in an ID. No name on the Hugging Face Hub contains it.
const Separator = ":"

// Conflict is a name that several owners claim.
type Conflict struct {
	Name string
	// Owners are the IDs of the owners. The first one has the name.
	Owners []string
}

// Table has the models. It is immutable.
type Table struct {
	byID   map[string]*Owner
	byName map[string][]*Owner // the oldest first
	// byLoading has the owners that load an adapter of this name, the oldest first. They come after all owners that serve
	// the name: an adapter that never loads must not take it from them.
	byLoading map[string][]*Owner
	sets      map[string]*Owner // by ID
}

// New returns a table of the owners.
func New(owners []Owner) *Table {
	sorted := slices.Clone(owners)
	slices.SortFunc(sorted, func(a, b Owner) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID(), b.ID()), strings.Compare(a.Kind, b.Kind))
	})
	t := &Table{byID: map[string]*Owner{}, byName: map[string][]*Owner{}, byLoading: map[string][]*Owner{}, sets: map[string]*Owner{}}
	for i := range sorted {
		owner := &sorted[i]
		slices.Sort(owner.Replicas)
		for _, some := range owner.Partial {
			slices.Sort(some)
		}
		if _, taken := t.byID[owner.ID()]; !taken {
			t.byID[owner.ID()] = owner
		}
		if owner.Kind == KindSet {
			t.sets[owner.ID()] = owner
		}
		enter(t.byName, owner, owner.Names)
		enter(t.byLoading, owner, owner.Loading)
	}
	return t
}

func enter(index map[string][]*Owner, owner *Owner, names []string) {
	for _, name := range names {
		if list := index[name]; name != "" && !slices.Contains(list, owner) {
			index[name] = append(list, owner)
		}
	}
}

// Set returns the set with an ID, or nil.
func (t *Table) Set(id string) *Owner { return t.sets[id] }

// Now returns the present state of an owner, or nil. Find would return an older owner with the same ID.
func (t *Table) Now(owner *Owner) *Owner {
	if owner.Kind == KindSet {
		return t.sets[owner.ID()]
	}
	if now := t.byID[owner.ID()]; now != nil && now.Kind == owner.Kind {
		return now
	}
	return nil
}

// Find returns the oldest owner of a name in the visible namespaces. Without one, it returns the oldest owner with a
// loading adapter of that name, or nil. If the name is an owner's ID, Find returns that owner.
func (t *Table) Find(name string, sees func(namespace string) bool) *Owner {
	if owner := t.byID[name]; owner != nil {
		if sees(owner.Namespace) {
			return owner
		}
		return nil
	}
	for _, owners := range [][]*Owner{t.byName[name], t.byLoading[name]} {
		for _, owner := range owners {
			if sees(owner.Namespace) {
				return owner
			}
		}
	}
	return nil
}

// Namespaces returns the namespaces of all possible owners of a name. For an empty name, it returns all owners'
// namespaces.
func (t *Table) Namespaces(name string) []string {
	var out []string
	add := func(owner *Owner) {
		if !slices.Contains(out, owner.Namespace) {
			out = append(out, owner.Namespace)
		}
	}
	switch owner := t.byID[name]; {
	case name == "":
		for _, owner := range t.byID {
			add(owner)
		}
	case owner != nil:
		add(owner)
	default:
		for _, owners := range [][]*Owner{t.byName[name], t.byLoading[name]} {
			for _, owner := range owners {
				add(owner)
			}
		}
	}
	slices.Sort(out)
	return out
}

// List returns the models of the visible namespaces, sorted by name. If older owners have all names of an owner, List
// uses the ID as its name.
func (t *Table) List(sees func(namespace string) bool) []Model {
	var out []Model
	isListed := map[*Owner]bool{}
	for name := range t.byName {
		if owner := t.Find(name, sees); owner != nil {
			out = append(out, Model{Name: name, Owner: owner})
			isListed[owner] = isListed[owner] || slices.Contains(owner.Names, name)
		}
	}
	for name := range t.byLoading {
		if owner := t.Find(name, sees); owner != nil && len(t.byName[name]) == 0 {
			out = append(out, Model{Name: name, Owner: owner})
		}
	}
	for id, owner := range t.byID {
		if !isListed[owner] && len(owner.Names) > 0 && sees(owner.Namespace) {
			out = append(out, Model{Name: id, Owner: owner})
		}
	}
	slices.SortFunc(out, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Conflicts returns the names with several owners, sorted by name.
func (t *Table) Conflicts() []Conflict {
	var out []Conflict
	for name, owners := range t.byName {
		if len(owners) < 2 {
			continue
		}
		conflict := Conflict{Name: name}
		for _, owner := range owners {
			if !slices.Contains(conflict.Owners, owner.ID()) { // a Workspace and a set may have the same ID
				conflict.Owners = append(conflict.Owners, owner.ID())
			}
		}
		if len(conflict.Owners) > 1 {
			out = append(out, conflict)
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int { return strings.Compare(a.Name, b.Name) })
	return out
}
