// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Node is an existing machine with its free resources.
type Node struct {
	// Name of the node, and its zone; the zone is empty if the node has none.
	Name, Zone string
	// Machine identifies the node. It may be zero if Unusable is set.
	Machine sku.Machine
	// CapacityType of the machine, if known.
	CapacityType v1beta1.CapacityType
	// FreeGPUs, FreeVCPUs, FreeMemoryGiB and FreeDiskGiB are the resources that no pod requests. FreeDiskGiB is
	// negative if unknown.
	FreeGPUs      int
	FreeVCPUs     int
	FreeMemoryGiB float64
	FreeDiskGiB   float64
	// Preferred: the user lists the node in resource.preferredNodes.
	Preferred bool
	// Part names the GPUs of one size on a node that offers several sizes, such as "slices of 1g.10gb". Such a node has
	// one Node per size. Empty for other nodes.
	Part string
	// Unusable is the reason why the node cannot be used, for example because it is cordoned; empty otherwise.
	Unusable string
	// Foreign: the reader of a plan may not be allowed to see who uses the node, so messages count it and do not name
	// it.
	Foreign bool
}

// machine returns the node with its free resources.
func (n *Node) machine() machine {
	m := machine{SKU: n.Machine.SKU, gpu: n.Machine.GPU, spotPrice: unpriced, fullGPUs: n.Machine.SKU.GPUs}
	m.Name = cmp.Or(m.Name, "existing node")
	m.GPUs, m.VCPUs, m.MemoryGiB, m.LocalDiskGiB = n.FreeGPUs, n.FreeVCPUs, n.FreeMemoryGiB, n.FreeDiskGiB
	if m.LinkedGPUs < m.fullGPUs && m.GPUs < m.fullGPUs {
		m.LinkedGPUs = 0 // which GPUs a pod gets is unknown, and they may not share a bridge
	}
	return m
}

// nodeKind holds the properties that the nodes of a group share: a model over several nodes needs equal ones in one
// zone.
type nodeKind struct {
	zone, name, gpu    string
	resource           string
	memoryGiB          float64
	gpus, linked       int
	networkGBs         float64
	capability, reason string
	part               string
	foreign            bool
}

// kind returns the kind of a node; reason says why it cannot be used.
func (n *Node) kind(reason string) nodeKind {
	s, g := &n.Machine.SKU, &n.Machine.GPU
	return nodeKind{
		zone: n.Zone, name: s.Name, gpu: g.Name, resource: s.Resource, memoryGiB: g.MemoryGiB, capability: g.ComputeCapability,
		gpus: s.GPUs, linked: s.LinkedGPUs, networkGBs: s.NetworkGBs, reason: reason,
		part: n.Part, foreign: n.Foreign,
	}
}

// nodeGroup is a set of equal nodes, sorted by name.
type nodeGroup struct {
	kind  nodeKind
	nodes []Node
}

// groups divides nodes into groups. barred returns the reason why a node cannot be used.
func groups(nodes []Node, barred func(*Node) string) []nodeGroup {
	byKind := map[nodeKind]*nodeGroup{}
	var out []*nodeGroup
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Node) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Part, b.Part)) })
	for i := range sorted {
		kind := sorted[i].kind(barred(&sorted[i]))
		if byKind[kind] == nil {
			byKind[kind] = &nodeGroup{kind: kind}
			out = append(out, byKind[kind])
		}
		byKind[kind].nodes = append(byKind[kind].nodes, sorted[i])
	}
	grouped := make([]nodeGroup, len(out))
	for i, g := range out {
		grouped[i] = *g
	}
	return grouped
}

// machines returns the ways to use a group. For each number of free GPUs on one of its nodes, there is a machine that
// covers the nodes with at least as many. Its other free resources are those of the fullest of these nodes.
func (g *nodeGroup) machines() []machine {
	free := make([]int, len(g.nodes))
	for i := range g.nodes {
		free[i] = g.nodes[i].FreeGPUs
	}
	slices.Sort(free)
	free = slices.Compact(free)
	out := make([]machine, 0, len(free))
	for _, least := range free {
		enough := slices.DeleteFunc(slices.Clone(g.nodes), func(n Node) bool { return n.FreeGPUs < least })
		slices.SortFunc(enough, firstUsed)
		m := enough[0].machine()
		m.there = enough
		for i := range enough {
			other := enough[i].machine()
			m.GPUs, m.VCPUs, m.MemoryGiB = min(m.GPUs, other.GPUs), min(m.VCPUs, other.VCPUs), min(m.MemoryGiB, other.MemoryGiB)
			m.LinkedGPUs = min(m.LinkedGPUs, other.LinkedGPUs)
		}
		out = append(out, m)
	}
	return out
}

// firstUsed orders equal nodes: preferred ones first, then the fewest idle GPUs.
func firstUsed(a, b Node) int {
	return cmp.Or(boolOrder(a.Preferred, b.Preferred), cmp.Compare(a.FreeGPUs, b.FreeGPUs), cmp.Compare(a.Name, b.Name))
}

// names returns the nodes' names.
func names(nodes []Node) []string {
	out := make([]string, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Name
	}
	return out
}
