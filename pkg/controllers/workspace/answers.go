// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// Answers are how the answers of a provisioner are read.
type Answers struct {
	// Rules are the words of the clouds.
	Rules refusal.Rules
	// Deadlines of the stages of a machine.
	Deadlines refusal.Deadlines
	// NodeGrace is how long a node may be not Ready before it counts as lost; 0 means for ever.
	NodeGrace time.Duration
	// FailureDeadline is how long the pods may fail for good before their machines are released; 0 means for ever.
	FailureDeadline time.Duration
	// Wording names whose words are read; nil means those that go with the NodeClass.
	Wording *refusal.Provider
}

// provider is whose words are read about machines of a node class.
func (a *Answers) provider(class v1beta1.NodeClassReference) refusal.Provider {
	if a.Wording != nil {
		return *a.Wording
	}
	return refusal.ProviderOf(class.Group, class.Kind)
}

// state is what the next step is decided from.
func (r *Reconciler) state(ctx context.Context, s *scope) (acquire.State, error) {
	found, err := r.observeSurge(ctx, s)
	s.surge, s.statefulSet = found.Surge, found.set
	if err != nil || found.isUnrecorded || found.isNeedless {
		return acquire.State{Unrecorded: found.isUnrecorded, Needless: found.isNeedless}, err
	}
	out := acquire.State{}
	if out.Held, err = r.servingState(ctx, s); err != nil {
		return out, err
	}
	last := s.attempts.LatestBut(s.surge.Serving)
	var names []string
	isFormer := false
	if last != nil && last.Reason == "" {
		if names, isFormer, err = r.namesOf(s, last); err != nil {
			return out, err
		}
	}
	s.tally(&out, names)
	if last != nil {
		out.Last, err = r.lastState(ctx, s, last, names)
		out.Last.Former = isFormer
	}
	return out, err
}

// lastState is what is decided from about the latest attempt, whose machines have these names if it is open.
func (r *Reconciler) lastState(ctx context.Context, s *scope, last *v1beta1.Attempt, names []string) (*acquire.Attempt, error) {
	out := &acquire.Attempt{Open: last.Reason == "", Unchanged: s.isUnchangedSince(last)}
	if !out.Open {
		if last.Reason != v1beta1.ReasonReleased {
			out.Cause = refusal.Cause(last.Reason)
		}
		return out, nil
	}
	out.Wanted = s.machines.AreWanted(last, names, &s.revision.Revision)
	if !out.Wanted {
		return out, nil
	}
	s.attempts.Note(last, s.machines, names, r.Clock.Now())
	r.lessons.launched(asker(s.ws), last)
	var err error
	out.Machines, err = r.judge(ctx, s, last, names)
	out.Failed = r.failed(s, last)
	out.Keeps = s.surge.KeepsOthers(last)
	out.Apart = !s.revision.IsGroup() && (s.surge.Replaces == capacity.ReplacesLater || s.surge.Replaces == capacity.ReplacesPod)
	return out, err
}

// namesOf are the names of the machines of an open attempt. One whose machines are called otherwise than the back
// end would call them was begun by another one, and so was one whose machines that still looks after.
func (r *Reconciler) namesOf(s *scope, open *v1beta1.Attempt) (names []string, isFormer bool, err error) {
	names, err = r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if noted := open.NodeClaims; len(noted) > 0 && !slices.Contains(names, noted[0]) {
		return noted, true, nil
	}
	return names, s.machines.AreFormer(), err
}

// tally counts the machines that are not of an attempt, whose names are given, nor held beside it.
func (s *scope) tally(out *acquire.State, names []string) {
	lost := s.attempts.LostUIDs()
	for i := range s.machines {
		machine := &s.machines[i]
		switch {
		case s.isHeld(machine.Name):
		case machine.Deleting:
			out.Leaving++
		case slices.Contains(lost, machine.UID):
			out.Strays++
		case !slices.Contains(names, machine.Name):
			out.Strays++
			out.Unknown = out.Unknown || acquire.Fits(machine, &s.revision.Revision) && !s.isKnown(machine.Name) && !machine.Replacement
		}
	}
}

// isKnown says whether a machine belongs to an attempt of the status.
func (a *acquisition) isKnown(name string) bool {
	return slices.Contains(a.foreign, name) || a.attempts.IsNamed(name)
}

// isUnchangedSince says whether nobody has changed the Workspace since an attempt ended, or asked to
// have it tried again.
func (s *scope) isUnchangedSince(last *v1beta1.Attempt) bool {
	return last.Generation == s.ws.Generation && s.revision != nil && last.Revision == s.revision.Name && !s.attempts.IsRetry(s.ws)
}

// judge says what became of each machine of an attempt. Events and the node class are read once something final is known,
// because they may tell more of why.
func (r *Reconciler) judge(ctx context.Context, s *scope, attempt *v1beta1.Attempt, names []string) ([]acquire.Machine, error) {
	judge, of := r.judgeOf(s), r.caseOf(s, attempt, names)
	for {
		found := judge.Judge(&of)
		s.note(found)
		switch {
		case found.IsBehind:
			return nil, progress.Behind("machines")
		case found.Needs == acquire.NeedsHeld:
			held, err := r.heldLive(ctx, s)
			if err != nil {
				return nil, err
			}
			of.Held, of.IsHeldKnown = held, true
		case found.Needs == acquire.NeedsReasons:
			var err error
			if of.Reasons, err = r.reasons(ctx, s, found.Final); err != nil {
				return nil, err
			}
		default:
			return found.Machines, nil
		}
	}
}

// note looks again when a judgement may change.
func (s *scope) note(found acquire.Judgement) {
	if found.LookAgain > 0 {
		s.lookAgain(found.LookAgain)
	}
	if found.Unheard != "" {
		s.unheard = found.Unheard
		s.lookAgain(retrySilence)
	}
}

// judgeOf is who judges the machines of a Workspace.
func (r *Reconciler) judgeOf(s *scope) *acquire.Judge {
	return &acquire.Judge{
		Rules: r.Answers.Rules, Deadlines: r.Answers.Deadlines, Provider: r.Answers.provider(r.market.ClassOf(s.revision.NodeClass)),
		Nodes: s.machineNodes(r.Answers.NodeGrace), Asker: asker(s.ws), Now: r.Clock.Now(),
	}
}

// caseOf is an attempt with what is known of its machines without another read.
func (r *Reconciler) caseOf(s *scope, attempt *v1beta1.Attempt, names []string) acquire.Case {
	offer := r.market.Offering(attempt.InstanceType, attempt.Zone, attempt.CapacityType, attempt.NodeClassName)
	offer.Zone = r.groupZone(s, attempt, offer)
	return acquire.Case{
		Attempt: attempt, Names: names, Machines: s.machines, Lost: s.attempts.LostUIDs(),
		Offering: offer, GPUs: s.revision.Plan.MachineGPUs,
	}
}

// reasons reads what explains the end of machines.
func (r *Reconciler) reasons(ctx context.Context, s *scope, lost []types.UID) (*acquire.Reasons, error) {
	out := &acquire.Reasons{}
	var err error
	if out.Events, err = r.Provisioner.Events(ctx, lost); err != nil {
		return nil, err
	}
	if out.Class, out.ClassMessage, err = r.Provisioner.Class(ctx, r.market.ClassOf(s.revision.NodeClass)); err != nil {
		return nil, err
	}
	out.Past = r.market.Remember(asker(s.ws), s.attempts)
	return out, nil
}

// groupZone is where a machine of the open attempt was asked for: of a group in the zone of the first one that
// is there, so that its refusal says nothing of the other zones. A group that came into a zone that was to be
// avoided was bought from somebody who does not heed zones, of whom none is better than another.
func (r *Reconciler) groupZone(s *scope, last *v1beta1.Attempt, asked refusal.Offering) string {
	if !s.isGroup() {
		return asked.Zone
	}
	for i := range s.machines {
		machine := &s.machines[i]
		if machine.Zone == "" || !slices.Contains(last.NodeClaims, machine.Name) {
			continue
		}
		if slices.Contains(r.Memory.Zones(last.StartTime.Time, asker(s.ws), asked), machine.Zone) {
			break
		}
		return machine.Zone
	}
	return asked.Zone
}

// heldLive asks the API server once in a pass which machines are held.
func (r *Reconciler) heldLive(ctx context.Context, s *scope) ([]capacity.Machine, error) {
	if s.heldKnown {
		return s.heldNow, nil
	}
	held, err := r.Provisioner.Held(ctx, s.owner, s.attempts.Noted())
	if err != nil {
		return nil, err
	}
	s.heldNow, s.heldKnown = held, true
	return held, nil
}

// awaitUsable returns an error while the API server has a usable machine that the cache still shows as on its way. An
// attempt that is about to end for want of a usable machine would release it.
func awaitUsable(shown, held []capacity.Machine) error {
	for i := range held {
		isBehind := func(m capacity.Machine) bool { return m.Name == held[i].Name && !m.Initialized }
		if held[i].Initialized && slices.ContainsFunc(shown, isBehind) {
			return progress.Behind("machines")
		}
	}
	return nil
}

// awaitSame returns an error while the API server has another machine of a name than the cache shows. An attempt that is
// about to end, because the one in the cache does not fit its plan, would release the new one. A back end whose
// machines have no UID while they are held, such as that of pods, cannot confuse two of them.
func awaitSame(shown, held []capacity.Machine) error {
	for i := range held {
		isBehind := func(m capacity.Machine) bool { return m.Name == held[i].Name && m.UID != held[i].UID }
		if held[i].UID != "" && slices.ContainsFunc(shown, isBehind) {
			return progress.Behind("machines")
		}
	}
	return nil
}
