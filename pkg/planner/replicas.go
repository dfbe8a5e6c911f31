// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"

	"github.com/modelberth/modelberth/pkg/usd"
)

// byReplicas describes how many parallel deployments serve a load beyond one, and their price.
func (p *Planner) byReplicas(r Request) string {
	if r.Objectives.RequestsPerSecond > 0 {
		s, ok := p.forRate(r)
		if !ok {
			return ""
		}
		return "; " + s.String()
	}
	const doublings, most = 3, 1000 // deployments with enough memory may yet be too slow
	asked := r.Objectives.Concurrency
	if asked < 2 || r.Model == nil {
		return ""
	}
	one := r
	one.Objectives.Concurrency = 1
	one.Objectives.MaxModelLen = min(cmp.Or(r.Objectives.MaxModelLen, targetModelLen), r.Model.Context)
	o, ok := p.best(one)
	if !ok {
		return ""
	}
	replicas := 2
	if held := o.holds(); held > 0 {
		replicas = max(replicas, ceilDiv(asked, held))
	}
	for range doublings {
		if replicas > most {
			return ""
		}
		share := r
		share.Objectives.Concurrency = ceilDiv(asked, replicas)
		if o, ok := p.best(share); ok {
			return "; " + sideBySide{o, replicas, fmt.Sprintf("concurrency: %d", share.Objectives.Concurrency)}.String()
		}
		replicas *= 2
	}
	return ""
}

// sideBySide is several deployments of an option.
type sideBySide struct {
	*option
	replicas int
	// each is the objective of a replica.
	each string
}

// String words the replicas and their price.
func (s sideBySide) String() string {
	text := fmt.Sprintf("an InferenceSet of %d replicas with inference.objectives.%s serves it on %s each", s.replicas, s.each, priced(s.option))
	if s.price > 0 {
		text += fmt.Sprintf(", %s in all", usd.PerHour(s.total()))
	}
	return text
}

// total is the price of all replicas per hour.
func (s sideBySide) total() float64 { return s.price * float64(s.replicas) }

// forRate returns the cheapest deployments side by side that keep up with the rate of a request, if it has one.
func (p *Planner) forRate(r Request) (sideBySide, bool) {
	const most = 1000
	var best sideBySide
	if r.Model == nil || r.Objectives.RequestsPerSecond == 0 {
		return best, false
	}
	one, rate := r, r.Objectives.RequestsPerSecond
	one.Objectives.RequestsPerSecond = min(rate, 0.01)
	d, err := p.modelDemand(one)
	if err != nil {
		return best, false
	}
	d.terse = true
	found, err := p.search(d, r.Constraints)
	if err != nil {
		return best, false
	}
	for _, o := range found.options {
		capacity := d.capacity(o)
		if capacity <= 0 || o.price < 0 || rate > capacity*most {
			continue
		}
		s := sideBySide{o, int(math.Ceil(rate / capacity)), ""}
		if best.option == nil || s.total() < best.total()-cent {
			best = s
		}
	}
	return p.verified(r, best)
}

// verified plans one of several replicas. It takes more of them if one does not keep up with its part.
func (p *Planner) verified(r Request, s sideBySide) (sideBySide, bool) {
	const tries = 4
	if s.option == nil {
		return s, false
	}
	for range tries {
		// Rounded up: the parts together are the whole.
		share := math.Ceil(100*r.Objectives.RequestsPerSecond/float64(s.replicas)) / 100
		one := r
		one.Objectives.RequestsPerSecond, one.Constraints.InstanceTypes = share, []string{s.machine.Name}
		if o, ok := p.best(one); ok {
			return sideBySide{o, s.replicas, fmt.Sprintf("requestsPerSecond: %q", decimal(share))}, true
		}
		s.replicas++
	}
	return s, false
}

// capacity is the highest rate of requests per second, with the margin of its figures, under which an option keeps the
// floors and has room for busy moments; 0 if unknown.
func (d *modelDemand) capacity(o *option) float64 {
	deployed := d.deployment(&o.layout, o.machine)
	load := o.layout.load
	load.Rate, load.Open = 0, true
	best := 0.0
	holds := func(inFlight int) bool {
		load.Concurrency = inFlight
		p := o.layout.form.physics.MeasuredSpeed(&deployed, load, o.layout.form.runs)
		if p.TPOT == 0 || !d.floors.waived && !d.floors.kept(&p) {
			return false
		}
		load.Concurrency = inFlight + int(math.Ceil(2*math.Sqrt(float64(inFlight))))
		if busy := o.layout.form.physics.MeasuredSpeed(&deployed, load, o.layout.form.runs); busy.Queues {
			return false
		}
		best = max(best, margin(p.Basis)*p.OutputTokensPerSecond/float64(load.Output))
		return true
	}
	low, high := 0, 1
	for holds(high) && high < mostSequences {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return best
}

// sideBySide words small deployments that keep up with a rate for notably less than the chosen one.
func (found outcome) sideBySide(s sideBySide, ok bool) string {
	chosen := found.options[0]
	if !ok || s.replicas < 2 || chosen.price < 0 || chosen.nodeNames != nil || s.total() > chosen.price*(1-notable) {
		return ""
	}
	return s.String() + fmt.Sprintf(", instead of %s", usd.PerHour(chosen.price))
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
