// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/usd"
)

// mostAlternatives limits Plan.Alternatives. Further options go to Plan.Rejected.
const mostAlternatives = 8

// plan returns the best option as a plan, and why the other options are not the best.
func (found outcome) plan(d demand) Plan {
	best := found.options[0]
	plan := Plan{
		InstanceType: best.machine.Name,
		Nodes:        best.nodes,
		MachineGPUs:  best.machine.GPUs,
		CapacityType: best.capacityType,
		Zones:        found.zones,
		HourlyPrice:  best.price,
		Rejected:     found.rejected,
	}
	if m, ok := d.(*modelDemand); ok && m.optimizeFor == v1beta1.OptimizeForBalanced {
		plan.Premium = found.premium(best)
	}
	if best.machine.GPUs > 0 {
		plan.Accelerator, plan.GPUResource = best.machine.gpu.Class, best.machine.Resource
		plan.ComputeCapability = best.machine.gpu.ComputeCapability
		plan.GPUsPerNode = best.gpus
	}
	if best.nodeNames != nil {
		best.describeNodes(&plan)
	}
	for i, other := range found.options[1:] {
		verdict := Verdict{
			InstanceType: other.machine.Name, Nodes: other.nodes, HourlyPrice: other.price, GPUsPerNode: other.gpus,
			Performance: other.performance(), Reason: found.second(d, best, other), NodeNames: other.nodeNames,
		}
		if l := &other.layout; l.form != nil {
			verdict.TensorParallel, verdict.PipelineParallel, verdict.DataParallel = l.spread.tp, l.spread.pipeline(), l.spread.replicas
		}
		if i < mostAlternatives {
			plan.Alternatives = append(plan.Alternatives, verdict)
			continue
		}
		plan.Rejected = append(plan.Rejected, verdict)
	}
	slices.SortStableFunc(plan.Rejected, byName)
	plan.Warnings = append(append(append([]string(nil), d.warnings()...), found.warnings...), best.warnings...)
	if best.layout.form != nil {
		best.describe(&plan)
		if m, ok := d.(*modelDemand); ok && plan.Performance != nil {
			plan.Performance.LongestTTFTMillis = significant(m.longestTTFT(&best.layout, best.machine))
		}
	}
	return plan
}

// describe sets the plan's fields about the model.
func (o *option) describe(plan *Plan) {
	l := &o.layout
	artifact, memory := l.form.artifact.Clone(), l.fitted.memory
	plan.Engine, plan.Artifact, plan.Memory = l.form.engine.Name, &artifact, &memory
	plan.MaxModelLen, plan.Concurrency = l.fitted.target.length, l.fitted.target.concurrency
	plan.TensorParallel, plan.PipelineParallel, plan.DataParallel = l.spread.tp, l.spread.pipeline(), l.spread.replicas
	plan.ExpertParallel, plan.ContextParallel = l.spread.ep, l.spread.cp
	plan.DiskGiB = l.diskGiB()
	plan.CPUs, plan.MemoryGiB = l.form.engine.CPUs, l.form.engine.MemoryGiB
	plan.Performance = o.performance()
	beside := l.form.physics.Adapters()
	plan.AdapterSlots, plan.AdapterRank = beside.Slots, beside.Rank
	if l.form.engine.Split == catalog.SplitLayers {
		return
	}
	plan.MaxNumSeqs, plan.MaxBatchedTokens = l.fitted.serving.MaxNumSeqs, l.fitted.serving.MaxBatchedTokens
	plan.GPUMemoryUtilization, plan.KVCacheType = l.fitted.serving.Utilization, l.form.kvType
	plan.KVCacheTokens = l.fitted.budget.KVTokens
	plan.StageLayers = l.form.physics.Partition(l.spread.pipeline())
	plan.RDMA = l.rdma
	// Every GPU has its own process, which loads weights and schedules.
	plan.CPUs = min(plan.CPUs*o.gpus, max(o.machine.VCPUs-1, 1))
	plan.MemoryGiB = min(plan.MemoryGiB*o.gpus, int(o.machine.MemoryGiB*3/4))
}

// second explains why a suitable option is not the best.
func (found outcome) second(d demand, best, other *option) string {
	if best.nodeNames != nil {
		return besideNodes(d, best, other)
	}
	if m, ok := d.(*modelDemand); ok && d.compare(best, other) != 0 {
		if reason := m.outranked(best, other); reason != "" {
			return reason
		}
	}
	switch {
	case other.price < 0 && best.price < 0:
		return "no price known for either: " + tieBreak(best, other)
	case other.price < 0:
		return "no price known in " + other.machine.regionName() + other.machine.soldElsewhere()
	case other.level > best.level:
		cheaper, dearer := usd.Apart(best.price, other.price)
		return fmt.Sprintf("costs more: %s instead of %s", dearer, cheaper)
	default:
		return "same price: " + tieBreak(best, other)
	}
}

// tieBreak explains the choice between two options of the same price.
func tieBreak(best, other *option) string {
	switch {
	case (other.machine.NetworkGBs > 0) != (best.machine.NetworkGBs > 0):
		return "has InfiniBand, which the plan does not need"
	case other.nodes != best.nodes:
		return fmt.Sprintf("takes %s, the plan takes %d", count(other.nodes, "machine"), best.nodes)
	case other.gpus != best.gpus:
		return fmt.Sprintf("uses %s, the plan uses %d", count(other.gpus, "GPU"), best.gpus)
	case other.machine.GPUs != best.machine.GPUs:
		return fmt.Sprintf("has %s, the plan's machine has %d", count(other.machine.GPUs, "GPU"), best.machine.GPUs)
	default:
		return "equally good, but its name sorts later"
	}
}

// describeNodes sets the plan's fields about existing nodes.
func (o *option) describeNodes(plan *Plan) {
	plan.InstanceType, plan.MachineGPUs, plan.NodeNames = "", o.machine.fullGPUs, o.nodeNames
	plan.Zones = nil
	if zone := o.machine.there[0].Zone; zone != "" {
		plan.Zones = []string{zone}
	}
}
