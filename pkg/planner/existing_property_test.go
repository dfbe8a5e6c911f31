// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// randomNodes returns up to eight nodes with the world's GPUs, some of them free.
func randomNodes(r *rand.Rand, w world) []planner.Node {
	var out []planner.Node
	kinds := 1 + r.IntN(min(len(w.SKUs), 2)) // few kinds, so that some nodes are equal
	for i := range 1 + r.IntN(8) {
		s := w.SKUs[r.IntN(kinds)]
		n := planner.Node{
			Name: fmt.Sprintf("node-%d", i), Zone: fmt.Sprintf("zone-%d", r.IntN(4)/3), FreeGPUs: min(r.IntN(2*s.GPUs+1), s.GPUs),
			FreeVCPUs: 1 + r.IntN(32), FreeMemoryGiB: 3 + float64(r.IntN(80)), FreeDiskGiB: -1, Preferred: r.IntN(8) == 0,
			Machine: sku.Machine{SKU: s},
		}
		for _, g := range w.GPUs {
			if g.Name == s.GPU {
				n.Machine.GPU = g
			}
		}
		if r.IntN(3) == 0 {
			n.FreeDiskGiB = float64(r.IntN(500))
		}
		if r.IntN(8) == 0 {
			n.Unusable = "is cordoned"
		}
		out = append(out, n)
	}
	return out
}

// alone returns a catalogue whose only machine is the free part of a node, with a price.
func alone(w world, n planner.Node) world {
	s := n.Machine.SKU
	s.GPUs, s.VCPUs, s.MemoryGiB, s.Unusable = n.FreeGPUs, n.FreeVCPUs, n.FreeMemoryGiB, ""
	s.Prices, s.SpotPrices, s.Spot, s.Reserved = map[string]float64{"eastus": 1}, nil, false, false
	if s.LinkedGPUs > 0 && (s.LinkedGPUs < n.Machine.SKU.GPUs && n.FreeGPUs < n.Machine.SKU.GPUs || n.FreeGPUs < 2) {
		s.LinkedGPUs = 0
	}
	s.LinkedGPUs = min(s.LinkedGPUs, s.GPUs)
	w.SKUs = []sku.SKU{s}
	return w
}

// checkNodes plans once on random nodes and checks the invariants of such plans.
func checkNodes(t *testing.T, seed uint64, speed catalog.Speed) (planned, several bool) {
	r := rand.New(rand.NewPCG(seed, 2))
	w := randomWorld(r)
	enrich(r, &w, speed)
	request := randomRequest(r, w)
	request.Constraints.InstanceType, request.Constraints.InstanceTypes = "", nil
	request.Constraints.MaxHourlyPrice, request.Constraints.CapacityTypes = 0, nil
	request.Constraints.MaxNodes = max(0, r.IntN(5)-2)
	request.Nodes, request.NodeSource = randomNodes(r, w), v1beta1.NodeSourceExisting
	if n := request.Nodes[0]; r.IntN(2) == 0 && n.FreeGPUs > 0 {
		// Make the model too large for one node.
		for i := range w.Models[0].Artifacts {
			w.Models[0].Artifacts[i].Files[0].Bytes = int64(1.2 * float64(n.FreeGPUs) * n.Machine.GPU.MemoryGiB * (1 << 30))
		}
	}
	p := planner.New(w.load(t), planner.Settings{})
	plan, err := p.Plan(request)
	checkAccount(t, seed, request, plan, err)

	shuffled := request
	shuffled.Nodes = slices.Clone(request.Nodes)
	r.Shuffle(len(shuffled.Nodes), func(i, j int) { shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i] })
	again, againErr := p.Plan(shuffled)
	if diff := cmp.Diff(encode(t, plan, err), encode(t, again, againErr)); diff != "" {
		t.Errorf("seed %d: shuffled nodes change the plan (-want +got):\n%s", seed, diff)
	}
	checkSources(t, seed, p, request, plan, err)
	checkAlone(t, seed, w, request)
	if err != nil {
		return false, false
	}
	checkUse(t, seed, request, plan)
	checkLeast(t, seed, p, request, plan)
	freer := request
	freer.Nodes = slices.Clone(request.Nodes)
	for i := range freer.Nodes {
		freer.Nodes[i].FreeGPUs = freer.Nodes[i].Machine.SKU.GPUs
	}
	if _, err := p.Plan(freer); err != nil && freer.Constraints.Engine.TensorParallel == 0 {
		t.Errorf("seed %d: with more free GPUs it is infeasible: %v", seed, err)
	}
	return true, plan.Nodes > 1
}

// checkAccount checks that the plan accounts for every node: it uses the node, or a verdict names it.
func checkAccount(t *testing.T, seed uint64, request planner.Request, plan planner.Plan, err error) {
	t.Helper()
	verdicts := slices.Concat(plan.Alternatives, plan.Rejected)
	if infeasible, ok := errors.AsType[*planner.InfeasibleError](err); ok {
		verdicts = infeasible.Rejected
	}
	kinds := map[string]bool{}
	for _, name := range plan.NodeNames {
		kinds[name] = true
	}
	for _, v := range verdicts {
		if len(v.NodeNames) == 0 || v.Reason == "" || len([]rune(v.Reason)) > 256 || v.HourlyPrice != 0 {
			t.Errorf("seed %d: verdict %+v", seed, v)
		}
		for _, name := range v.NodeNames {
			kinds[name] = true
		}
	}
	for _, n := range request.Nodes {
		// A plan uses some nodes of a suitable group and does not mention the rest.
		if !kinds[n.Name] && (n.Unusable != "" || err != nil) {
			t.Errorf("seed %d: nothing is said of %s", seed, n.Name)
		}
	}
}

// checkUse checks that the nodes of a plan are equal, near each other, and free.
func checkUse(t *testing.T, seed uint64, request planner.Request, plan planner.Plan) {
	t.Helper()
	var used []planner.Node
	for _, n := range request.Nodes {
		if slices.Contains(plan.NodeNames, n.Name) {
			used = append(used, n)
		}
	}
	limit := request.Constraints.MaxNodes
	switch {
	case len(used) != plan.Nodes || len(plan.NodeNames) != plan.Nodes || !slices.IsSorted(plan.NodeNames):
		t.Errorf("seed %d: %d nodes are %v", seed, plan.Nodes, plan.NodeNames)
	case limit > 0 && plan.Nodes > limit:
		t.Errorf("seed %d: %d nodes, at most %d are allowed", seed, plan.Nodes, limit)
	case plan.HourlyPrice != 0 || plan.InstanceType != "" || plan.CapacityType != "":
		t.Errorf("seed %d: existing nodes are bought: %+v", seed, plan)
	case plan.Memory.Free() < 0:
		t.Errorf("seed %d: the GPU lacks %v GiB", seed, -plan.Memory.Free())
	}
	for _, n := range used {
		if n.FreeGPUs < plan.GPUsPerNode || n.FreeVCPUs < plan.CPUs || n.FreeMemoryGiB < float64(plan.MemoryGiB) ||
			n.FreeDiskGiB >= 0 && n.FreeDiskGiB < float64(plan.DiskGiB) {
			t.Errorf("seed %d: %s with %+v has not enough free for %d GPUs, %d CPUs, %d GiB and %d GiB of disk",
				seed, n.Name, n, plan.GPUsPerNode, plan.CPUs, plan.MemoryGiB, plan.DiskGiB)
		}
		if n.Unusable != "" || n.Zone != used[0].Zone || n.Machine.SKU.Name != used[0].Machine.SKU.Name || n.Machine.GPU.Class != plan.Accelerator {
			t.Errorf("seed %d: %+v does not go with %+v", seed, n, used[0])
		}
	}
}

// checkLeast plans on each node alone. No such plan may be better by the order of plans on nodes.
func checkLeast(t *testing.T, seed uint64, p *planner.Planner, request planner.Request, plan planner.Plan) {
	t.Helper()
	if len(plan.Warnings) > 0 {
		return // objectives were lowered, and each node lowers them differently
	}
	preferred := func(names []string) bool {
		return !slices.ContainsFunc(request.Nodes, func(n planner.Node) bool { return !n.Preferred && slices.Contains(names, n.Name) })
	}
	for _, n := range request.Nodes {
		single := request
		single.Nodes = []planner.Node{n}
		other, err := p.Plan(single)
		if err != nil || len(other.Warnings) > 0 || preferred(plan.NodeNames) && !n.Preferred {
			continue
		}
		taken, least := float64(plan.Nodes*plan.GPUsPerNode)*plan.Memory.Total, float64(other.GPUsPerNode)*other.Memory.Total
		if plan.Nodes > 1 || preferred(plan.NodeNames) == n.Preferred && taken > least+1e-9 || !preferred(plan.NodeNames) && n.Preferred {
			t.Errorf("seed %d: %s takes %v GiB, %s would take %v", seed, plan.Summary(), taken, n.Name, least)
		}
	}
}

// checkSources compares the plan with the plans for Any and Provisioned.
func checkSources(t *testing.T, seed uint64, p *planner.Planner, request planner.Request, plan planner.Plan, err error) {
	t.Helper()
	request.NodeSource = v1beta1.NodeSourceProvisioned
	bought, boughtErr := p.Plan(request)
	without := request
	without.Nodes, without.NodeSource = nil, ""
	plain, plainErr := p.Plan(without)
	if diff := cmp.Diff(encode(t, plain, plainErr), encode(t, bought, boughtErr)); diff != "" {
		t.Errorf("seed %d: nodes change what is bought (-want +got):\n%s", seed, diff)
	}
	request.NodeSource = v1beta1.NodeSourceAny
	first, firstErr := p.Plan(request)
	switch {
	case firstErr != nil && boughtErr == nil:
		t.Errorf("seed %d: it can be bought, but Any says %v", seed, firstErr)
	// A plan takes more than two nodes without RDMA only if the request may not buy machines.
	case firstErr == nil && len(first.NodeNames) == 0 && err == nil && len(plan.Warnings) == 0 && plan.Nodes <= 2:
		t.Errorf("seed %d: Any buys %s, though %s will do", seed, first.Summary(), plan.Summary())
	case firstErr == nil && len(first.NodeNames) > 0 && (err != nil || first.Summary() != plan.Summary()):
		t.Errorf("seed %d: Any uses %s, Existing %s (%v)", seed, first.Summary(), plan.Summary(), err)
	}
}

// checkAlone compares the plan on each node with the plan for a bought machine of the node's free size.
func checkAlone(t *testing.T, seed uint64, w world, request planner.Request) {
	t.Helper()
	request.Constraints.MaxNodes = 1
	for _, n := range request.Nodes {
		if n.FreeGPUs == 0 || n.Unusable != "" || n.FreeDiskGiB >= 0 {
			continue
		}
		buy := request
		buy.Nodes, buy.NodeSource = nil, ""
		p := planner.New(alone(w, n).load(t), planner.Settings{})
		_, boughtErr := p.Plan(buy)
		use := request
		use.Nodes, use.NodeSource, use.Constraints.MaxHourlyPrice = []planner.Node{n}, v1beta1.NodeSourceAny, 0.5 // less than any machine costs
		used, usedErr := p.Plan(use)
		if (boughtErr == nil) != (usedErr == nil) {
			t.Errorf("seed %d: node %s: bought: %v; used: %s %v", seed, n.Name, boughtErr, used.Summary(), usedErr)
		}
	}
}

func TestPropertiesOfExistingNodes(t *testing.T) {
	planned, several := 0, 0
	const rounds = 400
	speed := speedOfVLLM(t)
	for seed := range uint64(rounds) {
		p, s := checkNodes(t, seed, speed)
		if p {
			planned++
		}
		if s {
			several++
		}
	}
	// The random worlds must lead to plans, to errors, and to plans on several nodes.
	if planned < rounds/10 || planned > rounds*9/10 || several < 3 {
		t.Errorf("%d of %d worlds were feasible, %d on several nodes", planned, rounds, several)
	}
	t.Logf("%d of %d worlds were feasible, %d on several nodes", planned, rounds, several)
}

func FuzzExistingNodes(f *testing.F) {
	f.Add(uint64(1 << 40))
	speed := speedOfVLLM(f)
	f.Fuzz(func(t *testing.T, seed uint64) { checkNodes(t, seed, speed) })
}
