// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// Defaults of unset objectives in tokens, sequences and times, and limits for lowering them before a machine is added.
const (
	targetModelLen   = 8192
	targetSequences  = 4
	leastModelLen    = 2048
	lengthResolution = 256

	usualInput  = 1024
	usualOutput = 256
	usualTTFT   = 5 * time.Second
	usualTPOT   = 100 * time.Millisecond
)

// floors are the longest acceptable times.
type floors struct {
	ttft, tpot time.Duration
	// set: the user set one of them.
	set bool
	// waived: the user named the machine type and set no floor, so a slow answer is better than none.
	waived bool
}

// margin returns the part of a floor that a figure may use, by the basis of the figure.
func margin(basis v1beta1.Basis) float64 {
	switch basis {
	case v1beta1.BasisExact:
		return 1
	case v1beta1.BasisMeasured:
		return 0.95
	default:
		return 0.8
	}
}

// closeTo is the part of the usable floor above which a figure barely keeps it.
const closeTo = 0.9

// limits returns the longest times in ms for a pace. An estimate has a wide margin, because some engines take longer
// than the law says. A time per token learned from such engines needs only the narrow margin of a measured figure, if
// the estimate itself keeps the wide one: a lesson never makes an unsuitable plan suitable.
func (f floors) limits(p *pace) (ttft, tpot float64) {
	ttft, tpot = millis(f.ttft)*margin(p.Basis), millis(f.tpot)*margin(p.Basis)
	if p.Slowdown > 1 {
		tpot = min(tpot*p.Slowdown, millis(f.tpot)*margin(v1beta1.BasisMeasured))
	}
	return ttft, tpot
}

// kept reports whether a pace keeps the floors, with its margin.
func (f floors) kept(p *pace) bool {
	ttft, tpot := f.limits(p)
	return p.TTFT <= ttft && p.TPOT <= tpot
}

func floorsFor(o Objectives, named bool) floors {
	return floors{
		ttft:   cmp.Or(o.TimeToFirstToken, usualTTFT),
		tpot:   cmp.Or(o.TimePerOutputToken, usualTPOT),
		set:    o.TimeToFirstToken > 0 || o.TimePerOutputToken > 0,
		waived: named && o.TimeToFirstToken == 0 && o.TimePerOutputToken == 0,
	}
}

// typicalLoad returns the load for predicting the speed; its concurrency is 0 if the user set none.
func typicalLoad(o Objectives) physics.Load {
	return physics.Load{
		Input: cmp.Or(o.InputTokens, usualInput), Output: cmp.Or(o.OutputTokens, usualOutput), Concurrency: o.Concurrency,
		Rate: o.RequestsPerSecond,
	}
}

// target is the load that a plan must hold: concurrency sequences of length tokens.
type target struct {
	length, concurrency int
	// lengthSet and concurrencySet: the user chose the number.
	lengthSet, concurrencySet bool
	// context is the model's longest sequence in tokens.
	context int
	// shortest is the length in tokens to which sequences may become shorter than usual. It is set if the user named
	// the machine type, or to save a machine. If it is 0, only the number of sequences may be lowered: requests then
	// wait, but none of the usual length fails.
	shortest int
}

// lowerable reports whether an objective that the user left open can be lowered before another machine is bought.
func (t target) lowerable() bool { return !t.concurrencySet || t.shortest > 0 && !t.lengthSet }

// below reports whether a target is less than another one.
func (t target) below(other target) bool {
	return t.concurrency < other.concurrency || t.length < other.length
}

// targetFor returns the target, and warns of objectives beyond the model's context.
func targetFor(m model.Model, o Objectives, named bool) (target, []string) {
	typical := typicalLoad(o)
	t := target{
		length: min(m.Context, max(targetModelLen, typical.Input+typical.Output)), concurrency: targetSequences,
		lengthSet: o.MaxModelLen > 0, concurrencySet: o.Concurrency > 0,
		context: m.Context,
	}
	if named {
		t.shortest = leastModelLen
	}
	var warnings []string
	if t.concurrencySet {
		t.concurrency = o.Concurrency
	}
	if t.lengthSet {
		t.length = min(o.MaxModelLen, m.Context)
	}
	if o.MaxModelLen > m.Context {
		warnings = append(warnings, fmt.Sprintf("inference.objectives.maxModelLen: %d is more than the %d-token "+
			"context of %s; %d is used", o.MaxModelLen, m.Context, m.Name, m.Context))
	}
	if asked := o.InputTokens + o.OutputTokens; asked > t.length {
		warnings = append(warnings, fmt.Sprintf("inference.objectives.inputTokens and inference.objectives.outputTokens make "+
			"a request of %d tokens, but a sequence has at most %d: the predicted speeds are for shorter requests", asked, t.length))
	}
	return t, warnings
}

// lowered returns the largest smaller target that fits. It lowers the number of sequences first: it is better if a
// request waits than if it fails for its length. The least target must fit.
func (t target) lowered(fits func(target) bool) target {
	least := t.least()
	for ; t.concurrency > least.concurrency; t.concurrency-- {
		if fits(t) {
			return t
		}
	}
	if least.length == t.length || fits(t) {
		return t
	}
	return least.longest(t.length, fits)
}

// least returns the smallest target that keeps the user's numbers.
func (t target) least() target {
	if !t.concurrencySet {
		t.concurrency = 1
	}
	if t.shortest > 0 && !t.lengthSet {
		t.length = min(t.length, t.shortest)
	}
	return t
}

// extended returns the target with the longest sequences that fit, unless the user chose the length.
func (t target) extended(fits func(target) bool) target {
	if t.lengthSet {
		return t
	}
	return t.longest(t.context, fits)
}

// longest returns the target with the longest sequences that fit, up to a limit. The target itself must fit. Lengths
// between the two are multiples of lengthResolution.
func (t target) longest(limit int, fits func(target) bool) target {
	with := func(length int) target {
		out := t
		out.length = length
		return out
	}
	if limit <= t.length {
		return t
	}
	if fits(with(limit)) {
		return with(limit)
	}
	low, high := t.length/lengthResolution, limit/lengthResolution+1 // low fits, high is beyond the limit
	for high-low > 1 {
		middle := (low + high) / 2
		if fits(with(middle * lengthResolution)) {
			low = middle
		} else {
			high = middle
		}
	}
	return with(max(t.length, low*lengthResolution))
}

// loweredWarning describes the lowered numbers and how to require the usual ones.
func (d *modelDemand) loweredWarning(to target, m *machine) string {
	if !to.below(d.target) {
		return ""
	}
	var insist []string
	if to.length < d.target.length {
		insist = append(insist, "inference.objectives.maxModelLen")
	}
	if to.concurrency < d.target.concurrency {
		insist = append(insist, "inference.objectives.concurrency")
	}
	text := fmt.Sprintf("%s holds %s instead of the usual %s: to require the usual target, set %s", m.Name, to, d.target, strings.Join(insist, " and "))
	if d.named || m.there != nil {
		text += fmt.Sprintf(", or %s to get a larger machine", m.elsewhere())
	}
	return text
}

// String returns the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%d tokens × %d", t.length, t.concurrency)
}

// millis converts a duration to milliseconds, the unit of a pace.
func millis(t time.Duration) float64 {
	return float64(t) / float64(time.Millisecond)
}
