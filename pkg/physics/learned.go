// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics

import (
	"cmp"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
)

// Lessons returns the runs with a time per token, for LearnedSpeed.
func Lessons(runs []catalog.Measurement) (lessons []catalog.Measurement) {
	for i := range runs {
		if runs[i].TPOTMillis > 0 {
			lessons = append(lessons, runs[i])
		}
	}
	return lessons
}

// LearnedSpeed is MeasuredSpeed, with a longer time per token where engines took longer than the law says. Lessons are
// means of the requests that an engine served: the times of a Measurement, without its time to the first token, which
// includes the queue of its clients.
//
// A lesson counts for the set-up of a run, near its load, in its own minor release. Of several, the median of the ratios
// to the law counts, the lower one of two. No lesson makes a figure better: clients that repeat prompts or pause make an
// engine look faster than it is for others. The time to the first token and the basis stay.
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

// residual returns the median ratio of the lessons near a load to the law; 0 if there are none. A replica has some
// requests open.
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

// farthest is more than the distance of any near load: that of others is infinite.
const farthest = 1e3

// slowed returns a pace with a time per token; the same pace if that is no longer.
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
