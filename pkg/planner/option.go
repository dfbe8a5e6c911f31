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
	// layout of the model; zero for a template.
	layout layout
	// nodes, and the gpus in use on each of them.
	nodes, gpus int
	// price is the price of all machines in USD per hour; negative if unknown.
	price float64
	// level is the lowest price within a cent of this one. standing is set for Balanced.
	level        float64
	standing     standing
	capacityType v1beta1.CapacityType
	warnings     []string
	// nodeNames are the existing nodes in use; nil for machines to buy.
	nodeNames []string
}

// perMillion returns the price of a million output tokens in USD; negative if unknown.
func (o *option) perMillion() float64 {
	return perMillion(o.price, o.layout.pace.OutputTokensPerSecond)
}

// outcome is the result of a search.
type outcome struct {
	// options meet the demand and the constraints, best first.
	options []*option
	// usual is the best option with sequences of the usual length, and short the demand with shorter ones. Both are nil
	// unless the best of the options has shorter sequences. usual is also nil if no option holds the usual length.
	usual *option
	short *modelDemand
	// tooDear are options that only the price limit excludes, cheapest first.
	tooDear []*option
	// unpriced are options that lack only a known price.
	unpriced []*option
	// tried counts the machine types that the constraints allow, apart from the price limit.
	tried int
	// misfits are the verdicts on tried machine types that do not meet the demand. rejected are the verdicts on all
	// machine types outside options. Both have the order of the planner's machines.
	misfits  []Verdict
	rejected []Verdict
	// warnings are about the constraints.
	warnings []string
	zones    []string
}

// diskSpareGiB is the disk for logs, caches and a file under replacement, beside weights and image.
const diskSpareGiB = 1

// byName orders verdicts by machine type.
func byName(a, b Verdict) int {
	return cmp.Compare(a.InstanceType, b.InstanceType)
}

// diskGiB returns the disk in GiB for weights, adapters and image on each machine. Every machine has all weights.
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

// significant rounds to three digits: more would suggest a measurement.
func significant(value float64) float64 {
	if value <= 0 {
		return value
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(value)))
	return math.Round(value*scale) / scale
}

// holdsLess says, for a verdict, how much a layout holds and how much the plan holds.
func (l *layout) holdsLess(best *option) string {
	return fmt.Sprintf("holds %s, and the plan holds %s", l.fitted.target, best.layout.fitted.target)
}

// holds returns how many sequences of the target's length fit into the KV cache; 0 if the engine does not report it.
func (o *option) holds() int {
	return int(o.layout.fitted.budget.MaxConcurrency) * o.layout.spread.replicas
}

// preferred reports whether the user prefers all nodes of an option.
func (o *option) preferred() bool {
	return !slices.ContainsFunc(o.machine.there, func(n Node) bool { return !n.Preferred && slices.Contains(o.nodeNames, n.Name) })
}

// memoryGiB returns the memory of the GPUs in use.
func (o *option) memoryGiB() float64 { return float64(o.nodes*o.gpus) * o.machine.gpu.MemoryGiB }

// priced names an option's machines and their price.
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
