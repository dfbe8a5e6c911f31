// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
)

// components returns the strongly connected components of a graph: the largest sets of nodes with a path from each to
// each. A component comes after the components in its reach (Tarjan, "Depth-first search and linear graph algorithms",
// 1972).
func components(edges map[string][]string) [][]string {
	t := tarjan{edges: edges, index: map[string]int{}, low: map[string]int{}, isOpen: map[string]bool{}}
	for _, node := range slices.Sorted(maps.Keys(edges)) {
		if t.index[node] == 0 {
			t.visit(node)
		}
	}
	return t.out
}

type tarjan struct {
	edges map[string][]string
	// index is the order of the visits to nodes, from 1. low is the smallest index in a node's reach.
	index, low map[string]int
	open       []string
	isOpen     map[string]bool
	out        [][]string
}

func (t *tarjan) visit(node string) {
	t.index[node] = len(t.index) + 1
	t.low[node] = t.index[node]
	t.open, t.isOpen[node] = append(t.open, node), true
	for _, next := range t.edges[node] {
		if t.index[next] == 0 {
			t.visit(next)
			t.low[node] = min(t.low[node], t.low[next])
		} else if t.isOpen[next] {
			t.low[node] = min(t.low[node], t.index[next])
		}
	}
	if t.low[node] != t.index[node] {
		return
	}
	at := slices.Index(t.open, node)
	component := slices.Clone(t.open[at:])
	t.open = t.open[:at]
	for _, member := range component {
		t.isOpen[member] = false
	}
	t.out = append(t.out, component)
}

// depths returns the number of nodes on the longest path from each node. All nodes that can reach each other count.
func depths(edges map[string][]string) map[string]int {
	out := map[string]int{}
	for _, component := range components(edges) { // the depths that it can reach are known
		deepest := 0
		for _, node := range component {
			for _, next := range edges[node] {
				if !slices.Contains(component, next) {
					deepest = max(deepest, out[next])
				}
			}
		}
		for _, node := range component {
			out[node] = deepest + len(component)
		}
	}
	return out
}
