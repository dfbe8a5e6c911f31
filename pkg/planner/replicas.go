// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"math"

	"github.com/modelberth/modelberth/pkg/usd"
)

// byReplicas advises several deployments for a load that is too large for one, with their price.
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

// division divides the load of a request among replicas.
type division struct {
	planner *Planner
	whole   Request
}

// sideBySide is an option deployed several times.
type sideBySide struct {
	*option
	replicas int
	// each is the objective of one replica, for messages.
	each string
}

// String describes the replicas and their price.
func (s sideBySide) String() string {
	text := fmt.Sprintf("an InferenceSet of %d replicas with inference.objectives.%s serves the load on %s each", s.replicas, s.each, priced(s.option))
	if s.price > 0 {
		text += fmt.Sprintf(", %s in all", usd.PerHour(s.total()))
	}
	return text
}

// before reports whether s ranks before other. Replicas on one machine each come first, because they fail
// independently. Then the lower price decides.
func (s sideBySide) before(other sideBySide) bool {
	if one, others := s.nodes == 1, other.nodes == 1; one != others {
		return one
	}
	return s.total() < other.total()-cent
}

// total returns the price per hour of all replicas.
func (s sideBySide) total() float64 { return s.price * float64(s.replicas) }

// byFewerBits describes the weights in fewer bits that make the request feasible.
func (v division) byFewerBits() string {
	relaxed := v.whole
	relaxed.Constraints.AllowedQuantizations = nil
	for _, a := range relaxed.Model.Artifacts {
		relaxed.Constraints.AllowedQuantizations = append(relaxed.Constraints.AllowedQuantizations, a.Quantization)
	}
	o, ok := v.planner.best(relaxed)
	if !ok || o.layout.form.artifact.Native {
		return ""
	}
	return fmt.Sprintf("; with inference.engine.allowedQuantizations: [%s] it works on %s", o.layout.form.artifact.Quantization, priced(o))
}

// mostReplicas exceeds any sensible number of replicas.
const mostReplicas = 1_000_000

// largerParts bounds the number of larger parts of a rate to try.
const largerParts = 3

// leastRate is a rate with which every deployment of known speed keeps up.
const leastRate = 0.01

// forRate returns the cheapest set of deployments that keeps up with the request's rate, if the request has one.
func (v division) forRate() (sideBySide, bool) {
	rate, one := v.whole.Objectives.RequestsPerSecond, v.whole
	if rate == 0 {
		return sideBySide{}, false
	}
	withLayoutsFor := func(part float64) sideBySide {
		one.Objectives.RequestsPerSecond = part
		return v.cheapest(one, func(d *modelDemand, o *option) float64 { return rate / d.capacity(o) })
	}
	best := withLayoutsFor(min(rate, leastRate))
	if best.option == nil {
		return best, false
	}
	// A layout planned for few requests keeps up with few, so try the layouts for larger parts too.
	part := rate / float64(best.replicas)
	for range largerParts {
		if part *= 2; part >= rate {
			break
		}
		if s := withLayoutsFor(part); s.option != nil && s.before(best) {
			best = s
		}
	}
	return v.verified(best, func(share *Objectives, replicas int) string {
		// Round up, because all parts together must reach the whole rate.
		share.RequestsPerSecond = math.Ceil(100*rate/float64(replicas)) / 100
		return fmt.Sprintf("requestsPerSecond: %q", decimal(share.RequestsPerSecond))
	})
}

// forConcurrency returns the cheapest set of deployments that holds the request's sequences at once and keeps the
// floors, if the request has more than one sequence.
func (v division) forConcurrency() (sideBySide, bool) {
	asked, one := v.whole.Objectives.Concurrency, v.whole
	if asked < 2 || one.Model == nil {
		return sideBySide{}, false
	}
	one.Objectives.MaxModelLen = min(cmp.Or(one.Objectives.MaxModelLen, targetModelLen), one.Model.Context)
	var best sideBySide
	for part := 1; part < asked; part *= 4 { // a layout planned for few sequences holds few, so try larger parts too
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

// cheapest returns the option for a part of the load whose replicas cost least for the whole load.
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

// verified plans one replica of several, and adds replicas if one cannot serve its part of the load. share sets that
// part and returns it for messages.
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

// together returns how many sequences of the target's length an option holds at once while it keeps the floors, up to
// most. An unknown speed keeps them: such an option is possible only if the user set no floor.
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

// largest returns the largest number from low on and below high for which holds is true. It must be true for low, false
// for high, and may change once between them.
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

// capacity returns the highest rate in requests per second at which an option keeps the floors and has room for bursts,
// less the margin of the speed; 0 if unknown.
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

// sideBySide advises several small deployments that keep up with a rate for notably less than the chosen one.
func (found outcome) sideBySide(s sideBySide, ok bool) string {
	chosen := found.options[0]
	if !ok || s.replicas < 2 || chosen.price < 0 || chosen.nodeNames != nil || s.total() > chosen.price*(1-notable) {
		return ""
	}
	return s.String() + fmt.Sprintf(", instead of %s", usd.PerHour(chosen.price))
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
