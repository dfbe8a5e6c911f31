// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Surge is how a Workspace has machines of two attempts at once: those that serve, and those of a later one.
type Surge struct {
	// Serving is the number of the attempt whose machines serve while those of a later one are acquired; 0 if there is none.
	Serving int32
	// Trouble is the reason for which that attempt's machines are replaced; empty if another plan is wanted.
	Trouble string
	// IsPossible: the back end distinguishes the machines of two attempts. Replaces is its way to replace one machine
	// of an attempt without the others.
	IsPossible bool
	Replaces   capacity.Replacing
	// IsGroup: the machines of the accepted plan serve together.
	IsGroup bool
}

// KeepsOthers reports whether one machine of an attempt is replaced without the others. Pods of a group ask for its machines
// together.
func (s *Surge) KeepsOthers(attempt *v1beta1.Attempt) bool {
	if s.Replaces == capacity.ReplacesPod && s.IsGroup {
		return false
	}
	return s.Replaces != capacity.ReplacesNone && attempt.ReadyTime != nil && attempt.Reason == "" && len(attempt.NodeClaims) > 1
}

// Verdict sums up the verdicts on the machines of the serving attempt. Machines of a group are lost together. Those that
// serve by themselves do so until the last one is lost.
func (s *Surge) Verdict(serving *v1beta1.Attempt, isGroup bool, verdicts []refusal.Verdict) refusal.Verdict {
	isFinal := func(v refusal.Verdict) bool { return v.Final }
	if !s.KeepsOthers(serving) || isGroup {
		return refusal.Decisive(verdicts)
	}
	if standing := slices.DeleteFunc(slices.Clone(verdicts), isFinal); len(standing) > 0 {
		return refusal.Decisive(standing)
	}
	return refusal.Decisive(verdicts)
}

// Trouble returns the fault of a machine that is broken or about to be reclaimed, for too long to mend by itself; empty if
// there is none.
func (m Machines) Trouble(now time.Time) string {
	for i := range m {
		if trouble := m[i].Trouble; trouble.Message != "" && !now.Before(trouble.Since.Add(trouble.Grace)) {
			return trouble.Message
		}
	}
	return ""
}

// Open is the oldest open attempt, a candidate to be held beside the latest.
type Open struct {
	// Ready: it got its machines.
	Ready bool
	// Wanted: its machines fit the plan, and it is not about to lose them.
	Wanted bool
	// Moved: the pods are pinned to the machines of a later attempt.
	Moved bool
}

// IsHeld reports whether its machines are held while those of another plan are acquired, or until its pods are gone.
// One that never got its machines serves nobody.
func (o Open) IsHeld() bool { return o.Moved || o.Ready && !o.Wanted }

// Held is an attempt whose machines are held beside those of the latest.
type Held struct {
	// Verdict on its machines; final once they are lost.
	Verdict refusal.Verdict
	// Moved: the pods are pinned to the machines of a later attempt. Empty: none of them is left on its own.
	Moved, Empty bool
	// Overdue: they have had time enough to move.
	Overdue bool
}

// decide returns the step for a held attempt, which comes first.
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
		return Step{}, false // pods that do not start there need a person
	case h.Overdue:
		return Step{Do: LetGo}, true
	default:
		return Step{Do: Await}, true // the latest serves now: nothing comes beside it before this one is gone
	}
}
