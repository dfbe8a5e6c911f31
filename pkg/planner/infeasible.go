// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/usd"
)

// infeasible explains why the search found nothing, with the numbers and the remedy.
func (p *Planner) infeasible(r Request, found outcome) error {
	out := &InfeasibleError{Rejected: found.rejected}
	switch {
	case len(found.tooDear) > 0:
		cheapest := found.tooDear[0]
		out.Reason = v1beta1.ReasonNoMachineAllowed
		out.Message = p.overLimit(r, cheapest)
	case len(found.unpriced) > 0:
		out.Reason = v1beta1.ReasonNoMachineAllowed
		m := found.unpriced[0].machine
		out.Message = fmt.Sprintf("no suitable machine type has a known price in %s: name one in resource.instanceType, such as %s%s, "+
			"or have the administrator set the region or add prices", m.regionName(), m.Name, m.soldElsewhere())
	case found.tried == 0:
		out.Reason = v1beta1.ReasonNoMachineAllowed
		out.Message = p.noneAllowed(r, found)
	default:
		out.Reason = v1beta1.ReasonDoesNotFit
		out.Message = p.doesNotFit(r, found)
	}
	return out
}

// overLimit describes the price of the cheapest machine that would serve the request.
func (p *Planner) overLimit(r Request, cheapest *option) string {
	most := r.Constraints.limit()
	if cheapest.price < 0 {
		return fmt.Sprintf("no suitable machine has a known price in %s, so %s %s cannot be checked: have the administrator add prices%s, or %s",
			cheapest.machine.regionName(), most.Name, usd.PerHour(most.HourlyPrice), cheapest.machine.soldFor(), most.without())
	}
	limit, actual := usd.Apart(most.HourlyPrice, cheapest.price)
	return fmt.Sprintf("the cheapest plan is %d × %s at %s, above %s %s: %s%s",
		cheapest.nodes, cheapest.machine.Name, actual, most.Name, limit, most.Help,
		p.alternatively(r, relaxations{quantization: true, objectives: true}))
}

// without says how to lift the limit.
func (c Ceiling) without() string {
	if c.Name == maxHourlyPrice {
		return "leave maxHourlyPrice out"
	}
	return c.Help
}

// noneAllowed names the constraint that excludes every machine.
func (p *Planner) noneAllowed(r Request, found outcome) string {
	if len(p.machines) == 0 {
		return "the catalogue has no machine types for this installation's clouds: have the administrator add them"
	}
	if r.Constraints.InstanceType != "" {
		return fmt.Sprintf("resource.instanceType: %s: %s; remove instanceType, or change the limit that excludes it",
			found.rejected[0].InstanceType, found.rejected[0].Reason)
	}
	if reason := sameReason(found.rejected); reason != "" && !strings.HasPrefix(reason, notAllowed) {
		return "no machine type is left: " + reason
	}
	if left := notSold(found.rejected); left != "" {
		return "resource.placement allows only machine types that cannot be bought: " + left
	}
	const sentence = "resource.placement and resource.count together leave no machine type: widen them"
	return strings.Join(append([]string{sentence}, found.warnings...), "; ")
}

// notSold lists the machine types within the user's limits, each with the reason why nobody can buy it. It returns ""
// if the search rejected one of them for another reason.
func notSold(verdicts []Verdict) string {
	const most = 3
	var left []string
	for _, v := range verdicts {
		switch reason, unsold := strings.CutPrefix(v.Reason, notForSale); {
		case unsold:
			left = append(left, v.InstanceType+": "+reason)
		case !strings.HasPrefix(v.Reason, notAllowed):
			return ""
		}
	}
	if len(left) > most {
		left = append(left[:most], fmt.Sprintf("and %d more", len(left)-most))
	}
	return strings.Join(left, "; ")
}

// sameReason returns the reason of all verdicts if they share it, or else "".
func sameReason(verdicts []Verdict) string {
	if len(verdicts) == 0 {
		return ""
	}
	for _, v := range verdicts {
		if v.Reason != verdicts[0].Reason {
			return ""
		}
	}
	return verdicts[0].Reason
}

// doesNotFit describes the shortfall of the closest machine, and the remedy.
func (p *Planner) doesNotFit(r Request, found outcome) string {
	what := "the template"
	if r.Model != nil {
		what = r.Model.Name
	}
	if r.Constraints.InstanceType != "" {
		v := found.misfits[0]
		return fmt.Sprintf("%s on %s: %s%s", what, v.InstanceType, v.Reason,
			p.alternatively(r, relaxations{quantization: true, objectives: true, machines: true}))
	}
	closest := p.closest(found.misfits)
	if len(found.misfits) == 1 {
		return fmt.Sprintf("%s does not work on the only machine type allowed, %s: %s%s", what, closest.InstanceType, closest.Reason,
			p.alternatively(r, relaxations{quantization: true, objectives: true, machines: true}))
	}
	return fmt.Sprintf("%s works on none of the %s allowed; the largest, %s: %s%s", what,
		count(len(found.misfits), "machine type"), closest.InstanceType, closest.Reason,
		p.alternatively(r, relaxations{quantization: true, objectives: true, machines: true}))
}

// closest returns the verdict on the machine with the most GPU memory.
func (p *Planner) closest(misfits []Verdict) Verdict {
	best, most := misfits[0], -1.0
	for _, v := range misfits {
		s, _ := p.catalog.SKU(v.InstanceType)
		g, _ := p.catalog.GPU(s.GPU)
		if memory := g.MemoryGiB * float64(s.GPUs); memory > most {
			best, most = v, memory
		}
	}
	return best
}

// relaxations are the parts of a request that the search for a remedy may drop.
type relaxations struct{ quantization, objectives, machines bool }

// alternatively describes changes of the request that make it feasible: replicas, which keep the precision of the
// weights, and fewer bits. If neither helps, it describes another change.
func (p *Planner) alternatively(r Request, try relaxations) string {
	if r.Model == nil {
		return p.anotherMachine(r, try)
	}
	ways := ""
	if try.objectives {
		ways = p.byReplicas(r)
	}
	if try.quantization {
		ways += division{p, r}.byFewerBits()
	}
	if ways == "" && try.objectives {
		ways = p.byLess(r)
	}
	return cmp.Or(ways, p.anotherMachine(r, try))
}

// byLess describes the shorter sequences that make the request feasible. It keeps the user's concurrency; if the user
// set none, it tries one sequence at a time.
func (p *Planner) byLess(r Request) string {
	least := min(r.Model.Context, leastModelLen)
	if r.Objectives.Concurrency == 1 && r.Objectives.MaxModelLen <= leastModelLen {
		return ""
	}
	relaxed := r
	relaxed.Objectives.MaxModelLen = least
	if r.Objectives.Concurrency < 2 {
		relaxed.Objectives.Concurrency = 1
		if o, ok := p.best(relaxed); ok {
			return fmt.Sprintf("; with inference.objectives.maxModelLen: %d and inference.objectives.concurrency: 1 it works on %s",
				o.layout.fitted.target.length, priced(o))
		}
		return ""
	}
	if r.Objectives.MaxModelLen <= least {
		return ""
	}
	if o, ok := p.best(relaxed); ok {
		return fmt.Sprintf("; with inference.objectives.maxModelLen: %d it works on %s", least, priced(o))
	}
	if way := p.byReplicas(relaxed); way != "" {
		return fmt.Sprintf("; with inference.objectives.maxModelLen: %d, %s", least, way[len("; "):])
	}
	return ""
}

// anotherMachine names the best machine without the constraints on machines.
func (p *Planner) anotherMachine(r Request, try relaxations) string {
	if !try.machines {
		return ""
	}
	relaxed := r
	c := &relaxed.Constraints
	c.InstanceType, c.InstanceTypes, c.Accelerators, c.Zones, c.MaxNodes, c.GPUs = "", nil, nil, nil, 0, 0
	if o, ok := p.best(relaxed); ok {
		return "; " + priced(o) + " is suitable"
	}
	return "; no machine type of the catalogue is suitable"
}
