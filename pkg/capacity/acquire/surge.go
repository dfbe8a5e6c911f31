// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Surge describes how a Workspace holds the machines of two attempts at once: the serving machines, and those of a
// later attempt.
type Surge struct {
	// Serving is the number of the attempt whose machines serve while a later attempt acquires its own; 0 if there is
	// none.
	Serving int32
	// Fault is why the serving attempt's machines are replaced; empty if the reason is another plan.
	Fault string
	// IsPossible: the back end distinguishes the machines of two attempts. Replaces is how the back end replaces one
	// machine of an attempt without the others.
	IsPossible bool
	Replaces   capacity.Replacing
	// IsGroup: the machines of the accepted plan serve the model together.
	IsGroup bool
}

// KeepsOthers reports whether one machine of an attempt can be replaced while the others stay. A group does not allow
// that with ReplacesPod, because its pods request all machines together.
func (s *Surge) KeepsOthers(attempt *v1beta1.Attempt) bool {
	if s.Replaces == capacity.ReplacesPod && s.IsGroup {
		return false
	}
	return s.Replaces != capacity.ReplacesNone && attempt.ReadyTime != nil && attempt.Reason == "" && len(attempt.NodeClaims) > 1
}

// Verdict sums up the verdicts on the machines of the serving attempt. The machines of a group are lost together.
// Independent machines serve until the last one is lost.
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

// Fault returns the fault of a machine that the cloud is about to reclaim, or that has been broken for too long to
// recover; empty if there is none.
func (m Machines) Fault(now time.Time) string {
	for i := range m {
		if m[i].Fault.HasExpired(now) {
			return m[i].Fault.Message
		}
	}
	return ""
}

// observeSurge finds the serving attempt while the latest attempt acquires its machines. If the serving attempt fits
// the accepted plan again, the later attempt is released instead. isUnrecorded: no attempt records the serving
// machines. isNeedless: the serving machines are suitable again, so those of the later attempt are not needed.
func (p *pass) observeSurge() (isUnrecorded, isNeedless bool, err error) {
	p.Surge = Surge{IsPossible: p.Surge.IsPossible, Replaces: p.Surge.Replaces, IsGroup: p.Accepted.IsGroup()}
	if !p.Pods.HasSet || p.Recreates != "" {
		return false, false, nil
	}
	open := p.Attempts.Open()
	if !p.Surge.IsPossible {
		return false, false, p.holdForBudget(open)
	}
	if len(open) == 0 {
		return len(p.unrecorded()) > 0, false, nil
	}
	first, last := open[0], open[len(open)-1]
	isHeld, err := p.isHeld(first, last)
	switch {
	case err != nil:
		return false, false, err
	case isHeld:
		p.Surge.Serving = first.Number
	case first != last && !p.Live.ArePodsConfirmed: // the caches may not show yet the fault that began the later attempt
		return false, false, &missing{Read{Needs: NeedsPods, Attempt: first.Number}}
	case first != last:
		isNeedless = true
	}
	return false, isNeedless, nil
}

// holdForBudget lets the only attempt serve until the monthly budget pays for the machines of another plan. Without a
// budget, a back end that cannot hold the machines of two attempts releases the serving ones at once.
func (p *pass) holdForBudget(open []*v1beta1.Attempt) error {
	if len(open) != 1 || open[0].ReadyTime == nil || !p.Pods.IsAnswering || !p.Lookup.HasBudget() {
		return nil
	}
	names, _, err := p.namesOf(open[0])
	if err == nil && !p.Machines.AreWanted(open[0], names, p.Accepted.Revision) {
		p.Surge.Serving = open[0].Number
	}
	return err
}

// isHeld reports whether the first open attempt keeps its machines while another plan acquires its own, or until its
// pods are gone. An attempt that never got its machines serves nothing.
func (p *pass) isHeld(first, last *v1beta1.Attempt) (bool, error) {
	isWanted, err := p.isWanted(first)
	if err != nil {
		return false, err
	}
	p.Surge.Fault = cmp.Or(p.fault(first, first == last), p.Irreplaceable(first))
	// A fault vanishes with its node, so a machine without a Ready node is unsuitable, whatever else is known about
	// it.
	answering := slices.DeleteFunc(p.Machines.Of(first), func(machine capacity.Machine) bool { return !machine.NodeReady })
	isWhole := first == last || len(answering) >= min(p.Accepted.Plan.Nodes, len(first.NodeClaims))
	if err := p.needSet(first, last); err != nil {
		return false, err
	}
	isSuitable := isWanted && isWhole && p.Surge.Fault == ""
	return p.pinned() > first.Number || first.ReadyTime != nil && !isSuitable, nil
}

// needSet returns an error until a live read has confirmed the StatefulSet. Before this read, pods may already use the
// machines of a later, unwanted attempt.
func (p *pass) needSet(first, last *v1beta1.Attempt) error {
	if p.pinned() > first.Number || first == last || last.ReadyTime == nil || p.Live.ArePodsConfirmed {
		return nil
	}
	if isWanted, err := p.isWanted(last); err != nil || isWanted {
		return err
	}
	return &missing{Read{Needs: NeedsPods, Attempt: first.Number}}
}

// isWanted reports whether an attempt's machines fit the accepted plan.
func (p *pass) isWanted(attempt *v1beta1.Attempt) (bool, error) {
	names, err := p.Lookup.Names(attempt.Number, p.Accepted.Plan.Nodes)
	return err == nil && p.Machines.AreWanted(attempt, names, p.Accepted.Revision), err
}

// fault returns the fault of an attempt's machine that the cloud is about to reclaim, or that has been broken for too
// long to recover. It is empty if there is none, or if only the broken machine is replaced: the attempt is alone, and
// its machines do not serve as a group. Once another attempt has begun, the fault that began it stays. Otherwise the
// new machines would be released, and the broken one would be lost after that.
func (p *pass) fault(attempt *v1beta1.Attempt, isAlone bool) string {
	serves := p.Running.IsGroup() && p.Pods.IsAnswering
	if isAlone && p.Surge.KeepsOthers(attempt) && !serves {
		return ""
	}
	return p.Machines.Of(attempt).Fault(p.Judge.Now)
}

// Irreplaceable explains why a lost machine of an attempt may not be bought again while the others stay; empty if it
// may, or if none was lost. The others serve until another plan has its machines.
func (s *Snapshot) Irreplaceable(attempt *v1beta1.Attempt) string {
	if !s.Surge.KeepsOthers(attempt) || attempt.Revision != s.Accepted.Name || !Misses(attempt, s.Accepted.Plan.Nodes) {
		return ""
	}
	if forbidden := s.Lookup.Forbidden(); forbidden != "" {
		return fmt.Sprintf("no machine of type %s may be bought to replace the lost one: %s", s.Accepted.Plan.InstanceType, forbidden)
	}
	return ""
}

// Serving is the state of the attempt that serves while the latest acquires machines.
type Serving struct {
	// Verdict on its machines; final once they are lost.
	Verdict refusal.Verdict
	// Moved: the pods are pinned to the machines of a later attempt. Empty: no pod is left on the machines of this
	// attempt.
	Moved, Empty bool
	// Overdue: the pods have had enough time to move.
	Overdue bool
}

// decide returns the step for the serving attempt. It takes precedence over the latest attempt.
func (h *Serving) decide(last *Attempt) (Step, bool) {
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
		return Step{}, false // if the pods do not start there, a person must act
	case h.Overdue:
		return Step{Do: LetGo}, true
	default:
		return Step{Do: Await}, true // the latest attempt serves now: no further attempt begins before this one has ended
	}
}
