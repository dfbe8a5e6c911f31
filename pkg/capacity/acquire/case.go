// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// judge returns the state of each machine of an attempt. Events and the node class are read only to explain a final
// verdict.
func (p *pass) judge(attempt *v1beta1.Attempt, names []string) ([]Machine, error) {
	judge := p.Judge
	if !p.IsVacated() { // the pods of a broken machine run on while others are acquired
		if serving := p.Serving(); serving != nil {
			judge.Nodes.Excused = serving.NodeClaims
		}
	}
	found := judge.Judge(p.caseOf(attempt, names))
	if found.LookAgain > 0 {
		p.out.lookAgain(found.LookAgain)
	}
	if found.Unheard != "" {
		p.out.Unheard = found.Unheard
	}
	if found.Needs != NeedsNothing {
		return nil, &missing{Read{Needs: found.Needs, Attempt: attempt.Number, Lost: found.Final}}
	}
	return found.Machines, nil
}

// caseOf returns an attempt with the facts about its machines.
func (p *pass) caseOf(attempt *v1beta1.Attempt, names []string) *Case {
	out := &Case{
		Attempt: attempt, Names: names, Machines: p.Machines, Lost: p.Attempts.LostUIDs(),
		Offering: p.Lookup.Offering(attempt), GPUs: p.gpusOf(attempt),
		IsConfirmed: p.Live.AreMachinesConfirmed,
	}
	out.Offering.Zone = p.zone(attempt, out.Offering)
	if read := p.Live.Reasons[attempt.Number]; read != nil {
		reasons := *read
		reasons.Past = Remember(p.Judge.Asker, p.Attempts, p.Lookup.Offering)
		out.Reasons = &reasons
	}
	return out
}

// gpusOf returns the number of GPUs of each machine of an attempt, by its own plan: after an edit, the accepted plan may
// request larger machines, and the serving ones would seem to lack GPUs.
func (p *pass) gpusOf(attempt *v1beta1.Attempt) int {
	if own := p.Lookup.Plan(attempt.Revision); own != nil {
		return own.Plan.MachineGPUs
	}
	return p.Accepted.Plan.MachineGPUs
}

// zone returns the zone of the request for a machine of an attempt. In a group it is the zone of the first existing
// member, so a refusal proves nothing about other zones. If that zone was to be avoided, the provisioner ignores
// zones, and no zone is better than another. Then the requested zone counts.
func (p *pass) zone(attempt *v1beta1.Attempt, asked refusal.Offering) string {
	if !p.Accepted.IsGroup() {
		return asked.Zone
	}
	for i := range p.Machines {
		machine := &p.Machines[i]
		if machine.Zone == "" || !slices.Contains(attempt.NodeClaims, machine.Name) {
			continue
		}
		if slices.Contains(p.Lookup.Zones(attempt.StartTime.Time, asked), machine.Zone) {
			break
		}
		return machine.Zone
	}
	return asked.Zone
}
