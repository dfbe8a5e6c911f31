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

// Defaults of unset objectives, and how far those may be lowered before a machine is added.
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

// floors are the slowest acceptable times.
type floors struct {
	ttft, tpot time.Duration
	// set: the user set one of them.
	set bool
	// waived: the user named the machine type and set no floor. A slow answer is better than none.
	waived bool
}

// margin returns the usable part of a floor, by the basis of the figure.
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

// closeTo is the part of that above which a figure barely keeps a floor.
const closeTo = 0.9

// limits returns the longest times in ms for a pace. The margin of an estimate is for engines that take longer than the
// law says. A time that such engines took leaves the margin of a measured one, if the estimate itself keeps its own: no
// lesson makes a limit wider.
func (f floors) limits(p *pace) (ttft, tpot float64) {
	ttft, tpot = millis(f.ttft)*margin(p.Basis), millis(f.tpot)*margin(p.Basis)
	if p.Slowdown > 1 {
		tpot = min(tpot*p.Slowdown, millis(f.tpot)*margin(v1beta1.BasisMeasured))
	}
	return ttft, tpot
}

// kept reports whether a pace keeps the floors with its margin.
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

// typicalLoad returns the load for the speed; its concurrency is 0 if the user set none.
func typicalLoad(o Objectives) physics.Load {
	return physics.Load{
		Input: cmp.Or(o.InputTokens, usualInput), Output: cmp.Or(o.OutputTokens, usualOutput), Concurrency: o.Concurrency,
		Rate: o.RequestsPerSecond,
	}
}

// target must fit: concurrency sequences of length tokens.
type target struct {
	length, concurrency int
	// lengthSet and concurrencySet: the user chose the number.
	lengthSet, concurrencySet bool
	// context is the model's longest sequence.
	context int
	// shortest is the length down to which sequences may become shorter than the usual, because the user named the
	// machine type, or to save a machine; 0 where there are only fewer of them: they wait, but nothing that the usual
	// length holds is refused.
	shortest int
}

// lowerable reports whether an unset number can be lowered before another machine is bought for it.
func (t target) lowerable() bool { return !t.concurrencySet || t.shortest > 0 && !t.lengthSet }

// below reports whether a target is less than another one.
func (t target) below(other target) bool {
	return t.concurrency < other.concurrency || t.length < other.length
}

// targetFor returns the target, and warns of requests beyond the model's abilities.
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

// lowered returns the largest smaller target that fits, with sequences lowered first: a request that waits is better
// than one refused for its length. The least target fits.
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

// least returns the smallest target with the user's numbers.
func (t target) least() target {
	if !t.concurrencySet {
		t.concurrency = 1
	}
	if t.shortest > 0 && !t.lengthSet {
		t.length = min(t.length, t.shortest)
	}
	return t
}

// extended returns the target with the longest sequences that fit, if the user chose none.
func (t target) extended(fits func(target) bool) target {
	if t.lengthSet {
		return t
	}
	return t.longest(t.context, fits)
}

// longest returns the target with the longest sequences that fit, up to a limit. The target itself
// fits. Lengths between the ends are multiples of lengthResolution.
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

// loweredWarning describes the lowered numbers and how to insist.
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
	text := fmt.Sprintf("%s holds %s instead of the usual %s: to require that, set %s", m.Name, to, d.target, strings.Join(insist, " and "))
	if d.named || m.there != nil {
		text += fmt.Sprintf(", or %s to get a larger machine", m.elsewhere())
	}
	return text
}

// String is the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%d tokens × %d", t.length, t.concurrency)
}

// millis is a duration in the unit of a pace.
func millis(t time.Duration) float64 {
	return float64(t) / float64(time.Millisecond)
}
