// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
)

// nodeOf returns a node with a number of the town's GPUs, some of them free.
func nodeOf(name, gpu string, gpus, free int, edits ...func(*planner.Node)) planner.Node {
	n := planner.Node{
		Name: name, Zone: "z1", FreeGPUs: free, FreeVCPUs: 64, FreeMemoryGiB: 256, FreeDiskGiB: 100,
		Machine: sku.Machine{SKU: sku.SKU{Name: "type-" + gpu, GPU: gpu, GPUs: gpus, Resource: "nvidia.com/gpu", VCPUs: 64, MemoryGiB: 256}},
	}
	for _, g := range town().GPUs {
		if g.Name == gpu {
			n.Machine.GPU = g
		}
	}
	for _, edit := range edits {
		edit(&n)
	}
	return n
}

// choice is the part of a plan on existing nodes that the tests compare.
type choice struct {
	Summary   string
	Nodes     []string
	Sequences int
	Price     float64
	Zones     []string
	Next      []planner.Verdict
	Rejected  []planner.Verdict
	Warnings  []string
	Failed    string
}

func choose(t *testing.T, p *planner.Planner, r planner.Request) choice {
	t.Helper()
	plan, err := p.Plan(r)
	if infeasible, ok := errors.AsType[*planner.InfeasibleError](err); ok {
		return choice{Failed: infeasible.Error(), Rejected: infeasible.Rejected}
	}
	if err != nil {
		t.Fatal(err)
	}
	return choice{
		Summary: plan.Summary(), Nodes: plan.NodeNames, Sequences: plan.Concurrency, Price: plan.HourlyPrice, Zones: plan.Zones,
		Next: plan.Alternatives, Rejected: plan.Rejected, Warnings: plan.Warnings,
	}
}

func TestPlansOnExistingNodes(t *testing.T) {
	zone := func(z string) func(*planner.Node) { return func(n *planner.Node) { n.Zone = z } }
	verdict := func(kind string, nodes int, reason string, names ...string) planner.Verdict {
		return planner.Verdict{InstanceType: kind, Nodes: nodes, NodeNames: names, Reason: reason}
	}
	works := func(v planner.Verdict, gpus int) planner.Verdict {
		v.GPUsPerNode, v.TensorParallel, v.PipelineParallel, v.DataParallel = gpus, 1, gpus, 1
		return v
	}
	type (
		nodes    = []planner.Node
		verdicts = []planner.Verdict
	)
	for _, tc := range []struct {
		reason      string
		nodes       nodes
		constraints planner.Constraints
		objectives  planner.Objectives
		want        choice
	}{
		{
			reason: "the node that loses least, of equal ones the one with fewest idle GPUs, and no more GPUs than the target takes",
			nodes: nodes{
				nodeOf("whole", "G-40", 8, 8), nodeOf("rest", "G-40", 8, 2), nodeOf("small", "G-12-PCIe", 4, 4, zone("z2")),
			},
			want: choice{
				Summary: "existing node small (2 of 4 × G-12)", Nodes: []string{"small"}, Sequences: 4, Zones: []string{"z2"},
				Next: verdicts{works(verdict("type-G-40", 1, "takes 40 GiB of GPU memory from others, the plan takes 24", "rest"), 1)},
			},
		},
		{
			reason: "a node that the user prefers comes first",
			nodes: nodes{
				nodeOf("a", "G-40", 1, 1), nodeOf("b", "G-40", 8, 8, func(n *planner.Node) { n.Preferred = true }),
			},
			want: choice{
				Summary: "existing node b (1 of 8 × G-40)", Nodes: []string{"b"}, Sequences: 4, Zones: []string{"z1"},
				Next: verdicts{works(verdict("type-G-40", 1, "resource.preferredNodes names other nodes", "a"), 1)},
			},
		},
		{
			reason: "every group that does not do has its verdict",
			nodes: nodes{
				nodeOf("busy", "G-40", 2, 0), nodeOf("cordoned", "G-40", 1, 1, func(n *planner.Node) { n.Unusable = "is cordoned" }),
				nodeOf("cramped", "G-40", 1, 1, func(n *planner.Node) { n.FreeVCPUs, n.FreeMemoryGiB = 2, 3.9 }),
				nodeOf("full-disk", "G-40", 1, 1, func(n *planner.Node) { n.FreeDiskGiB = 18.9 }),
				nodeOf("full-disk-2", "G-40", 1, 1, func(n *planner.Node) { n.FreeDiskGiB = 18.9 }),
				nodeOf("old", "Old-40", 1, 1), nodeOf("tiny", "G-12-PCIe", 4, 1), nodeOf("ok", "G-40", 1, 1),
			},
			want: choice{
				Summary: "existing node ok (1 × G-40)", Nodes: []string{"ok"}, Sequences: 4, Zones: []string{"z1"},
				Rejected: verdicts{
					verdict("type-G-12-PCIe", 1, "does not fit by 5.5 GiB per GPU at 8192 tokens × 1", "tiny"),
					verdict("type-G-40", 1, "no GPU is free: 2 GPUs in use", "busy"),
					verdict("type-G-40", 1, "is cordoned", "cordoned"),
					verdict("type-G-40", 1, "2 vCPUs and 3 GiB of main memory are free, but engine engine needs 2 CPUs and 4 GiB", "cramped"),
					verdict("type-G-40", 1, "has 18 GiB of free disk, but image and weights need 19 GiB", "full-disk", "full-disk-2"),
					verdict("type-Old-40", 1, "engine engine needs compute capability 7.5, but Old-40 has 7.0", "old"),
				},
			},
		},
		{
			reason: "a disk of which nothing is known is not held against a node",
			nodes:  nodes{nodeOf("n", "G-40", 1, 1, func(n *planner.Node) { n.FreeDiskGiB = -1 })},
			want:   choice{Summary: "existing node n (1 × G-40)", Nodes: []string{"n"}, Sequences: 4, Zones: []string{"z1"}},
		},
		{
			reason:      "the user's constraints hold for existing nodes",
			constraints: planner.Constraints{InstanceTypes: []string{"TYPE-G-40"}, Accelerators: []string{"G-40"}, Zones: []string{"z1"}, CapacityTypes: []v1beta1.CapacityType{v1beta1.CapacityOnDemand}},
			nodes: nodes{
				nodeOf("far", "G-40", 1, 1, zone("z2")), nodeOf("other", "Old-40", 1, 1),
				nodeOf("spot", "G-40", 1, 1, func(n *planner.Node) { n.CapacityType = v1beta1.CapacitySpot }), nodeOf("ok", "G-40", 1, 1),
			},
			want: choice{
				Summary: "existing node ok (1 × G-40)", Nodes: []string{"ok"}, Sequences: 4, Zones: []string{"z1"},
				Rejected: verdicts{
					verdict("type-G-40", 1, "not in one of the allowed zones", "far"),
					verdict("type-G-40", 1, "is a spot machine, and resource.placement.capacityTypes excludes spot", "spot"),
					verdict("type-Old-40", 1, "not among the allowed instance types", "other"),
				},
			},
		},
		{
			reason:      "as many GPUs as the user asked for, free ones",
			constraints: planner.Constraints{GPUs: 3},
			nodes:       nodes{nodeOf("a", "G-40", 8, 2), nodeOf("b", "G-40", 8, 4)},
			want: choice{
				Summary: "existing node b (3 of 8 × G-40)", Nodes: []string{"b"}, Sequences: 4, Zones: []string{"z1"},
				Rejected: verdicts{verdict("type-G-40", 1, "has 2 of 8 GPUs free, but 3 are requested", "a")},
			},
		},
		{
			reason: "where nothing may be bought, what the user did not ask for is lowered rather than refused, with a warning",
			nodes:  nodes{nodeOf("n", "G-12-PCIe", 4, 2)}, objectives: planner.Objectives{MaxModelLen: 32768},
			want: choice{
				Summary: "existing node n (2 of 4 × G-12)", Nodes: []string{"n"}, Sequences: 2, Zones: []string{"z1"},
				Warnings: []string{"type-G-12-PCIe holds 32768 tokens × 2 instead of the usual 32768 tokens × 4: to require the usual target, " +
					"set inference.objectives.concurrency, or set resource.placement.nodeSource: Any to get a larger machine"},
			},
		},
		{
			reason: "the price limit is about what is bought", constraints: planner.Constraints{MaxHourlyPrice: 0.01},
			nodes: nodes{nodeOf("n", "G-40", 1, 1)},
			want:  choice{Summary: "existing node n (1 × G-40)", Nodes: []string{"n"}, Sequences: 4, Zones: []string{"z1"}},
		},
		{
			reason: "no node does",
			nodes:  nodes{nodeOf("a", "G-12-PCIe", 4, 1), nodeOf("b", "Old-40", 8, 8), nodeOf("c", "G-40", 1, 0)},
			want: choice{
				Failed: "DoesNotFit: chat: none of 3 existing nodes is suitable; b: engine engine needs compute capability 7.5, but Old-40 has 7.0; " +
					"a: does not fit by 5.2 GiB per GPU at 2048 tokens × 1; c: no GPU is free: 1 GPU in use; set resource.placement.nodeSource: Any to buy machines",
				Rejected: verdicts{
					verdict("type-G-12-PCIe", 1, "does not fit by 5.2 GiB per GPU at 2048 tokens × 1", "a"),
					verdict("type-Old-40", 1, "engine engine needs compute capability 7.5, but Old-40 has 7.0", "b"),
					verdict("type-G-40", 1, "no GPU is free: 1 GPU in use", "c"),
				},
			},
		},
		{
			reason: "no node may be used",
			nodes:  nodes{nodeOf("a", "G-40", 1, 0)},
			want: choice{
				Failed: "NoMachineAllowed: chat: the only existing node cannot be used; a: no GPU is free: 1 GPU in use; " +
					"set resource.placement.nodeSource: Any to buy machines",
				Rejected: verdicts{verdict("type-G-40", 1, "no GPU is free: 1 GPU in use", "a")},
			},
		},
		{
			reason: "no node is there",
			want: choice{
				Failed: "NoMachineAllowed: chat: no node with GPUs is available: label nodes to match resource.labelSelector, " +
					"or set resource.placement.nodeSource: Any to buy machines",
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := choose(t, inTown(t), planner.Request{
				Model: modelOf("chat"), Constraints: tc.constraints, Objectives: tc.objectives, Nodes: tc.nodes, NodeSource: v1beta1.NodeSourceExisting,
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("choice (-want +got):\n%s", diff)
			}
		})
	}
}

// The whole plan names the nodes, and buys nothing.
func TestPlanOfExistingNode(t *testing.T) {
	got, err := inTown(t).Plan(planner.Request{
		Model: modelOf("chat"), Nodes: []planner.Node{nodeOf("n", "G-40", 8, 3)}, NodeSource: v1beta1.NodeSourceExisting,
	})
	if err != nil {
		t.Fatal(err)
	}
	artifact := chat().Artifacts[0]
	want := planner.Plan{
		Nodes: 1, NodeNames: []string{"n"}, Accelerator: "G-40", GPUResource: "nvidia.com/gpu", GPUsPerNode: 1, ComputeCapability: "8.0", MachineGPUs: 8,
		Zones: []string{"z1"}, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, Engine: "engine", Artifact: &artifact,
		MaxModelLen: 32768, Concurrency: 4,
		Memory:  &planner.Memory{Total: 40, Weights: 15.999, KVCache: 7.5, Overhead: 1, Basis: v1beta1.BasisMeasured},
		DiskGiB: 19, CPUs: 2, MemoryGiB: 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestNodeSources(t *testing.T) {
	free, busy := nodeOf("n", "G-40", 1, 1), nodeOf("n", "G-40", 1, 0)
	small := nodeOf("n", "G-12-PCIe", 4, 2)
	for _, tc := range []struct {
		reason     string
		source     v1beta1.NodeSource
		nodes      []planner.Node
		objectives planner.Objectives
		named      string
		want       string
	}{
		{"Any uses what is there", v1beta1.NodeSourceAny, []planner.Node{free}, planner.Objectives{}, "", "existing node n (1 × G-40)"},
		{"unset is Any", "", []planner.Node{free}, planner.Objectives{}, "", "existing node n (1 × G-40)"},
		{"Any buys where nothing is free", v1beta1.NodeSourceAny, []planner.Node{busy}, planner.Objectives{}, "", "1 × One (1 × G-40)"},
		{
			"Any lowers what is open rather than buy", v1beta1.NodeSourceAny,
			[]planner.Node{small},
			planner.Objectives{MaxModelLen: 32768},
			"", "existing node n (2 of 4 × G-12)",
		},
		{
			"Any buys rather than lower what is set", v1beta1.NodeSourceAny,
			[]planner.Node{small},
			planner.Objectives{MaxModelLen: 32768, Concurrency: 4},
			"", "1 × One (1 × G-40)",
		},
		{"Any without nodes buys", v1beta1.NodeSourceAny, nil, planner.Objectives{}, "", "1 × One (1 × G-40)"},
		{"Provisioned always buys", v1beta1.NodeSourceProvisioned, []planner.Node{free}, planner.Objectives{}, "", "1 × One (1 × G-40)"},
		{
			"a type that no catalogue has, on a node", v1beta1.NodeSourceAny,
			[]planner.Node{free},
			planner.Objectives{},
			"type-g-40",
			"existing node n (1 × G-40)",
		},
		{"another type is asked for", v1beta1.NodeSourceAny, []planner.Node{free}, planner.Objectives{}, "Eight", "1 × Eight (1 of 8 × G-40)"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			plan, err := inTown(t).Plan(planner.Request{
				Model: modelOf("chat"), Objectives: tc.objectives, Nodes: tc.nodes, NodeSource: tc.source,
				Constraints: planner.Constraints{InstanceType: tc.named},
			})
			if err != nil || plan.Summary() != tc.want {
				t.Errorf("plan %q (%v), want %q", plan.Summary(), err, tc.want)
			}
		})
	}
}

// Nodes in use by others are counted, not named: the user may not be allowed to see their users.
func TestNodesOfOthersAreNotNamed(t *testing.T) {
	theirs := func(n *planner.Node) { n.Foreign, n.Unusable = true, "belongs to another Workspace" }
	_, err := inTown(t).Plan(planner.Request{
		Model: modelOf("chat"), NodeSource: v1beta1.NodeSourceExisting,
		Nodes: []planner.Node{
			nodeOf("tenant-1", "G-40", 1, 1, theirs), nodeOf("tenant-2", "G-40", 1, 1, theirs), nodeOf("mine", "G-40", 1, 0),
		},
	})
	const want = "NoMachineAllowed: chat: none of 3 existing nodes can be used; mine: no GPU is free: 1 GPU in use; " +
		"2 nodes: belongs to another Workspace; set resource.placement.nodeSource: Any to buy machines"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Machines to buy come after existing nodes, with their price. If nothing is suitable, the error covers both.
func TestBoughtMachinesComeAfterNodes(t *testing.T) {
	request := planner.Request{
		Model: modelOf("chat"), Nodes: []planner.Node{nodeOf("n", "G-40", 1, 1)},
		Constraints: planner.Constraints{InstanceTypes: []string{"type-G-40", "One", "Unpriced"}},
	}
	got := choose(t, inTown(t), request)
	want := []planner.Verdict{
		{InstanceType: "One", Nodes: 1, HourlyPrice: 2, GPUsPerNode: 1, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1, Reason: "must be bought for $2.00/h; the plan's nodes exist already"},
		{
			InstanceType: "Unpriced", Nodes: 1, HourlyPrice: -1, GPUsPerNode: 1, TensorParallel: 1, PipelineParallel: 1, DataParallel: 1,
			Reason: "must be bought, and its price is not known; the plan's nodes exist already",
		},
	}
	if diff := cmp.Diff(want, got.Next); diff != "" {
		t.Errorf("alternatives (-want +got):\n%s", diff)
	}
	request.Nodes[0].Unusable, request.Constraints.MaxHourlyPrice = "is cordoned", 1
	got = choose(t, inTown(t), request)
	const failed = "NoMachineAllowed: the cheapest plan is 1 × One at $2.00/h, above resource.placement.maxHourlyPrice $1.00/h: " +
		"raise the limit; the only existing node cannot be used; n: is cordoned"
	if got.Failed != failed || len(got.Rejected) == 0 || got.Rejected[0].NodeNames == nil {
		t.Errorf("got %+v, want %s", got, failed)
	}
}

// hopper returns a node with GPUs of the shipped catalogue: eight H100 with a switch.
func hopper(t *testing.T, name string, free int) planner.Node {
	t.Helper()
	g, ok := realCatalog(t).GPU("H100-80-SXM")
	if !ok {
		t.Fatal("no H100-80-SXM")
	}
	return planner.Node{
		Name: name, FreeGPUs: free, FreeVCPUs: 90, FreeMemoryGiB: 1800, FreeDiskGiB: -1,
		Machine: sku.Machine{GPU: g, SKU: sku.SKU{Name: "metal", GPU: g.Name, GPUs: 8, LinkedGPUs: 8, Resource: "nvidia.com/gpu"}},
	}
}

func TestExistingNodesOfLargeModels(t *testing.T) {
	hoppers := func(free ...int) []planner.Node {
		var out []planner.Node
		for i, n := range free {
			out = append(out, hopper(t, string(rune('a'+i)), n))
		}
		return out
	}
	slowly := func(nodes []planner.Node) []planner.Node {
		for i := range nodes {
			nodes[i].Machine.GPU.BandwidthGBs, nodes[i].Machine.GPU.PeakTFLOPs, nodes[i].Machine.GPU.Name = 0, nil, "NVIDIA-New"
			nodes[i].Machine.GPU.Class = "NVIDIA-New"
		}
		return nodes
	}
	apart := func(nodes []planner.Node) []planner.Node {
		for i := range nodes {
			nodes[i].Zone = nodes[i].Name
		}
		return nodes
	}
	for _, tc := range []struct {
		reason, model string
		nodes         []planner.Node
		single        bool
		limit         int
		optimizeFor   v1beta1.OptimizeFor
		want, layout  string
		warnings      []string
	}{
		{
			reason: "GPUs that the target does not need stay with others", model: "llama-3.1-8b-instruct", nodes: hoppers(8),
			want: "existing node a (1 of 8 × H100-80)", layout: "1 1 1",
		},
		{
			reason: "also where all tokens that can be had are wanted", model: "llama-3.1-8b-instruct", nodes: hoppers(8),
			optimizeFor: v1beta1.OptimizeForThroughput, want: "existing node a (1 of 8 × H100-80)", layout: "1 1 1",
		},
		{
			reason: "latency may take more GPUs for one copy", model: "llama-3.1-8b-instruct", nodes: hoppers(8),
			optimizeFor: v1beta1.OptimizeForLatency, want: "existing node a (8 × H100-80)", layout: "8 1 1",
		},
		{
			reason: "one node rather than two, though it has more idle GPUs", model: "llama-3.3-70b-instruct", nodes: hoppers(1, 1, 8),
			want: "existing node c (2 of 8 × H100-80)", layout: "2 1 1",
		},
		{
			reason: "two equal nodes where none holds it", model: "llama-3.3-70b-instruct", nodes: hoppers(1, 0, 1, 1),
			want: "2 existing nodes a, c (1 of 8 × H100-80)", layout: "1 2 1",
			warnings: []string{"a token takes 74 ms (estimated), close to the limit of 100ms"},
		},
		{
			reason: "not across zones", model: "llama-3.3-70b-instruct", nodes: apart(hoppers(1, 1)),
			want: "DoesNotFit: llama-3.3-70b-instruct: none of 2 existing nodes is suitable; a: ",
		},
		{
			reason: "not beyond resource.count", model: "llama-3.3-70b-instruct", nodes: hoppers(1, 1), limit: 1,
			want: "DoesNotFit: llama-3.3-70b-instruct: none of 2 existing nodes is suitable; a, b: ",
		},
		{
			reason: "not where the installation spreads nothing", model: "llama-3.3-70b-instruct", nodes: hoppers(1, 1), single: true,
			want: "DoesNotFit: llama-3.3-70b-instruct: none of 2 existing nodes is suitable; a, b: ",
		},
		{
			reason: "an unknown GPU serves, nobody knows how fast", model: "llama-3.1-8b-instruct", nodes: slowly(hoppers(8)),
			want: "existing node a (1 of 8 × NVIDIA-New)", layout: "1 1 1",
			warnings: []string{"the GPU NVIDIA-New is not in the catalogue: its speed is not known"},
		},
		{
			reason: "a GPU of known speed before one of unknown", model: "llama-3.1-8b-instruct",
			nodes: append(slowly(hoppers(8)), hopper(t, "b", 1)), optimizeFor: v1beta1.OptimizeForLatency,
			want: "existing node b (1 of 8 × H100-80)", layout: "1 1 1",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			c := realCatalog(t)
			m, ok := c.Model(tc.model)
			if !ok {
				t.Fatalf("no model %s", tc.model)
			}
			plan, err := planner.New(c, planner.Settings{SingleNode: tc.single}).Plan(planner.Request{
				Model: &m, Nodes: tc.nodes, NodeSource: v1beta1.NodeSourceExisting, Constraints: planner.Constraints{MaxNodes: tc.limit},
				Objectives: planner.Objectives{OptimizeFor: tc.optimizeFor},
			})
			if err != nil {
				if len(err.Error()) < len(tc.want) || err.Error()[:len(tc.want)] != tc.want || tc.layout != "" {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				t.Log(err)
				return
			}
			layout := cmp.Diff([]int{plan.TensorParallel, plan.PipelineParallel, plan.DataParallel}, layoutOf(t, tc.layout))
			if plan.Summary() != tc.want || layout != "" {
				t.Errorf("plan %s, want %s; layout:\n%s", plan.Summary(), tc.want, layout)
			}
			if diff := cmp.Diff(tc.warnings, plan.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func layoutOf(t *testing.T, text string) []int {
	t.Helper()
	out := make([]int, 3)
	if len(text) != 5 {
		t.Fatalf("layout %q", text)
	}
	for i := range out {
		out[i] = int(text[2*i] - '0')
	}
	return out
}

// A template takes exactly as many equal nodes as it has pods.
func TestTemplatesOnExistingNodes(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		want       string
		nodes      int
		free       []int
		nodeSource v1beta1.NodeSource
	}{
		{"one node", "existing node b (2 of 8 × G-40)", 1, []int{1, 2, 4}, v1beta1.NodeSourceExisting},
		{"two nodes", "2 existing nodes b, c (2 of 8 × G-40)", 2, []int{1, 2, 4}, v1beta1.NodeSourceExisting},
		{
			"more than there are",
			"DoesNotFit: the template: none of 3 existing nodes is suitable; b, c: needs 3 nodes of this kind in one zone, but only 2 are free; " +
				"a: has 1 of 8 GPUs free, but 2 are requested; set resource.placement.nodeSource: Any to buy machines",
			3,
			[]int{1, 2, 4},
			v1beta1.NodeSourceExisting,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			request := planner.Request{Template: &planner.TemplateDemand{Nodes: tc.nodes, GPUs: 2}, NodeSource: tc.nodeSource}
			for i, free := range tc.free {
				request.Nodes = append(request.Nodes, nodeOf(string(rune('a'+i)), "G-40", 8, free))
			}
			got := choose(t, inTown(t), request)
			if text := got.Summary + got.Failed; text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
		})
	}
}

// Existing nodes, too, must meet the user's objectives.
func TestExistingNodesKeepObjectives(t *testing.T) {
	c := realCatalog(t)
	m, ok := c.Model("llama-3.1-8b-instruct")
	if !ok {
		t.Fatal("no model")
	}
	got := choose(t, planner.New(c, planner.Settings{}), planner.Request{
		Model: &m, Nodes: []planner.Node{hopper(t, "a", 1)}, NodeSource: v1beta1.NodeSourceExisting,
		Objectives: planner.Objectives{TimePerOutputToken: time.Millisecond},
	})
	want := "DoesNotFit: llama-3.1-8b-instruct: the only existing node is not suitable; a: too slow: "
	if len(got.Failed) < len(want) || got.Failed[:len(want)] != want {
		t.Errorf("got %+v, want %s…", got, want)
	}
}
