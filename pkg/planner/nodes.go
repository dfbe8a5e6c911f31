// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Node is a machine that is there. What others use of it is theirs.
type Node struct {
	// Name of the node, and the zone that it is in; empty where it has none.
	Name, Zone string
	// Machine is what the node is. It may be zero where Unusable is set.
	Machine sku.Machine
	// CapacityType of the machine, if it is known.
	CapacityType v1beta1.CapacityType
	// FreeGPUs, FreeVCPUs, FreeMemoryGiB and FreeDiskGiB are what no pod has requested; the disk is
	// negative where nothing is known of it.
	FreeGPUs      int
	FreeVCPUs     int
	FreeMemoryGiB float64
	FreeDiskGiB   float64
	// Preferred says that the user names the node in resource.preferredNodes.
	Preferred bool
	// Unusable says why the node is not used, for example because it is cordoned; empty where it may be.
	Unusable string
	// Foreign says that it is used by somebody whom who plans need not be allowed to see: it is counted, and
	// not named in messages.
	Foreign bool
}

// machine is the node with what is free of it.
func (n *Node) machine() machine {
	m := machine{SKU: n.Machine.SKU, gpu: n.Machine.GPU, spotPrice: unpriced, fullGPUs: n.Machine.SKU.GPUs}
	m.Name = cmp.Or(m.Name, "existing node")
	m.GPUs, m.VCPUs, m.MemoryGiB, m.LocalDiskGiB = n.FreeGPUs, n.FreeVCPUs, n.FreeMemoryGiB, n.FreeDiskGiB
	if m.LinkedGPUs < m.fullGPUs && m.GPUs < m.fullGPUs {
		m.LinkedGPUs = 0 // nothing says which GPUs a pod is given: bridged ones may be apart
	}
	return m
}

// nodeKind is what nodes of one group have in common: a model that spreads over several needs them equal
// and near each other.
type nodeKind struct {
	zone, name, gpu    string
	memoryGiB          float64
	gpus, linked       int
	networkGBs         float64
	capability, reason string
	foreign            bool
}

// kind of a node that is used, or is not for a reason.
func (n *Node) kind(reason string) nodeKind {
	s, g := &n.Machine.SKU, &n.Machine.GPU
	return nodeKind{
		zone: n.Zone, name: s.Name, gpu: g.Name, memoryGiB: g.MemoryGiB, capability: g.ComputeCapability,
		gpus: s.GPUs, linked: s.LinkedGPUs, networkGBs: s.NetworkGBs, reason: reason,
		foreign: n.Foreign,
	}
}

// nodeGroup is equal nodes by name, with why they are not used.
type nodeGroup struct {
	kind  nodeKind
	nodes []Node
}

// groups sorts nodes into groups. barred says why a node is not used.
func groups(nodes []Node, barred func(*Node) string) []nodeGroup {
	byKind := map[nodeKind]*nodeGroup{}
	var out []*nodeGroup
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
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

// machines are what a group offers: nodes with at least so many free GPUs each, for every number of GPUs
// that one of them has free. What else is free of them is that of the fullest.
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

// firstUsed orders equal nodes: what the user prefers, then what leaves the fewest GPUs idle.
func firstUsed(a, b Node) int {
	return cmp.Or(boolOrder(a.Preferred, b.Preferred), cmp.Compare(a.FreeGPUs, b.FreeGPUs), cmp.Compare(a.Name, b.Name))
}

// names of nodes.
func names(nodes []Node) []string {
	out := make([]string, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Name
	}
	return out
}
