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
	// Trouble is why the machines of that attempt are replaced; empty if another plan is wanted.
	Trouble string
	// IsPossible says that the back end distinguishes the machines of two attempts, and Replaces how it replaces one machine
	// of an attempt without the others.
	IsPossible bool
	Replaces   capacity.Replacing
	// IsGroup says that the machines of the accepted plan serve together.
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
