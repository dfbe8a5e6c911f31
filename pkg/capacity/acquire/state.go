// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// state returns the inputs of the next step.
func (p *pass) state() (out State, err error) {
	out.Unrecorded, out.Needless, err = p.observeSurge()
	if err != nil || out.Unrecorded || out.Needless {
		return out, err
	}
	if out.Serving, err = p.servingState(); err != nil {
		return out, err
	}
	last := p.Attempts.LatestBut(p.Surge.Serving)
	var names []string
	isRetired := false
	if last != nil && last.Reason == "" {
		if names, isRetired, err = p.namesOf(last); err != nil {
			return out, err
		}
	}
	p.tally(&out, names)
	if last != nil {
		if out.Last, err = p.lastState(last, names); err != nil {
			return out, err
		}
		out.Last.Retired = isRetired
	}
	out.Unwritten = !p.isImplied(last) && !equality.Semantic.DeepEqual(p.Workspace.Status.Attempts, []v1beta1.Attempt(p.Attempts))
	return out, nil
}

// isImplied reports whether stored objects imply an open attempt. Its machines may then be requested before the status
// has it. This is true only of the first attempt of a new Workspace: the pinned revision has its plan, and after a
// crash a later pass adopts the machines.
func (p *pass) isImplied(open *v1beta1.Attempt) bool {
	return p.IsNew && len(p.Workspace.Status.Attempts) == 0 && len(p.Attempts) == 1 && open != nil && open.Reason == ""
}

// servingState returns the inputs about the serving attempt; nil if there is none.
func (p *pass) servingState() (*Serving, error) {
	serving := p.Serving()
	if serving == nil {
		return nil, nil
	}
	machines, err := p.judge(serving, serving.NodeClaims)
	if err != nil {
		return nil, err
	}
	var verdicts []refusal.Verdict
	for _, machine := range machines {
		verdicts = append(verdicts, machine.Verdict)
	}
	verdict := p.Surge.Verdict(serving, p.Running.IsGroup(), verdicts)
	if at := verdict.LookAgain; !verdict.Final && !at.IsZero() {
		p.out.lookAgain(at.Sub(p.Judge.Now))
	}
	isOverdue := !p.Judge.Now.Before(p.MoveDeadline())
	return &Serving{Verdict: verdict, Moved: p.IsMoved(), Empty: p.IsVacated(), Overdue: isOverdue}, nil
}

// lastState returns the inputs about the latest attempt. names are its machines if it is open.
func (p *pass) lastState(last *v1beta1.Attempt, names []string) (*Attempt, error) {
	out := &Attempt{Open: last.Reason == "", Unchanged: p.isUnchangedSince(last), Mended: p.IsMended}
	if !out.Open {
		if last.Reason != v1beta1.ReasonReleased {
			out.Cause = refusal.Cause(last.Reason)
		}
		return out, nil
	}
	out.Wanted = p.Machines.AreWanted(last, names, p.Accepted.Revision)
	if !out.Wanted {
		return out, nil
	}
	p.Attempts.Note(last, p.Machines, names, p.gpusOf(last), p.Judge.Now)
	var err error
	out.Machines, err = p.judge(last, names)
	out.Failed = p.Failed(last)
	out.Keeps = p.Surge.KeepsOthers(last)
	out.ByPod = p.Surge.Replaces == capacity.ReplacesPod
	out.Apart = !p.Accepted.IsGroup() && (p.Surge.Replaces == capacity.ReplacesLater || p.Surge.Replaces == capacity.ReplacesPod)
	return out, err
}

// namesOf returns the names of the machines of an open attempt. isRetired reports that another back end began it: the
// recorded names differ from the current back end's, or a retired back end still manages the machines.
func (p *pass) namesOf(open *v1beta1.Attempt) (names []string, isRetired bool, err error) {
	names, err = p.Lookup.Names(open.Number, p.Accepted.Plan.Nodes)
	if noted := open.NodeClaims; len(noted) > 0 && !slices.Contains(names, noted[0]) {
		return noted, true, nil
	}
	return names, p.Machines.AreRetired(), err
}

// tally counts the machines outside the given names and the serving attempt.
func (p *pass) tally(out *State, names []string) {
	lost := p.Attempts.LostUIDs()
	for i := range p.Machines {
		machine := &p.Machines[i]
		switch {
		case p.isServing(machine.Name):
		case machine.Deleting:
			out.Leaving++
		case slices.Contains(lost, machine.UID):
			out.Strays++
		case !slices.Contains(names, machine.Name):
			out.Strays++
			out.Unknown = out.Unknown || Fits(machine, p.Accepted.Revision) && !p.isKnown(machine.Name) && !machine.Replacement
		}
	}
}

// isUnchangedSince reports whether no user has changed the Workspace or requested a retry since an attempt ended.
func (p *pass) isUnchangedSince(last *v1beta1.Attempt) bool {
	return last.Generation == p.Workspace.Generation && last.Revision == p.Accepted.Name && !p.Attempts.IsRetry(p.Workspace)
}

// Failed returns the verdict on an open attempt that costs money and serves nobody: for longer than the deadline, its
// pods have failed permanently, or none has been ready. It is zero before the deadline.
func (s *Snapshot) Failed(open *v1beta1.Attempt) refusal.Verdict {
	if verdict := s.failing(open); verdict.Final {
		return verdict
	}
	return s.idle(open)
}

// failing returns the verdict on an open attempt whose pods have failed permanently for longer than the deadline; zero
// before.
func (s *Snapshot) failing(open *v1beta1.Attempt) refusal.Verdict {
	deadline := s.Judge.FailureDeadline
	if deadline <= 0 || open.FailingTime == nil || s.Surge.Serving > 0 || s.Judge.Now.Before(open.FailingTime.Add(deadline)) {
		return refusal.Verdict{}
	}
	why, isFailing := s.Lookup.Failing(open)
	if !isFailing {
		return refusal.Verdict{}
	}
	return refusal.Verdict{
		Cause: refusal.CannotServe, Final: true,
		Message: fmt.Sprintf("the machines are released because their pods have failed for %s: %s", deadline, why),
	}
}
