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
	// layout of a model; zero for a template.
	layout layout
	// nodes, and the gpus in use on each of them.
	nodes, gpus int
	// price per hour of all machines; negative if unknown.
	price float64
	// level is the lowest price within a cent of this one, and standing its worth.
	level        float64
	standing     standing
	capacityType v1beta1.CapacityType
	warnings     []string
	// nodeNames of the existing nodes in use; nil for machines to buy.
	nodeNames []string
}

// perMillion returns the price of a million output tokens in USD; negative if unknown.
func (o *option) perMillion() float64 {
	return perMillion(o.price, o.layout.pace.OutputTokensPerSecond)
}

// outcome is the result of a search.
type outcome struct {
	// options within the demand and the constraints, best first.
	options []*option
	// usual is the best option with sequences of the usual length, and short the demand of the options; both nil if
	// the options have the usual length.
	usual *option
	short *modelDemand
	// tooDear are options beyond the price limit alone, cheapest first.
	tooDear []*option
	// unpriced are options without a known price, which are not considered.
	unpriced []*option
	// tried counts the allowed machines, price limit aside.
	tried int
	// misfits are tried machines that do not meet the demand, and rejected all outside options; both in the order of
	// the planner's machines.
	misfits  []Verdict
	rejected []Verdict
	// warnings about the constraints.
	warnings []string
	zones    []string
}

// diskSpareGiB is free of weights and image: for logs, caches, and a file under replacement.
const diskSpareGiB = 1

// byName orders verdicts.
func byName(a, b Verdict) int {
	return cmp.Compare(a.InstanceType, b.InstanceType)
}

// diskGiB returns the disk for weights, adapters and image on each machine. Every machine has all weights.
func (l *layout) diskGiB() int {
	weights := l.form.weights.copies() * float64(l.form.artifact.Bytes())
	return int(math.Ceil((weights+l.form.physics.AdapterBytes())/gib+l.form.engine.ImageGiB)) + diskSpareGiB
}

// performance returns the expected performance of an option; nil for a template or if unknown.
func (o *option) performance() *Performance {
	if o.layout.pace.TPOT == 0 {
		return nil
	}
	p, load := o.layout.pace, o.layout.load
	return &Performance{
		InputTokens: load.Input, OutputTokens: load.Output, Concurrency: load.Concurrency, RequestsPerSecond: load.Rate,
		TTFTMillis: significant(p.TTFT), TPOTMillis: significant(p.TPOT),
		OutputTokensPerSecond: significant(p.OutputTokensPerSecond), PricePerMillion: significant(o.perMillion()), Basis: p.Basis,
		Slowdown: significant(p.Slowdown),
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

// holdsLess compares the load of a layout with the plan's.
func (l *layout) holdsLess(best *option) string {
	return fmt.Sprintf("holds %s, and the plan holds %s", l.fitted.target, best.layout.fitted.target)
}

// holds returns the number of sequences of its length in an option's KV cache; 0 if the engine does not report it.
func (o *option) holds() int {
	return int(o.layout.fitted.budget.MaxConcurrency) * o.layout.spread.replicas
}

// preferred reports whether the user names all nodes of an option.
func (o *option) preferred() bool {
	return !slices.ContainsFunc(o.machine.there, func(n Node) bool { return !n.Preferred && slices.Contains(o.nodeNames, n.Name) })
}

// memoryGiB of the GPUs in use.
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
