// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package models decides the replicas for the name of a model: one table for all names, from the facts of the cluster.
// A name belongs to its oldest owner, so no later Workspace can take another one's requests.
//
// It must not know HTTP, clients or the source of the facts.
package models

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Owner is a Workspace without a set, or a set with its Workspaces.
type Owner struct {
	Namespace, Name string
	// Kind is Workspace or InferenceSet.
	Kind    string
	Created time.Time
	// Names are the engines' names, the main one first, and expected ones while no engine answers.
	Names []string
	// Replicas are the addresses of the ready pods, HOST:PORT.
	Replicas []string
	// Problem is why no pod answers, for clients.
	Problem Problem
	// IsWakeable: replicas may be started because requests wait. IsAsleep: the number of replicas is 0.
	IsWakeable, IsAsleep bool
}

// Problem is why an owner has no replicas.
type Problem struct {
	// Reason of the condition; empty if there is no condition yet.
	Reason, Message string
	// Stalled: nothing happens until a person acts.
	Stalled bool
}

// Model is a name and its owner.
type Model struct {
	Name  string
	Owner *Owner
}

// ID is the name that always means this owner, whatever others are called.
func (o *Owner) ID() string { return o.Namespace + Separator + o.Name }

// Served returns the engine's name for the name in a request.
func (o *Owner) Served(name string) string {
	if name == o.ID() && len(o.Names) > 0 {
		return o.Names[0]
	}
	return name
}

// Separator is between namespace and name. No name of a hub contains it.
const Separator = ":"

// Conflict is a name with several owners in one scope.
type Conflict struct {
	Name string
	// Owners are their IDs; the first one has the name.
	Owners []string
}

// Table has the models. It never changes.
type Table struct {
	byID   map[string]*Owner
	byName map[string][]*Owner // the oldest first
}

// New returns the table of owners.
func New(owners []Owner) *Table {
	sorted := slices.Clone(owners)
	slices.SortFunc(sorted, func(a, b Owner) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID(), b.ID()), strings.Compare(a.Kind, b.Kind))
	})
	t := &Table{byID: map[string]*Owner{}, byName: map[string][]*Owner{}}
	for i := range sorted {
		owner := &sorted[i]
		slices.Sort(owner.Replicas)
		if _, taken := t.byID[owner.ID()]; !taken {
			t.byID[owner.ID()] = owner
		}
		for _, name := range owner.Names {
			if list := t.byName[name]; name != "" && !slices.Contains(list, owner) {
				t.byName[name] = append(list, owner)
			}
		}
	}
	return t
}

// Find returns the owner of a name in a visible namespace, or nil. NAMESPACE:NAME finds the owner with that name.
func (t *Table) Find(name string, sees func(namespace string) bool) *Owner {
	if owner := t.byID[name]; owner != nil {
		if sees(owner.Namespace) {
			return owner
		}
		return nil
	}
	for _, owner := range t.byName[name] {
		if sees(owner.Namespace) {
			return owner
		}
	}
	return nil
}

// Namespaces returns the namespaces of all owners that a name may mean, or of all owners for an empty name.
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
		for _, owner := range t.byName[name] {
			add(owner)
		}
	}
	slices.Sort(out)
	return out
}

// List returns the models of the visible namespaces, by name. An owner without a name of its own, because older ones
// have all of them, is listed by its ID.
func (t *Table) List(sees func(namespace string) bool) []Model {
	var out []Model
	isListed := map[*Owner]bool{}
	for name := range t.byName {
		if owner := t.Find(name, sees); owner != nil {
			out = append(out, Model{Name: name, Owner: owner})
			isListed[owner] = true
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

// Conflicts returns the names with several owners, by name.
func (t *Table) Conflicts() []Conflict {
	var out []Conflict
	for name, owners := range t.byName {
		if len(owners) < 2 {
			continue
		}
		conflict := Conflict{Name: name}
		for _, owner := range owners {
			if !slices.Contains(conflict.Owners, owner.ID()) { // a Workspace and a set may have one ID
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
