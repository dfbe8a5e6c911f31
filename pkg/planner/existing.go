// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

// find searches existing nodes first, then machines to buy, as far as the request allows each.
func (p *Planner) find(d demand, r Request) (outcome, error) {
	source := cmp.Or(r.NodeSource, v1beta1.NodeSourceAny)
	if source == v1beta1.NodeSourceProvisioned || source == v1beta1.NodeSourceAny && len(r.Nodes) == 0 {
		return p.search(d, r.Constraints)
	}
	there := p.onNodes(d, r)
	if source == v1beta1.NodeSourceExisting {
		if lenient, ok := yielding(d, r); ok && len(there.options) == 0 {
			there = p.onNodes(lenient, r)
		}
		if len(there.options) == 0 {
			return outcome{}, there.infeasible(r)
		}
		return there.outcome, nil
	}
	bought, err := p.search(d, r.Constraints)
	if short := bought.shorter(d); len(there.options) == 0 && short != nil {
		// A plan to buy machines would have shorter sequences. Existing nodes may hold those too, and they cost nothing
		// more.
		if again := p.onNodes(short, r); len(again.options) > 0 {
			there = again
		}
	}
	if len(there.options) == 0 {
		if err == nil && len(bought.options) == 0 {
			err = p.infeasible(r, bought)
		}
		if err != nil {
			return outcome{}, there.beside(err)
		}
	}
	return there.before(bought), nil
}

// yielding returns a demand that lowers the objectives the user left open, as for a named machine type: if nothing may
// be bought, a slow answer is better than none. It returns false if nothing can be lowered.
func yielding(d demand, r Request) (demand, bool) {
	m, ok := d.(*modelDemand)
	if !ok || m.named {
		return nil, false
	}
	out := *m
	out.named, out.target.shortest, out.floors = true, leastModelLen, floorsFor(r.Objectives, true)
	out.placements = nil
	return &out, true
}

// nodesFound is the result of a search among existing nodes.
type nodesFound struct {
	outcome
	// nodes is the number of nodes considered. largest is the verdict on the unsuitable group with the most GPU memory,
	// most GiB.
	nodes   int
	largest Verdict
	most    float64
	// foreign has the first node's name of each group that messages count and do not name.
	foreign map[string]bool
}

// onNodes places a demand on existing nodes.
func (p *Planner) onNodes(d demand, r Request) nodesFound {
	found := nodesFound{nodes: countNodes(r.Nodes), foreign: map[string]bool{}}
	for _, g := range groups(r.Nodes, func(n *Node) string { return barred(d, r, n) }) {
		found.consider(d, &g)
	}
	slices.SortStableFunc(found.options, byNodes(d))
	return found
}

// countNodes counts nodes. A node with several parts counts once.
func countNodes(nodes []Node) int {
	seen := make(map[string]bool, len(nodes))
	for i := range nodes {
		seen[nodes[i].Name] = true
	}
	return len(seen)
}

// barred returns the reason why a node cannot be used, whatever the model's size; "" if it can.
func barred(d demand, r Request, n *Node) string {
	m := n.machine()
	if reason := cmp.Or(n.Unusable, unwanted(r.Constraints, n, &m)); reason != "" {
		return reason
	}
	switch asked := max(r.Constraints.GPUs, r.templateGPUs()); {
	case m.fullGPUs > 0 && m.GPUs <= 0 && (asked > 0 || r.Model != nil):
		return fmt.Sprintf("no GPU is free: %s in use", count(m.fullGPUs, "GPU"))
	case m.GPUs < asked:
		return fmt.Sprintf("has %d of %s free, but %d are requested", m.GPUs, count(m.fullGPUs, "GPU"), asked)
	}
	if md, ok := d.(*modelDemand); ok {
		return md.lacksRoom(n, &m)
	}
	return ""
}

// unwanted returns the user's constraint that a node does not meet; "" if it meets all.
func unwanted(c Constraints, n *Node, m *machine) string {
	same := func(name string) bool { return strings.EqualFold(name, m.Name) }
	switch {
	case c.InstanceType != "" && !same(c.InstanceType):
		return "is not of the requested instance type"
	case len(c.InstanceTypes) > 0 && !slices.ContainsFunc(c.InstanceTypes, same):
		return "not among the allowed instance types"
	case len(c.Accelerators) > 0 && !slices.ContainsFunc(c.Accelerators, func(a string) bool { return isAccelerator(m, a) }):
		return "not among the allowed accelerators"
	case c.Slice != "" && !isSlice(m, c.Slice):
		return "has no MIG slices of " + c.Slice
	case len(c.Zones) > 0 && !slices.Contains(c.Zones, n.Zone):
		return "not in one of the allowed zones"
	case n.CapacityType == v1beta1.CapacitySpot && len(c.CapacityTypes) > 0 && !slices.Contains(c.CapacityTypes, n.CapacityType):
		return "is a spot machine, and resource.placement.capacityTypes excludes spot"
	default:
		return ""
	}
}

// isSlice reports whether a machine's GPUs are MIG slices of a profile.
func isSlice(m *machine, profile string) bool {
	return m.gpu.Whole != "" && strings.EqualFold(m.gpu.Class, m.gpu.Whole+"-"+profile)
}

// templateGPUs returns the number of GPUs that the template requests.
func (r *Request) templateGPUs() int {
	if r.Template == nil {
		return 0
	}
	return r.Template.GPUs
}

// lacksRoom explains why a node's free resources are too small for every form of the model; "" if they suffice for one.
func (d *modelDemand) lacksRoom(n *Node, m *machine) string {
	if e := d.forms[0].engine; n.FreeVCPUs < e.CPUs || n.FreeMemoryGiB < float64(e.MemoryGiB) {
		return fmt.Sprintf("%s and %.0f GiB of main memory are free, but engine %s needs %d CPUs and %d GiB",
			count(n.FreeVCPUs, "vCPU"), math.Floor(n.FreeMemoryGiB), e.Name, e.CPUs, e.MemoryGiB)
	}
	disk := 0
	for i := range d.forms {
		f := &d.forms[i]
		if illegal(f, &d.model.Shape, m) != "" {
			continue // the group's verdict names this reason
		}
		need := (&layout{form: f}).diskGiB()
		if n.FreeDiskGiB < 0 || float64(need) <= n.FreeDiskGiB {
			return ""
		}
		if disk == 0 || need < disk {
			disk = need
		}
	}
	if disk > 0 {
		return noDisk(disk, n)
	}
	return ""
}

func noDisk(need int, n *Node) string {
	return fmt.Sprintf("has %.0f GiB of free disk, but image and weights need %d GiB", math.Floor(n.FreeDiskGiB), need)
}

// consider places a demand on the nodes of one group. It keeps the best option, or the reason why there is none.
func (found *nodesFound) consider(d demand, g *nodeGroup) {
	if g.kind.reason != "" {
		found.reject(g, 1, g.kind.reason)
		return
	}
	found.tried++
	var best *option
	why, most := refusal{}, -1
	for _, m := range g.machines() {
		o, refused := onMachine(d, &m)
		if o != nil {
			if best == nil || byNodes(d)(o, best) < 0 {
				best = o
			}
			continue
		}
		// The verdict is about the try with the most GPUs.
		if gpus := m.GPUs * len(m.there); gpus > most {
			why, most = refused, gpus
		}
	}
	if best != nil {
		found.options = append(found.options, best)
		return
	}
	v := found.reject(g, why.nodes, why.reason)
	found.misfits = append(found.misfits, v)
	if memory := float64(most) * g.kind.memoryGiB; found.largest.Reason == "" || memory > found.most {
		found.largest, found.most = v, memory
	}
}

// reject records why a group is not used.
func (found *nodesFound) reject(g *nodeGroup, nodes int, reason string) Verdict {
	m := g.nodes[0].machine()
	if part := g.kind.part; part != "" {
		reason = part + ": " + reason
	}
	v := Verdict{InstanceType: m.Name, Nodes: max(nodes, 1), NodeNames: names(g.nodes), Reason: wording.Clip(reason, longestVerdict)}
	found.rejected = append(found.rejected, v)
	found.foreign[v.NodeNames[0]] = g.kind.foreign
	return v
}

// onMachine places a demand on the nodes of m, which are all of one kind.
func onMachine(d demand, m *machine) (*option, refusal) {
	if d.fewest() > len(m.there) {
		return nil, refusal{d.fewest(), fmt.Sprintf("needs %s of this kind in one zone, but only %d are free",
			count(d.fewest(), "node"), len(m.there))}
	}
	o, refused := d.place(m)
	if o == nil {
		return nil, refused
	}
	chosen := m.there
	if o.layout.form != nil {
		need := float64(o.layout.diskGiB())
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(n Node) bool { return n.FreeDiskGiB >= 0 && n.FreeDiskGiB < need })
		if len(chosen) < o.nodes {
			return nil, refusal{o.nodes, noDisk(int(need), &m.there[0])}
		}
	}
	o.machine, o.nodeNames = m, names(chosen[:o.nodes])
	slices.Sort(o.nodeNames)
	if m.gpu.BandwidthGBs == 0 && m.GPUs > 0 && o.layout.form != nil {
		o.warnings = append(o.warnings, fmt.Sprintf("the GPU %s is not in the catalogue: its speed is not known", m.gpu.Name))
	}
	return o, refusal{}
}

// before puts the options on existing nodes before the machines to buy.
func (found *nodesFound) before(bought outcome) outcome {
	bought.options = slices.Concat(found.options, bought.options)
	bought.rejected = slices.Concat(found.rejected, bought.rejected)
	return bought
}

// beside adds the reason why existing nodes are unsuitable to an error about machines to buy.
func (found *nodesFound) beside(err error) error {
	infeasible, ok := errors.AsType[*InfeasibleError](err)
	if !ok {
		return err
	}
	out := *infeasible
	out.Rejected = slices.Concat(found.rejected, infeasible.Rejected)
	if _, text := found.why(); text != "" {
		out.Message += "; " + text
	}
	return &out
}

// infeasible explains why no existing node is suitable, for a request that may not buy machines.
func (found *nodesFound) infeasible(r Request) error {
	reason, text := found.why()
	what := "the template"
	if r.Model != nil {
		what = r.Model.Name
	}
	const wayOut = "set resource.placement.nodeSource: Any to buy machines"
	if found.nodes == 0 {
		text = "no node with GPUs is available: label nodes to match resource.labelSelector, or " + wayOut
	} else {
		text += "; " + wayOut
	}
	return &InfeasibleError{Reason: reason, Message: what + ": " + text, Rejected: found.rejected}
}

// why returns a reason and a sentence that explains why existing nodes are unsuitable. The sentence is empty if there
// are no existing nodes.
func (found *nodesFound) why() (reason, text string) {
	switch {
	case found.nodes == 0:
		return v1beta1.ReasonNoMachineAllowed, ""
	case found.tried == 0:
		return v1beta1.ReasonNoMachineAllowed, found.none("can be used", "cannot be used") + "; " + found.each(found.rejected[0])
	default:
		return v1beta1.ReasonDoesNotFit, found.none("is suitable", "is not suitable") + "; " + found.each(found.largest)
	}
}

// none denies a predicate for all existing nodes.
func (found *nodesFound) none(predicate, denied string) string {
	if found.nodes == 1 {
		return "the only existing node " + denied
	}
	return fmt.Sprintf("none of %d existing nodes %s", found.nodes, predicate)
}

// each lists nodes with the reasons why they are unsuitable, beginning with one verdict.
func (found *nodesFound) each(first Verdict) string {
	const mostGroups, mostWords = 4, 160 // so that the text fits into a condition's message
	groups := []Verdict{first}
	for _, v := range found.rejected { // each part of a node is in one group, so name and reason identify it
		if v.NodeNames[0] != first.NodeNames[0] || v.Reason != first.Reason {
			groups = append(groups, v)
		}
	}
	words := make([]string, 0, mostGroups+1)
	for _, v := range groups[:min(len(groups), mostGroups)] {
		words = append(words, found.listed(v.NodeNames)+": "+wording.Clip(v.Reason, mostWords))
	}
	if more := len(groups) - mostGroups; more > 0 {
		words = append(words, fmt.Sprintf("and %d more reasons", more))
	}
	return strings.Join(words, "; ")
}

// listed returns the names of a group's nodes for a message.
func (found *nodesFound) listed(nodeNames []string) string {
	const most = 4
	if found.foreign[nodeNames[0]] {
		return count(len(nodeNames), "node")
	}
	text := strings.Join(nodeNames[:min(len(nodeNames), most)], ", ")
	if more := len(nodeNames) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
