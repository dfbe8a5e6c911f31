// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Do is what happens next.
type Do string

// What may happen next.
const (
	// Keep: nothing, until the world moves or the verdict's LookAgain.
	Keep Do = "Keep"
	// AdoptServing: take the machines that serve for an attempt that nobody remembers.
	AdoptServing Do = "AdoptServing"
	// Cancel: write down that the latest attempt has ended, because the earlier machines are suitable again.
	Cancel Do = "Cancel"
	// Adopt: take the machines that are held for an attempt that nobody remembers.
	Adopt Do = "Adopt"
	// Replace: write down that machines of the open attempt are lost, and get others in their place. The rest is kept.
	Replace Do = "Replace"
	// End: write down that the open attempt has ended, for the verdict's cause, or because it is not
	// wanted any more where there is none. Nothing is let go before that is written.
	End Do = "End"
	// LetGo: write down that the held attempt has ended, for the verdict's cause, or because the pods have
	// moved to the machines of the latest one where there is none.
	LetGo Do = "LetGo"
	// Release: let go of machines that stand and belong to no open attempt.
	Release Do = "Release"
	// Ask: ask for the machines of the open attempt that never were there.
	Ask Do = "Ask"
	// Await: machines are on their way out, and nothing is asked for before they are gone.
	Await Do = "Await"
	// Stop: nothing more is bought until somebody has mended something.
	Stop Do = "Stop"
	// Next: choose among what is not left alone, and begin an attempt.
	Next Do = "Next"
)

// Machine is one machine of the open attempt.
type Machine struct {
	Name string
	// Ordinal among the machines of the attempt, from 0.
	Ordinal int
	// Stands says that it is there and not on its way out; Existed that it was there once.
	Stands  bool
	Existed bool
	// Arriving says that it stands and was never usable.
	Arriving bool
	// Verdict on it; zero where it never was there.
	Verdict refusal.Verdict
	// AskAgain says that another one of its kind may be asked for at once.
	AskAgain bool
}

// Attempt is the latest attempt.
type Attempt struct {
	// Open until it has ended.
	Open bool
	// Wanted says that the plan asks for what the open one has.
	Wanted bool
	// Former says that another back end began it than the one that is set, so that it gets no more machines.
	Former bool
	// Machines of the open one, all that it asks for.
	Machines []Machine
	// Keeps says that the open one got all of its machines, and that one can be got without the others; Apart that
	// another one may be asked for later: the others are of use without it, and nobody buys it sooner.
	Keeps, Apart bool
	// Failed is the verdict on what runs on the machines of the open one; final once they are to be released for it.
	Failed refusal.Verdict
	// Cause that a closed one ended with; None where its machines were let go.
	Cause refusal.Cause
	// Unchanged says that nobody has acted since the closed one ended.
	Unchanged bool
}

// State is everything that the decision is made from.
type State struct {
	// Unrecorded says that no attempt has the machines that serve another plan. Needless says that machines are acquired
	// beside those of an earlier attempt, which are suitable again. Either is settled before anything else is observed.
	Unrecorded, Needless bool
	// Last is the latest attempt; nil where none is known.
	Last *Attempt
	// Held is the attempt whose machines serve meanwhile; nil where there is none. Its machines are neither
	// strays nor leaving.
	Held *Held
	// Strays are the machines that stand and do not belong to the open attempt, Leaving all that are on
	// their way out.
	Strays, Leaving int
	// Unknown says that some of the strays are what the plan asks for, and of no attempt that is known.
	Unknown bool
}

// Step is the decision. Verdict goes with Keep and End.
type Step struct {
	Do      Do
	Verdict refusal.Verdict
	// Lost goes with Replace: the machines that are lost, with their verdicts.
	Lost []Machine
	// Recheck goes with End: one usable machine would keep the attempt open. Ask the API server about those that were
	// not usable yet, because a cache may lag.
	Recheck bool
}

// Decide says what happens next. It is asked again after each step but Keep, Await and Stop.
func Decide(s State) Step {
	switch {
	case s.Unrecorded:
		return Step{Do: AdoptServing}
	case s.Needless:
		return Step{Do: Cancel, Verdict: Released("the machines were released: the earlier ones are suitable again")}
	}
	if step, isDecided := s.Held.decide(s.Last); isDecided {
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
	case s.Last != nil && s.Last.Cause.NeedsPerson() && s.Last.Unchanged:
		return Step{Do: Stop}
	default:
		return Step{Do: Next}
	}
}

// decide is for an open attempt: all of its machines, or none.
func (a *Attempt) decide(s State) Step {
	if !a.Wanted {
		return Step{Do: End}
	}
	isHeld := slices.ContainsFunc(a.Machines, func(m Machine) bool { return m.Stands })
	if s.Unknown && !isHeld { // an old status was restored: what is held is of a later attempt
		return Step{Do: End, Verdict: refusal.Verdict{Message: "machines of another attempt are held"}}
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
	case isMissing && a.Former:
		return Step{Do: End, Verdict: refusal.Verdict{Message: "the capacity back end changed before all machines were acquired"}}
	case s.Strays > 0:
		return Step{Do: Release}
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

// lose is what happens once machines are lost.
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

// mayReplace reports whether lost machines are replaced one by one, as long as one machine is usable: the machines serve
// by themselves, or the replacements can be had at once.
func (a *Attempt) mayReplace() bool {
	hasToWait := func(m Machine) bool { return m.Verdict.Final && !m.AskAgain }
	return a.Keeps && !a.Former && (a.Apart || !slices.ContainsFunc(a.Machines, hasToWait))
}

// Earliest returns the earlier of two moments, of which zero is never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ShortestLook keeps a deadline that has just passed from being looked at twice at once.
const ShortestLook = 10 * time.Millisecond
