// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// leastSpan between two readings for rates: over a moment, a single request is a storm.
const leastSpan = 2 * time.Second

// reading is what an engine reported at a moment, and the signals since the one before it.
type reading struct {
	at      time.Time
	signals engineprobe.Signals
	since   autoscale.Engine
}

// digest turns the reports of a reading, and those of the previous one, into signals.
func (m *memory) digest(replicas []*asked, out *observed) {
	readings := map[types.UID]reading{}
	for _, each := range replicas {
		before, ok := m.readings[each.ws.UID]
		if each.problem != "" {
			if ok {
				readings[each.ws.UID] = before
			}
			out.signals.Engines = append(out.signals.Engines, autoscale.Unknown())
			out.silent = append(out.silent, silence{each.ws.Name, each.problem})
			continue
		}
		if !ok {
			before = reading{signals: unread()}
		}
		next := before.next(each.at, each.signals)
		readings[each.ws.UID] = next
		out.signals.Engines = append(out.signals.Engines, next.engine(each.signals))
	}
	m.readings = readings
}

// unread are signals without any figure.
func unread() engineprobe.Signals {
	nan := math.NaN()
	none := engineprobe.Sum{Seconds: nan, Count: nan}
	return engineprobe.Signals{
		Speed:      engineprobe.Speed{Running: nan, Waiting: nan, TokenTime: none},
		KVCacheUse: nan, Finished: nan, FirstToken: none, EndToEnd: none, Queued: none,
	}
}

// next is the reading after another report. One that comes too soon for rates leaves the reading as it is: the next one
// covers the time of both.
func (r reading) next(at time.Time, signals engineprobe.Signals) reading {
	elapsed := at.Sub(r.at)
	if elapsed < leastSpan {
		return r
	}
	return reading{at, signals, ratesOf(&r.signals, &signals, elapsed)}
}

// engine has the last rates of a reading, and what the engine reports at this moment.
func (r reading) engine(now engineprobe.Signals) autoscale.Engine {
	out := r.since
	out.Running, out.Waiting, out.KVCacheUse = now.Running, now.Waiting, now.KVCacheUse
	return out
}

// ratesOf are the signals between two reports. Sums that fell are those of another process: then nothing is known about
// the time between.
func ratesOf(a, b *engineprobe.Signals, elapsed time.Duration) autoscale.Engine {
	out := autoscale.Unknown()
	if finished := b.Finished - a.Finished; finished >= 0 {
		// Those that came have ended or are here.
		out.Arrivals = math.Max(0, finished+(b.Running+b.Waiting)-(a.Running+a.Waiting)) / elapsed.Seconds()
	}
	out.TimeToFirstToken = mean(a.FirstToken, b.FirstToken)
	out.TimePerOutputToken = mean(a.TokenTime, b.TokenTime)
	if served, queued := mean(a.EndToEnd, b.EndToEnd), mean(a.Queued, b.Queued); served >= 0 {
		out.ServiceTime = served
		if queued >= 0 {
			out.ServiceTime = math.Max(0, served-queued)
		}
	}
	return out
}

// mean of what was added to a sum; NaN if nothing was, or the sum fell.
func mean(before, now engineprobe.Sum) float64 {
	seconds, count := now.Seconds-before.Seconds, now.Count-before.Count
	if !(seconds >= 0) || !(count > 0) {
		return math.NaN()
	}
	return seconds / count
}
