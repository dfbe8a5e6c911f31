// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"time"

	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
)

// What is aimed at where the user set no objectives, and how far that may be lowered where the user
// named the machine type.
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

// floors are the slowest that will do.
type floors struct {
	ttft, tpot time.Duration
	// set says that the user set one of them.
	set bool
	// waived says that the user named the machine type and set no floor: a slow answer is better than
	// none.
	waived bool
}

func floorsFor(o Objectives, named bool) floors {
	return floors{
		ttft:   cmp.Or(o.TimeToFirstToken, usualTTFT),
		tpot:   cmp.Or(o.TimePerOutputToken, usualTPOT),
		set:    o.TimeToFirstToken > 0 || o.TimePerOutputToken > 0,
		waived: named && o.TimeToFirstToken == 0 && o.TimePerOutputToken == 0,
	}
}

// typicalLoad is what speed is judged at; its concurrency is 0 where the user set none.
func typicalLoad(o Objectives) physics.Load {
	return physics.Load{
		Input: cmp.Or(o.InputTokens, usualInput), Output: cmp.Or(o.OutputTokens, usualOutput), Concurrency: o.Concurrency,
	}
}

// target is what must fit: concurrency sequences of length tokens.
type target struct {
	length, concurrency int
	// lengthSet and concurrencySet say that the user chose the number.
	lengthSet, concurrencySet bool
	// context is the longest sequence that the model was made for.
	context int
	// lowerable says that what the user did not choose may be lowered rather than refused.
	lowerable bool
}

// targetFor returns what must fit, and warns where the user asked for more than the model can do.
func targetFor(m model.Model, o Objectives, lowerable bool) (target, []string) {
	typical := typicalLoad(o)
	t := target{
		length: min(m.Context, max(targetModelLen, typical.Input+typical.Output)), concurrency: targetSequences,
		lengthSet: o.MaxModelLen > 0, concurrencySet: o.Concurrency > 0,
		context: m.Context, lowerable: lowerable,
	}
	var warnings []string
	if t.concurrencySet {
		t.concurrency = o.Concurrency
	}
	if t.lengthSet {
		t.length = min(o.MaxModelLen, m.Context)
	}
	if o.MaxModelLen > m.Context {
		warnings = append(warnings, fmt.Sprintf("inference.objectives.maxModelLen: %d is more than the %d tokens that %s "+
			"was made for; %d is used", o.MaxModelLen, m.Context, m.Name, m.Context))
	}
	if asked := o.InputTokens + o.OutputTokens; asked > t.length {
		warnings = append(warnings, fmt.Sprintf("inference.objectives: a request of inputTokens and outputTokens has %d tokens, "+
			"sequences may have %d: speeds are those of shorter requests", asked, t.length))
	}
	return t, warnings
}

// lowered returns the largest target that fits in place of one that does not, sequences first: a
// request that waits is better than one that is refused for its length.
func (t target) lowered(fits func(target) bool) (target, bool) {
	if !t.lowerable {
		return t, false
	}
	if !t.concurrencySet {
		for ; t.concurrency > 1; t.concurrency-- {
			if fits(t) {
				return t, true
			}
		}
	}
	if fits(t) {
		return t, true
	}
	if t.lengthSet {
		return t, false
	}
	least := t.least()
	if !fits(least) {
		return t, false
	}
	return least.longest(t.length, fits), true
}

// least is the target below which what the user did not choose is not lowered.
func (t target) least() target {
	if !t.concurrencySet {
		t.concurrency = 1
	}
	if !t.lengthSet {
		t.length = min(t.context, leastModelLen)
	}
	return t
}

// extended returns the target with the longest sequences that fit, where the user did not choose.
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

// loweredWarning says what was lowered and how to insist.
func loweredWarning(from, to target, m *machine) string {
	if from.concurrency <= to.concurrency && from.length <= to.length {
		return ""
	}
	return fmt.Sprintf("%s holds %s instead of the usual %s: set inference.objectives to insist, or %s "+
		"to have a machine chosen that holds them", m.Name, to, from, m.elsewhere())
}

// String is the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%d tokens × %d", t.length, t.concurrency)
}
