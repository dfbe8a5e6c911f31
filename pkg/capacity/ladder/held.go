// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ladder

import "github.com/modelberth/modelberth/pkg/capacity/refusal"

// Open is the oldest attempt that is open, as the one that may be held beside the latest.
type Open struct {
	// Ready says that it got its machines.
	Ready bool
	// Wanted says that the plan asks for what it has, and that it is not about to lose it.
	Wanted bool
	// Moved says that the pods are told to run on the machines of a later attempt.
	Moved bool
}

// IsHeld says whether its machines are held while those of another plan are got, or until its pods are
// gone. One that never got its machines serves nobody.
func (o Open) IsHeld() bool { return o.Moved || o.Ready && !o.Wanted }

// Held is an attempt whose machines are held beside those of the latest.
type Held struct {
	// Verdict on its machines; final once they are lost.
	Verdict refusal.Verdict
	// Moved says that the pods are told to run on the machines of a later attempt, Empty that none of them
	// is left on its own.
	Moved, Empty bool
	// Overdue says that they have had time enough to move.
	Overdue bool
}

// decide is what happens about a held attempt before anything else does.
func (h *Held) decide(last *Attempt) (Step, bool) {
	switch {
	case h == nil:
		return Step{}, false
	case h.Verdict.Final:
		return Step{Do: LetGo, Verdict: h.Verdict}, true
	case !h.Moved:
		return Step{}, false
	case h.Empty:
		return Step{Do: LetGo}, true
	case last != nil && last.Open && last.Wanted:
		return Step{}, false // pods that do not start there are for somebody to look at
	case h.Overdue:
		return Step{Do: LetGo}, true
	default:
		return Step{Do: Await}, true // what serves now is the latest: nothing comes beside it before this one is gone
	}
}
