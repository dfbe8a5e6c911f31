// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
)

// Lessons returns the runs that have a time per output token, for LearnedSpeed.
func Lessons(runs []catalog.Measurement) (lessons []catalog.Measurement) {
	for i := range runs {
		if runs[i].TPOTMillis > 0 {
			lessons = append(lessons, runs[i])
		}
	}
	return lessons
}

// LearnedSpeed is MeasuredSpeed with a longer time per output token if running engines took longer than the law says. A
// lesson is a mean over the requests that an engine served, in the form of a Measurement. It has no time to first
// token, because that would include the queue of its clients.
//
// A lesson counts if its set-up, its load and its minor release match, as for a run. Of several lessons, the median of
// their ratios to the law counts, and the lower one of two. A lesson never makes a figure better: clients that repeat
// prompts or pause make an engine look faster than it is for other clients. The time to first token and the basis stay.
func (m *Model) LearnedSpeed(d *Deployment, load Load, runs, lessons []catalog.Measurement) Pace {
	if load.Rate > 0 {
		return atRate(load, func(closed Load) Pace { return m.LearnedSpeed(d, closed, runs, lessons) })
	}
	pace := m.MeasuredSpeed(d, load, runs)
	open, alike := openFor(m, d, load)
	if len(lessons) == 0 || !alike || pace.TPOT == 0 || pace.Queues {
		return pace
	}
	law := pace.TPOT
	if pace.Basis == v1beta1.BasisMeasured {
		law = m.Speed(d, load).TPOT
	}
	return pace.slowed(law*residual(m, d, load, open, lessons), load)
}

// residual returns the median ratio to the law of the lessons near a load; 0 if there are none. open is the number of
// open requests of a replica.
func residual(m *Model, d *Deployment, load Load, open float64, lessons []catalog.Measurement) float64 {
	var found []float64
	for i := range lessons {
		lesson := &lessons[i]
		if minor(lesson.Version) != minor(cmp.Or(d.Serving.Version, d.Engine.Version)) || !sameSetUp(lesson, d) ||
			distanceOf(lesson, load, open) > farthest {
			continue
		}
		if lesson.KVType != kvTypeOf(d) && cacheShare(m, d, load) > mostCacheShare {
			continue
		}
		law, reached := m.speedOf(lesson, d, true)
		if reached && ratio(lesson.TPOTMillis, law.TPOT) <= mostTPOTResidual {
			found = append(found, lesson.TPOTMillis/law.TPOT)
		}
	}
	if len(found) == 0 {
		return 0
	}
	slices.Sort(found)
	return found[(len(found)-1)/2]
}

// farthest exceeds the distance of any load that counts as near. Other loads are infinitely far.
const farthest = 1e3

// slowed returns the pace with tpot in ms as the time per output token, if that is longer.
func (p Pace) slowed(tpot float64, load Load) Pace {
	if tpot <= p.TPOT {
		return p
	}
	further := float64(load.Output - 1)
	before := p.TTFT + further*p.TPOT
	p.Slowdown, p.TPOT = tpot/p.TPOT, tpot
	p.OutputTokensPerSecond *= before / (p.TTFT + further*p.TPOT) // by Little's law, as for runs
	return p
}
