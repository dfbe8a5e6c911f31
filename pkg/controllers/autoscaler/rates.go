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

// leastSpan is the shortest time between two readings for rates: over a shorter time, a single request looks like a
// burst.
const leastSpan = 2 * time.Second

// reading is the report of an engine at a time, and the signals since the previous reading.
type reading struct {
	at      time.Time
	signals engineprobe.Signals
	since   autoscale.Engine
}

// digest computes the signals of each replica from its new report and its previous reading.
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

// unread returns signals without any figures.
func unread() engineprobe.Signals {
	nan := math.NaN()
	none := engineprobe.Sum{Seconds: nan, Count: nan}
	return engineprobe.Signals{
		Speed:      engineprobe.Speed{Running: nan, Waiting: nan, TokenTime: none},
		KVCacheUse: nan, Finished: nan, FirstToken: none, EndToEnd: none, Queued: none,
	}
}

// next returns the reading after another report. If the report comes too soon for rates, the reading stays as it is,
// and the next reading covers the whole time.
func (r reading) next(at time.Time, signals engineprobe.Signals) reading {
	elapsed := at.Sub(r.at)
	if elapsed < leastSpan {
		return r
	}
	return reading{at, signals, ratesOf(&r.signals, &signals, elapsed)}
}

// engine returns the last rates of a reading with the current state of the engine.
func (r reading) engine(now engineprobe.Signals) autoscale.Engine {
	out := r.since
	out.Running, out.Waiting, out.KVCacheUse = now.Running, now.Waiting, now.KVCacheUse
	return out
}

// ratesOf returns the signals between two reports. If sums have fallen, the engine's process is another one, and
// nothing is known about the time between.
func ratesOf(a, b *engineprobe.Signals, elapsed time.Duration) autoscale.Engine {
	out := autoscale.Unknown()
	if finished := b.Finished - a.Finished; finished >= 0 {
		// The requests that arrived have finished, or are still running or waiting.
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

// mean returns the mean of the values added to a sum; NaN if none was added, or the sum fell.
func mean(before, now engineprobe.Sum) float64 {
	seconds, count := now.Seconds-before.Seconds, now.Count-before.Count
	if !(seconds >= 0) || !(count > 0) {
		return math.NaN()
	}
	return seconds / count
}
