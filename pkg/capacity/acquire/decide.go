// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"errors"
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Do is the next step.
type Do string

// The steps.
const (
	// Keep: do nothing until something changes, or until the verdict's LookAgain.
	Keep Do = "Keep"
	// AdoptServing: record the attempt of the serving machines again, because the status has lost it.
	AdoptServing Do = "AdoptServing"
	// Cancel: record the end of the latest attempt, because the earlier machines are suitable again.
	Cancel Do = "Cancel"
	// Adopt: record the attempt of held machines again, because the status has lost it.
	Adopt Do = "Adopt"
	// Replace: record the loss of machines of the open attempt, and acquire others in their place. The rest stays.
	Replace Do = "Replace"
	// End: record the end of the open attempt: for the verdict's cause, or if there is none, because the attempt is no
	// longer wanted. Nothing is released before the status has the end.
	End Do = "End"
	// LetGo: record the end of the held attempt: for the verdict's cause, or if there is none, because the pods have
	// moved to the machines of the latest attempt.
	LetGo Do = "LetGo"
	// Record: write the attempts to the status, and decide again. Nothing is bought or released before the status has
	// them.
	Record Do = "Record"
	// Release: release standing machines, because no attempt is open.
	Release Do = "Release"
	// Ask: request the machines of the open attempt that never existed, and release all others.
	Ask Do = "Ask"
	// Await: machines are being deleted, and nothing is requested before they are gone.
	Await Do = "Await"
	// Stop: nothing more is bought until a person has fixed the cause.
	Stop Do = "Stop"
	// Next: choose an offer outside the cooldowns, and begin an attempt.
	Next Do = "Next"
)

// Machine is one machine of the open attempt.
type Machine struct {
	Name string
	// Ordinal among the machines of the attempt, from 0.
	Ordinal int
	// Stands: it exists and is not being deleted. Existed: it existed at some time.
	Stands  bool
	Existed bool
	// Arriving: it stands and has never been initialized.
	Arriving bool
	// Verdict on the machine; zero if it never existed.
	Verdict refusal.Verdict
	// AskAgain: another one of its kind may be requested at once.
	AskAgain bool
}

// Attempt is the latest attempt.
type Attempt struct {
	// Open until it has ended.
	Open bool
	// Wanted: the open attempt's machines fit the plan.
	Wanted bool
	// Retired: a retired back end began it, so it gets no more machines.
	Retired bool
	// Machines of the open attempt.
	Machines []Machine
	// Keeps: the open attempt has had all of its machines, and a lost one can be replaced without the others. Apart:
	// the replacement may come later, because the others are useful without it, and no provisioner buys it on its own.
	Keeps, Apart bool
	// ByPod: a replacement deletes the pod of the lost machine at once.
	ByPod bool
	// Failed is the verdict on the pods of the open attempt; final once the machines are to be released because of it.
	Failed refusal.Verdict
	// Cause is why a closed attempt ended; None if its machines were released.
	Cause refusal.Cause
	// Unchanged: no user has acted since the closed attempt ended. Mended: its cause has been fixed since.
	Unchanged, Mended bool
}

// State is the input of the decision.
type State struct {
	// Unrecorded: no attempt records the machines that serve another plan. Needless: machines are being acquired,
	// but those of an earlier attempt are suitable again. Either is settled before anything else is observed.
	Unrecorded, Needless bool
	// Last is the latest attempt; nil if none is known.
	Last *Attempt
	// Serving is the attempt whose machines serve meanwhile; nil if there is none. Its machines count neither as
	// strays nor as leaving.
	Serving *Serving
	// Strays is the number of standing machines outside the open attempt. Leaving is the number of machines under
	// deletion.
	Strays, Leaving int
	// Unknown: some of the strays fit the plan, and belong to no known attempt.
	Unknown bool
	// Unwritten: the attempts differ from those in the status.
	Unwritten bool
}

// Step is the decision. Verdict belongs to Keep, End, LetGo and Cancel.
type Step struct {
	Do      Do
	Verdict refusal.Verdict
	// Lost belongs to Replace: the lost machines, with their verdicts.
	Lost []Machine
	// Recheck belongs to End: one usable machine would keep the attempt open. Machines on their way are then read
	// live, because a cache may lag.
	Recheck bool
}

// mostSteps bounds the steps of one decision: at most adopt, end and keep follow each other.
const mostSteps = 8

// Decision is the next step, with the updated attempts and surge.
type Decision struct {
	Step
	// Attempts with the ends and the observed state of their machines.
	Attempts Attempts
	// Surge names the serving attempt.
	Surge Surge
	// Foreign are the names of held machines that cannot belong to any attempt.
	Foreign []string
	// Ended are the attempts that end now. Wasted is the cost in USD of their launched machines that never served.
	Ended  []Ended
	Wasted float64
	// LookAgain is when the decision may change without an event; 0 if it cannot.
	LookAgain time.Duration
	// Unheard explains why nodes that are not Ready do not count as lost; empty if they count, or if all are Ready.
	Unheard string
	// Read is the live read that the decision lacks. The caller takes no step, and decides again with the result.
	Read Read
}

// Ended is an attempt that ends, with the rule of the verdict.
type Ended struct {
	Attempt v1beta1.Attempt
	Rule    string
}

// pass is a decision in progress.
type pass struct {
	Snapshot

	out Decision
}

// Decide returns the next step of a Workspace. An error ends the pass: the cache lags behind, or there is no back end.
func Decide(s Snapshot) (Decision, error) {
	p := &pass{Snapshot: s}
	p.Attempts = s.Attempts.Clone()
	step, err := p.decide()
	out := p.out
	out.Step, out.Attempts, out.Surge, out.Foreign = step, p.Attempts, p.Surge, p.Foreign
	if read, isMissing := errors.AsType[*missing](err); isMissing {
		out.Read, err = read.Read, nil
	}
	return out, err
}

// decide takes the steps that change only attempts. It returns the first other step.
func (p *pass) decide() (Step, error) {
	for range mostSteps {
		state, err := p.state()
		if err != nil {
			return Step{}, err
		}
		step := state.Next()
		switch step.Do {
		case AdoptServing:
			err = p.adoptServing()
		case Adopt:
			err = p.adopt()
		case Cancel:
			p.close(p.Open(), step.Verdict)
		case End:
			err = p.end(step)
		case LetGo:
			p.endServing(step.Verdict)
		case Replace:
			return p.replace(state, step), nil
		case Keep:
			p.noteReady()
			if after := p.NoteIdle(p.Open()); after > 0 {
				p.out.lookAgain(after)
			}
			if at := step.Verdict.LookAgain; !at.IsZero() {
				p.out.lookAgain(at.Sub(p.Judge.Now))
			}
			return step, nil
		default:
			return step, nil
		}
		if err != nil {
			return Step{}, err
		}
	}
	return Step{}, &progress.WaitingError{Message: "deciding about machines", IsBrief: true}
}

// replace records the replacement of lost machines, and returns its step. A pod is deleted only once the status has the
// reason: after a crash in between, the loss would not count.
func (p *pass) replace(state State, step Step) Step {
	isNew := p.giveUp(step.Lost)
	if state.Last.ByPod && (isNew || state.Unwritten) {
		return Step{Do: Record}
	}
	return step
}

func (d *Decision) lookAgain(after time.Duration) {
	after = max(after, ShortestLook)
	if d.LookAgain == 0 || after < d.LookAgain {
		d.LookAgain = after
	}
}

// Next returns the next step.
func (s State) Next() Step {
	step := s.decide()
	if s.Unwritten && (step.Do == Next || step.Do == Ask || step.Do == Release) {
		return Step{Do: Record}
	}
	return step
}

func (s State) decide() Step {
	switch {
	case s.Unrecorded:
		return Step{Do: AdoptServing}
	case s.Needless:
		return Step{Do: Cancel, Verdict: Released("the new machines were released, because the earlier machines are suitable again")}
	}
	if step, isDecided := s.Serving.decide(s.Last); isDecided {
		return step
	}
	if s.Last != nil && s.Last.Open {
		return s.Last.decide(s)
	}
	switch {
	case s.Unknown:
		return Step{Do: Adopt}
	case s.Strays > 0:
		return Step{Do: Release}
	case s.Leaving > 0:
		return Step{Do: Await}
	case s.Last != nil && s.Last.Cause.NeedsPerson() && s.Last.Unchanged && !s.Last.Mended:
		return Step{Do: Stop}
	default:
		return Step{Do: Next}
	}
}

// decide returns the step for an open attempt.
func (a *Attempt) decide(s State) Step {
	if !a.Wanted {
		return Step{Do: End}
	}
	isHeld := slices.ContainsFunc(a.Machines, func(m Machine) bool { return m.Stands })
	if s.Unknown && !isHeld { // an old status was restored: the held machines are of a later attempt
		return Step{Do: End, Verdict: refusal.Verdict{Message: "the machines belong to another attempt"}}
	}
	verdicts := make([]refusal.Verdict, 0, len(a.Machines))
	isMissing := false
	for _, machine := range a.Machines {
		verdicts = append(verdicts, machine.Verdict)
		isMissing = isMissing || !machine.Stands && !machine.Existed
	}
	verdict := refusal.Decisive(verdicts)
	if verdict.Final {
		return a.lose(verdict)
	}
	switch {
	case isMissing && a.Retired:
		return Step{Do: End, Verdict: refusal.Verdict{Message: "the capacity back end changed before all machines were acquired"}}
	case s.Strays > 0:
		return Step{Do: Ask}
	case isMissing && s.Leaving > 0:
		return Step{Do: Await}
	case isMissing:
		return Step{Do: Ask}
	case a.Failed.Final:
		return Step{Do: End, Verdict: a.Failed}
	default:
		return Step{Do: Keep, Verdict: verdict}
	}
}

// lose returns the step after a loss of machines.
func (a *Attempt) lose(verdict refusal.Verdict) Step {
	isUsable := func(m Machine) bool { return m.Stands && !m.Arriving && !m.Verdict.Final }
	arrives := func(m Machine) bool { return m.Stands && m.Arriving && !m.Verdict.Final }
	switch mayReplace := a.mayReplace(); {
	case mayReplace && slices.ContainsFunc(a.Machines, isUsable):
		isKept := func(m Machine) bool { return !m.Verdict.Final }
		return Step{Do: Replace, Lost: slices.DeleteFunc(slices.Clone(a.Machines), isKept)}
	default:
		return Step{Do: End, Verdict: verdict, Recheck: mayReplace && slices.ContainsFunc(a.Machines, arrives)}
	}
}

// mayReplace reports whether lost machines may be replaced one by one while another is usable: either each machine serves
// independently, or all replacements can be requested at once.
func (a *Attempt) mayReplace() bool {
	hasToWait := func(m Machine) bool { return m.Verdict.Final && !m.AskAgain }
	return a.Keeps && !a.Retired && (a.Apart || !slices.ContainsFunc(a.Machines, hasToWait))
}
