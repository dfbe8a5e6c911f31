// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// mostAlternatives are listed in order; further options are among the rejected.
const mostAlternatives = 8

// byRank orders options: priced before unpriced, then cheapest, then fewer GPUs, then by name.
func byRank(a, b option) int {
	return cmp.Or(
		boolOrder(a.price >= 0, b.price >= 0),
		cmp.Compare(a.price, b.price),
		cmp.Compare(a.gpus, b.gpus),
		cmp.Compare(a.machine.GPUs, b.machine.GPUs),
		cmp.Compare(a.machine.Name, b.machine.Name),
	)
}

// byName orders verdicts.
func byName(a, b Verdict) int {
	return cmp.Compare(a.InstanceType, b.InstanceType)
}

// plan describes the best option and why the others were not chosen.
func (found outcome) plan(d demand) Plan {
	best := found.options[0]
	plan := Plan{
		InstanceType: best.machine.Name,
		Nodes:        d.nodes(),
		MachineGPUs:  best.machine.GPUs,
		CapacityType: best.capacityType,
		Zones:        found.zones,
		HourlyPrice:  best.price,
		Rejected:     found.rejected,
	}
	if best.machine.GPUs > 0 {
		plan.Accelerator, plan.GPUResource = best.machine.gpu.Class, best.machine.Resource
		plan.GPUsPerNode = best.gpus
	}
	for i, other := range found.options[1:] {
		verdict := Verdict{
			InstanceType: other.machine.Name, Nodes: d.nodes(), HourlyPrice: other.price, Reason: found.second(best, other),
		}
		if i < mostAlternatives {
			plan.Alternatives = append(plan.Alternatives, verdict)
			continue
		}
		plan.Rejected = append(plan.Rejected, verdict)
	}
	slices.SortStableFunc(plan.Rejected, byName)
	plan.Warnings = append(append(append([]string(nil), d.warnings()...), found.warnings...), best.warnings...)
	if best.layout.gpus > 0 {
		best.layout.describe(&plan)
	}
	return plan
}

// describe fills in what a plan says about a model on a machine.
func (l layout) describe(plan *Plan) {
	artifact, memory := l.artifact.Clone(), l.memory
	plan.Engine, plan.Artifact, plan.Memory = l.engine.Name, &artifact, &memory
	plan.MaxModelLen, plan.Concurrency = l.target.length, l.target.concurrency
	// Whole layers per GPU, the only split that the catalogue admits, are the stages of a pipeline.
	plan.TensorParallel, plan.PipelineParallel, plan.DataParallel = 1, l.gpus, 1
	plan.DiskGiB = int(math.Ceil(float64(artifact.Bytes())/gib+l.engine.ImageGiB)) + diskSpareGiB
	plan.CPUs, plan.MemoryGiB = l.engine.CPUs, l.engine.MemoryGiB
}

// second says why an option that works is not the best.
func (found outcome) second(best, other option) string {
	switch {
	case other.price < 0 && best.price < 0:
		return "no price known for either: " + tieBreak(best, other)
	case other.price < 0:
		return fmt.Sprintf("no price known in %s", other.machine.regionName())
	case other.price > best.price:
		cheaper, dearer := dollarsApart(best.price, other.price)
		return fmt.Sprintf("dearer: %s $/h against %s", dearer, cheaper)
	default:
		return "same price: " + tieBreak(best, other)
	}
}

// tieBreak says what decided between two options of the same price.
func tieBreak(best, other option) string {
	switch {
	case other.gpus != best.gpus:
		return fmt.Sprintf("uses %s, the plan uses %d", count(other.gpus, "GPU"), best.gpus)
	case other.machine.GPUs != best.machine.GPUs:
		return fmt.Sprintf("has %s, the plan's machine has %d", count(other.machine.GPUs, "GPU"), best.machine.GPUs)
	default:
		return "later by name"
	}
}
