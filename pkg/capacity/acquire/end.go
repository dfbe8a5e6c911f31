// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"cmp"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// end ends the open attempt. If one usable machine would keep it open, or if nothing has failed, a live read of the
// machines must confirm the end first.
func (p *pass) end(step Step) error {
	verdict, now := step.Verdict, p.Judge.Now
	if !p.Live.AreMachinesConfirmed && (step.Recheck || verdict.Cause == refusal.None) {
		return &missing{Read{Needs: NeedsMachines}}
	}
	if p.AsksAgain {
		verdict = refusal.Verdict{Message: p.Recreates + "; " + verdict.Message}
	}
	last := p.Open()
	if verdict.Cause == refusal.None {
		p.close(last, Released(cmp.Or(verdict.Message, p.Recreates, "the machines were released for another plan")))
		return nil
	}
	if verdict.Cause != refusal.CannotServe { // after which nothing is bought
		p.countSilences(last)
	}
	p.out.Wasted += p.waste(now)
	p.close(last, verdict)
	last.Revision = p.Accepted.Name // the attempt may have outlived an edit: this plan has failed, too
	return nil
}

// close ends an attempt.
func (p *pass) close(open *v1beta1.Attempt, verdict refusal.Verdict) {
	giveUp(open, p.Judge.Now)
	Close(open, verdict, p.Workspace.Generation, p.Judge.Now)
	p.out.Ended = append(p.out.Ended, Ended{Attempt: *open, Rule: verdict.Rule})
}

// endServing ends the serving attempt: its machines are no longer needed, or lost.
func (p *pass) endServing(verdict refusal.Verdict) {
	if verdict.Cause == refusal.None {
		verdict = Released("the machines were released: the pods have moved to the machines of a later attempt")
	}
	p.close(p.Serving(), verdict)
}

// waste returns the cost in USD of launched machines of the open attempt that never served.
func (p *pass) waste(now time.Time) float64 {
	if p.Open().ReadyTime != nil {
		return 0
	}
	usd := 0.0
	for i := range p.Machines {
		if machine := &p.Machines[i]; !p.isServing(machine.Name) && machine.Launched && now.After(machine.CreatedAt) {
			usd += max(machine.HourlyPrice, 0) * now.Sub(machine.CreatedAt).Hours()
		}
	}
	return usd
}

// noteReady records when the machines of the open attempt became usable.
func (p *pass) noteReady() {
	if open := p.Open(); open.ReadyTime == nil && p.areMachinesUsable() {
		open.ReadyTime = new(Seconds(p.readySince(open)))
	}
}

// readySince returns when the last machine of an attempt became usable. It reads the provisioner's conditions, because
// the last pass may be long ago.
func (p *pass) readySince(open *v1beta1.Attempt) time.Time {
	var since time.Time
	for _, machine := range p.PlannedMachines() {
		initialized := machine.Words.Initialized.Since
		if initialized.IsZero() || initialized.After(p.Judge.Now) {
			return p.Judge.Now
		}
		if initialized.After(since) {
			since = initialized
		}
	}
	if since.Before(open.StartTime.Time) { // the clocks differ
		return open.StartTime.Time
	}
	return since
}
