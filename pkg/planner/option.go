// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
)

// option is a machine type that meets the demand.
type option struct {
	machine *machine
	// layout is set where a model is served, zero for a template.
	layout layout
	// nodes and the gpus that are used on each of them.
	nodes, gpus int
	// price per hour of all machines; negative where it is not known.
	price float64
	// level is the lowest price of which this one is less than a cent away, and standing what the price is worth.
	level        float64
	standing     standing
	capacityType v1beta1.CapacityType
	warnings     []string
	// nodeNames of the existing nodes that are used; nil where machines are bought.
	nodeNames []string
}

// perMillion is the price of a million output tokens in USD; negative where it is not known.
func (o *option) perMillion() float64 {
	return perMillion(o.price, o.layout.pace.OutputTokensPerSecond)
}

// outcome is what a search found.
type outcome struct {
	// options that meet the demand and the constraints, best first.
	options []*option
	// usual is the best option with sequences of the usual length, and short the demand of the options; both nil if
	// the options have the usual length.
	usual *option
	short *modelDemand
	// tooDear are options that only the price limit forbids, cheapest first.
	tooDear []*option
	// unpriced are options that are not considered because nobody knows their price.
	unpriced []*option
	// tried counts the machines that the constraints allow, except the price limit.
	tried int
	// misfits are the machines that were tried and do not meet the demand, and rejected all that are
	// not among options; both in the order of the planner's machines.
	misfits  []Verdict
	rejected []Verdict
	// warnings about the constraints.
	warnings []string
	zones    []string
}

// diskSpareGiB is kept free of weights and image: logs, caches, a file that is being replaced.
const diskSpareGiB = 1

// byName orders verdicts.
func byName(a, b Verdict) int {
	return cmp.Compare(a.InstanceType, b.InstanceType)
}

// diskGiB is what weights, adapters and image take of each machine's disk. Every machine has all weights.
func (l *layout) diskGiB() int {
	weights := l.form.weights.copies() * float64(l.form.artifact.Bytes())
	return int(math.Ceil((weights+l.form.physics.AdapterBytes())/gib+l.form.engine.ImageGiB)) + diskSpareGiB
}

// performance is what to expect of an option; nil for a template, and where nothing is known.
func (o *option) performance() *Performance {
	if o.layout.pace.TPOT == 0 {
		return nil
	}
	p, load := o.layout.pace, o.layout.load
	return &Performance{
		InputTokens: load.Input, OutputTokens: load.Output, Concurrency: load.Concurrency,
		TTFTMillis: significant(p.TTFT), TPOTMillis: significant(p.TPOT),
		OutputTokensPerSecond: significant(p.OutputTokensPerSecond), PricePerMillion: significant(o.perMillion()), Basis: p.Basis,
	}
}

// significant rounds to three digits: finer figures would pretend to be measured.
func significant(value float64) float64 {
	if value <= 0 {
		return value
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(value)))
	return math.Round(value*scale) / scale
}

// holdsLess says what a layout holds of what the plan holds.
func (l *layout) holdsLess(best *option) string {
	return fmt.Sprintf("holds %s, the plan %s", l.fitted.target, best.layout.fitted.target)
}

// holds is how many sequences of its length an option's KV cache has room for; 0 where the engine does not say.
func (o *option) holds() int {
	return int(o.layout.fitted.budget.MaxConcurrency) * o.layout.spread.replicas
}

// preferred says whether the user names all nodes of an option.
func (o *option) preferred() bool {
	return !slices.ContainsFunc(o.machine.there, func(n Node) bool { return !n.Preferred && slices.Contains(o.nodeNames, n.Name) })
}

// memoryGiB of the GPUs that an option uses.
func (o *option) memoryGiB() float64 { return float64(o.nodes*o.gpus) * o.machine.gpu.MemoryGiB }

// priced names an option's machine and its price.
func priced(o *option) string {
	if o.price < 0 {
		return named(o)
	}
	return fmt.Sprintf("%s (%s)", named(o), usd.PerHour(o.price))
}

// named names an option's machines.
func named(o *option) string {
	if o.nodes > 1 {
		return fmt.Sprintf("%d × %s", o.nodes, o.machine.Name)
	}
	return o.machine.Name
}
