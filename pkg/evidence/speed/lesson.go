// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package speed

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// rewrite is the shortest time between two writes of a Workspace's lesson.
const rewrite = 24 * time.Hour

// A lesson is not written again if it differs from the stored one by no more than these ratios.
const (
	sameTime = 1.1
	sameLoad = alike
)

// Limits of the figures of a lesson. No engine is that fast or slow.
const (
	mostMillis   = 1e7
	mostTokens   = 1 << 24
	mostRequests = 1 << 16
)

// lesson returns the speed of an engine under the load of most of its samples; false if it has too few samples. The
// median sample counts, because a pause of the engine affects only few samples.
func (e *engine) lesson() (v1beta1.EngineSpeed, bool) {
	none := v1beta1.EngineSpeed{}
	if len(e.samples) < leastSamples {
		return none, false
	}
	usual := median(e.samples, (*sample).load)
	near := slices.DeleteFunc(slices.Clone(e.samples), func(s sample) bool { return apart(s.load(), usual) > alike })
	if len(near) < leastSamples {
		return none, false
	}
	all := sample{}
	for i := range near {
		all.add(&near[i])
	}
	millis := median(near, (*sample).perToken) * 1e3
	concurrency, input, output := math.Ceil(all.load()-0.1), all.prompt/all.requests, all.output/all.requests
	if !within(millis, 1/mostMillis, mostMillis) || !within(concurrency, 1, mostRequests) || !within(input, 1, mostTokens) ||
		!within(output, 1, mostTokens) || !within(all.tokens, 1, math.MaxInt64/2) || !within(all.requests, 1, math.MaxInt64/2) {
		return none, false
	}
	return v1beta1.EngineSpeed{
		TimePerOutputToken: strconv.FormatFloat(millis, 'f', 3, 64), Concurrency: int32(concurrency),
		InputTokens: int32(math.Round(input)), OutputTokens: int32(math.Round(output)),
		Requests: int64(all.requests), Tokens: int64(all.tokens), Time: metav1.NewTime(e.last.at.Truncate(time.Second)),
	}, true
}

// Millis returns the time per output token in ms of a stored lesson. It returns false if no Meter can have made the
// lesson, because not only the controller can write a status.
func Millis(found *v1beta1.EngineSpeed) (float64, bool) {
	millis, err := strconv.ParseFloat(found.TimePerOutputToken, 64)
	return millis, err == nil && within(millis, 1/mostMillis, mostMillis) &&
		within(float64(found.Concurrency), 1, mostRequests) && within(float64(found.InputTokens), 1, mostTokens) &&
		within(float64(found.OutputTokens), 1, mostTokens) &&
		found.Requests >= leastSamples*sampleRequests && found.Tokens >= leastSamples*sampleTokens
}

// median returns the median figure of samples; of an even number, the lower one of the middle two.
func median(of []sample, figure func(*sample) float64) float64 {
	figures := make([]float64, len(of))
	for i := range of {
		figures[i] = figure(&of[i])
	}
	slices.SortFunc(figures, cmp.Compare[float64])
	return figures[(len(figures)-1)/2]
}

func within(value, least, most float64) bool { return value >= least && value <= most }

// IsDue reports whether to store a lesson next to an engine's other figures: the first one at once, and a different one
// at most once a day.
func IsDue(stored *v1beta1.EngineStatus, found *v1beta1.EngineSpeed, now time.Time) bool {
	if stored == nil {
		return false // the engine is probed first
	}
	known := stored.Speed
	if known == nil {
		return true
	}
	if now.Sub(known.Time.Time).Abs() < rewrite { // the clock of a former leader may have been ahead
		return false
	}
	before, err := strconv.ParseFloat(known.TimePerOutputToken, 64)
	after, errAfter := strconv.ParseFloat(found.TimePerOutputToken, 64)
	if err != nil || errAfter != nil || !(before > 0) {
		return true
	}
	return apart(before, after) > sameTime || differs(known.Concurrency, found.Concurrency) ||
		differs(known.InputTokens, found.InputTokens) || differs(known.OutputTokens, found.OutputTokens)
}

func differs(a, b int32) bool { return apart(float64(max(a, 1)), float64(max(b, 1))) > sameLoad }
