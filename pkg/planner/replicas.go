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
	d := division{p, r}
	side := d.forConcurrency
	if r.Objectives.RequestsPerSecond > 0 {
		side = d.forRate
	}
	if s, ok := side(); ok {
		return "; " + s.String()
	}
	return ""
}

// division of the load of a request among replicas.
type division struct {
	planner *Planner
	whole   Request
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

// before reports whether replicas come before others: those of one machine, which do not fail together, then the
// cheaper ones.
func (s sideBySide) before(other sideBySide) bool {
	if one, others := s.nodes == 1, other.nodes == 1; one != others {
		return one
	}
	return s.total() < other.total()-cent
}

// total is the price of all replicas per hour.
func (s sideBySide) total() float64 { return s.price * float64(s.replicas) }

// mostReplicas is more than anybody runs side by side.
const mostReplicas = 1_000_000

// forRate returns the cheapest deployments side by side that keep up with the rate of a request, if it has one.
func (v division) forRate() (sideBySide, bool) {
	rate, one := v.whole.Objectives.RequestsPerSecond, v.whole
	if rate == 0 {
		return sideBySide{}, false
	}
	one.Objectives.RequestsPerSecond = min(rate, 0.01)
	best := v.cheapest(one, func(d *modelDemand, o *option) float64 { return rate / d.capacity(o) })
	return v.verified(best, func(share *Objectives, replicas int) string {
		// Rounded up: the parts together are the whole.
		share.RequestsPerSecond = math.Ceil(100*rate/float64(replicas)) / 100
		return fmt.Sprintf("requestsPerSecond: %q", decimal(share.RequestsPerSecond))
	})
}

// forConcurrency returns the cheapest deployments side by side that hold the sequences of a request at once and keep
// its floors, if it has more than one.
func (v division) forConcurrency() (sideBySide, bool) {
	asked, one := v.whole.Objectives.Concurrency, v.whole
	if asked < 2 || one.Model == nil {
		return sideBySide{}, false
	}
	one.Objectives.MaxModelLen = min(cmp.Or(one.Objectives.MaxModelLen, targetModelLen), one.Model.Context)
	var best sideBySide
	for part := 1; part < asked; part *= 4 { // a machine's layout for few sequences holds few
		one.Objectives.Concurrency = part
		s := v.cheapest(one, func(d *modelDemand, o *option) float64 { return float64(asked) / float64(together(d, o, asked)) })
		if s.option == nil {
			break
		}
		if best.option == nil || s.before(best) {
			best = s
		}
	}
	return v.verified(best, func(share *Objectives, replicas int) string {
		share.Concurrency = ceilDiv(asked, replicas)
		return fmt.Sprintf("concurrency: %d", share.Concurrency)
	})
}

// cheapest returns the option for a part of a load with the lowest total cost for the whole load.
func (v division) cheapest(one Request, needed func(*modelDemand, *option) float64) (best sideBySide) {
	if one.Model == nil {
		return best
	}
	d, err := v.planner.modelDemand(one)
	if err != nil {
		return best
	}
	d.terse = true
	found, err := v.planner.search(d, one.Constraints)
	if err != nil {
		return best
	}
	for _, o := range found.options {
		replicas := math.Ceil(needed(d, o))
		if !(replicas <= mostReplicas) || o.price < 0 {
			continue
		}
		if s := (sideBySide{o, int(replicas), ""}); best.option == nil || s.before(best) {
			best = s
		}
	}
	return best
}

// verified plans one of several replicas. It takes more of them if one does not serve its part, which share sets and
// words.
func (v division) verified(s sideBySide, share func(*Objectives, int) string) (sideBySide, bool) {
	const tries = 4
	if s.option == nil {
		return s, false
	}
	for range tries {
		one := v.whole
		each := share(&one.Objectives, s.replicas)
		one.Constraints.InstanceTypes = []string{s.machine.Name}
		if o, ok := v.planner.best(one); ok {
			return sideBySide{o, s.replicas, each}, true
		}
		s.replicas += 1 + s.replicas/8
	}
	return s, false
}

// together is how many sequences of the target's length an option holds at once while it keeps the floors, but no
// more than a number of them; 0 if its speed is unknown and a floor matters.
func together(d *modelDemand, o *option, most int) int {
	deployed := d.deployment(&o.layout, o.machine)
	load := o.layout.load
	keeps := func(sequences int) bool {
		load.Concurrency = sequences
		p := o.layout.form.speed(&deployed, load)
		return d.floors.waived || d.floors.kept(&p)
	}
	if held := o.holds(); held > 0 {
		most = min(most, held)
	}
	return largest(0, most+1, keeps)
}

// largest returns the largest number from low on, and below high, that holds: low does, high does not, and of the
// numbers between, those that hold come first.
func largest(low, high int, holds func(int) bool) int {
	for high-low > 1 {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
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
		p := o.layout.form.speed(&deployed, load)
		if p.TPOT == 0 || !d.floors.waived && !d.floors.kept(&p) {
			return false
		}
		load.Concurrency = inFlight + int(math.Ceil(2*math.Sqrt(float64(inFlight))))
		if busy := o.layout.form.speed(&deployed, load); busy.Queues {
			return false
		}
		best = max(best, margin(p.Basis)*p.OutputTokensPerSecond/float64(load.Output))
		return true
	}
	low, high := 0, 1
	for holds(high) && high < mostSequences {
		low, high = high, 2*high
	}
	largest(low, high, holds)
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
