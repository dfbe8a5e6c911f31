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
	"github.com/modelberth/modelberth/pkg/capacity/ladder"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/progress"
)

// cacheLag is how long a machine that was asked for may be missing from the cache before the API
// server is asked whether it has vanished.
const cacheLag = 5 * time.Second

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

// state is what the ladder decides from.
func (r *Reconciler) state(ctx context.Context, s *scope) (ladder.State, error) {
	var out ladder.State
	err := r.hold(ctx, s)
	if err == nil {
		out.Held, err = r.heldState(ctx, s)
	}
	if err != nil {
		return out, err
	}
	last := s.attempts.LatestBut(s.held)
	var names []string
	isFormer := false
	if last != nil && last.Reason == "" {
		if names, isFormer, err = r.namesOf(s, last); err != nil {
			return out, err
		}
	}
	s.tally(&out, names)
	if last == nil {
		return out, nil
	}
	out.Last = &ladder.Attempt{Open: last.Reason == "", Former: isFormer, Unchanged: s.isUnchangedSince(last)}
	if !out.Last.Open {
		if last.Reason != v1beta1.ReasonReleased {
			out.Last.Cause = refusal.Cause(last.Reason)
		}
		return out, nil
	}
	out.Last.Wanted = s.isWanted(last, names)
	if !out.Last.Wanted {
		return out, nil
	}
	s.attempts.Note(last, s.machines, names, r.Clock.Now())
	r.learnLaunch(asker(s.ws), last)
	machines, err := r.judge(ctx, s, last, names)
	out.Last.Machines = machines
	out.Last.Failed = r.failed(s, last)
	out.Last.Keeps = s.keepsOthers(last)
	out.Last.Apart = !s.revision.IsGroup() && (s.replaces == capacity.ReplacesLater || s.replaces == capacity.ReplacesPod)
	return out, err
}

// namesOf are the names of the machines of an open attempt. One whose machines are called otherwise than the back
// end would call them was begun by another one, and so was one whose machines that still looks after.
func (r *Reconciler) namesOf(s *scope, open *v1beta1.Attempt) (names []string, isFormer bool, err error) {
	names, err = r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if noted := open.NodeClaims; len(noted) > 0 && !slices.Contains(names, noted[0]) {
		return noted, true, nil
	}
	return names, s.isFormer(), err
}

// isFormer says whether the machines are those of a back end that gets no more.
func (s *scope) isFormer() bool {
	return slices.ContainsFunc(s.machines, func(machine capacity.Machine) bool { return machine.Former })
}

// tally counts the machines that are not of an attempt, whose names are given, nor held beside it.
func (s *scope) tally(out *ladder.State, names []string) {
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
			out.Unknown = out.Unknown || s.fits(machine) && !s.isKnown(machine.Name) && !machine.Replacement
		}
	}
}

// fits says whether a machine is of the kind that the plan asks for, and takes its pods. A NodeClass counts only where
// the Workspace names one: another default of the installation replaces nothing.
func (s *scope) fits(machine *capacity.Machine) bool { return fitsRevision(machine, s.revision) }

func fitsRevision(machine *capacity.Machine, made *revision) bool {
	plan, class := &made.Plan, made.NodeClass
	return machine.InstanceType == plan.InstanceType && machine.CapacityType == plan.CapacityType &&
		(len(plan.Zones) == 0 || machine.Zone == "" || slices.Contains(plan.Zones, machine.Zone)) &&
		(class == nil || machine.NodeClass == (v1beta1.NodeClassReference{}) || machine.NodeClass == *class) &&
		(!machine.Dedicated || made.ToleratesDedication())
}

// isKnown says whether a machine belongs to an attempt of the status.
func (s *scope) isKnown(name string) bool {
	return slices.Contains(s.foreign, name) || s.attempts.IsNamed(name)
}

// isWanted says whether the plan asks for what an open attempt asked for and holds. Machines that all
// stand where the plan wants them are wanted, whatever was asked for.
func (s *scope) isWanted(last *v1beta1.Attempt, names []string) bool {
	plan := &s.revision.Plan
	isPlace := last.Zone == zoneOf(plan.Zones)
	standing := 0
	for i := range s.machines {
		machine := &s.machines[i]
		if !slices.Contains(names, machine.Name) {
			continue
		}
		if !s.fits(machine) {
			return false
		}
		if !machine.Deleting && (isPlace || machine.Zone != "") {
			standing++
		}
	}
	return standing == len(names) ||
		isPlace && last.InstanceType == plan.InstanceType && last.CapacityType == plan.CapacityType
}

// holdsAll says whether nothing has to be bought for a revision: the machines of an open attempt will do.
func (s *scope) holdsAll(made *revision) bool {
	return slices.ContainsFunc(s.attempts.Open(), func(open *v1beta1.Attempt) bool { return s.has(open, made) })
}

// has says whether the machines of an attempt will do for a revision.
func (s *scope) has(attempt *v1beta1.Attempt, made *revision) bool {
	standing := 0
	for _, machine := range s.machinesOf(attempt) {
		if fitsRevision(&machine, made) {
			standing++
		}
	}
	return standing >= made.Plan.Nodes
}

// machinesOf are the machines of an attempt that are not on their way out.
func (s *scope) machinesOf(attempt *v1beta1.Attempt) []capacity.Machine {
	return slices.DeleteFunc(s.heldMachines(), func(machine capacity.Machine) bool {
		return !slices.Contains(attempt.NodeClaims, machine.Name)
	})
}

// isUnchangedSince says whether nobody has changed the Workspace since an attempt ended, or asked to
// have it tried again.
func (s *scope) isUnchangedSince(last *v1beta1.Attempt) bool {
	return last.Generation == s.ws.Generation && s.revision != nil && last.Revision == s.revision.Name && !s.isRetry()
}

// judge says what became of each machine of the open attempt. Events and the node class are read once
// something final is known, because they may tell more of why.
func (r *Reconciler) judge(
	ctx context.Context, s *scope, last *v1beta1.Attempt, names []string,
) ([]ladder.Machine, error) {
	now := r.Clock.Now()
	machines := make([]ladder.Machine, len(names))
	seen := make([]refusal.Observation, len(names))
	var final []types.UID
	for i, name := range names {
		var err error
		if machines[i], seen[i], err = r.look(ctx, s, last, name); err != nil {
			return nil, err
		}
		if !machines[i].Existed || s.machine(name) == nil && seen[i].GoneAt.IsZero() {
			continue // it never was there, or is not in the cache yet
		}
		machines[i].Verdict = r.verdict(s, name, seen[i], now)
		if machines[i].Verdict.Final {
			if err := r.checkGoing(ctx, s, name); err != nil {
				return nil, err
			}
			final = append(final, seen[i].UID)
		}
	}
	if len(final) == 0 {
		return machines, nil
	}
	events, err := r.Provisioner.Events(ctx, final)
	if err != nil {
		return nil, err
	}
	class, words, err := r.Provisioner.Class(ctx, r.classOf(s.revision.NodeClass))
	if err != nil {
		return nil, err
	}
	past := r.remembered(asker(s.ws), s.attempts)
	for i := range machines {
		if machines[i].Verdict.Final {
			seen[i].Events, seen[i].Class, seen[i].ClassMessage = events, class, words
			machines[i].Verdict = refusal.Escalate(r.verdict(s, names[i], seen[i], now), past)
			if last.ReadyTime == nil && acquire.HasLaunched(last, names[i]) {
				machines[i].Verdict = machines[i].Verdict.InPart()
			}
			machines[i].AskAgain = r.mayAskAgain(s, machines[i].Verdict, seen[i].Offering, past)
		}
	}
	return machines, nil
}

// checkGoing returns an error if a machine is on its way out by the cache, and held by the API server: a controller that
// led before has asked for it again by the same name, and nothing is said of that one yet.
func (r *Reconciler) checkGoing(ctx context.Context, s *scope, name string) error {
	machine := s.machine(name)
	if machine == nil || !machine.Deleting {
		return nil
	}
	held, err := r.heldLive(ctx, s)
	if err != nil || !isAmong(held, name) {
		return err
	}
	return progress.Behind("machines")
}

// verdict is about one machine. One that its node calls broken or about to be taken back, or whose node
// is not Ready for too long, is as good as lost.
func (r *Reconciler) verdict(s *scope, name string, seen refusal.Observation, now time.Time) refusal.Verdict {
	verdict := r.Answers.Rules.Classify(seen, r.Answers.Deadlines, now)
	machine := s.machine(name)
	if verdict.Final || machine == nil || machine.Deleting || machine.NodeName == "" {
		return verdict
	}
	why, deadline := r.failing(s, machine, now)
	switch {
	case why == "":
		return verdict
	case now.Before(deadline):
		verdict.LookAgain = ladder.Earliest(verdict.LookAgain, deadline)
		return verdict
	}
	gone := seen
	gone.GoneAt, gone.WasUsable = now, true
	lost := r.Answers.Rules.Classify(gone, r.Answers.Deadlines, now)
	lost.Message = why
	return lost
}

// machine returns the machine of that name, or nil.
func (s *scope) machine(name string) *capacity.Machine {
	for i := range s.machines {
		if s.machines[i].Name == name {
			return &s.machines[i]
		}
	}
	return nil
}

// look observes one machine of the open attempt. One counts as vanished only if the API server
// itself says so.
func (r *Reconciler) look(
	ctx context.Context, s *scope, last *v1beta1.Attempt, name string,
) (ladder.Machine, refusal.Observation, error) {
	class := r.classOf(s.revision.NodeClass)
	plan := &s.revision.Plan
	seen := refusal.Observation{
		Provider:  r.Answers.provider(class),
		Offering:  r.offering(last.InstanceType, last.Zone, last.CapacityType, last.NodeClassName),
		CreatedAt: last.StartTime.Time, GPUsWanted: plan.MachineGPUs,
	}
	seen.Offering.Zone = r.groupZone(s, last, seen.Offering)
	acquire.Recall(&seen, last, name)
	machine := s.machine(name)
	if machine != nil && !slices.Contains(s.attempts.LostUIDs(), machine.UID) {
		seen.UID, seen.GoneAt = machine.UID, machine.DeletingSince
		if machine.CreatedAt.After(seen.CreatedAt) { // the API server's clock may be behind ours
			seen.CreatedAt = machine.CreatedAt
		}
		seen.Launched, seen.Registered, seen.Initialized = machine.Words.Launched, machine.Words.Registered, machine.Words.Initialized
		seen.ProviderID, seen.NodeName, seen.GPUs = machine.ProviderID, machine.NodeName, machine.GPUs
		seen.WasUsable = acquire.WasUsable(last, seen.CreatedAt)
		return ladder.Machine{Stands: !machine.Deleting, Existed: true, Arriving: !machine.Initialized}, seen, nil
	}
	seen.WasUsable = acquire.WasUsable(last, seen.CreatedAt)
	// An attempt that was adopted has noted no machine. A plan that has grown since asks for one that never was there.
	if seen.UID == "" && (last.ReadyTime == nil || len(last.Claims) > 0) {
		return ladder.Machine{}, seen, nil
	}
	stands := ladder.Machine{Stands: true, Existed: true}
	lag := cacheLag - r.Clock.Since(last.StartTime.Time)
	if lag <= 0 {
		held, err := r.heldLive(ctx, s)
		if err != nil {
			return stands, seen, err
		}
		if !isAmong(held, name) {
			seen.GoneAt = r.Clock.Now()
			return ladder.Machine{Existed: true}, seen, nil
		}
		lag = cacheLag
	}
	s.lookAgain(lag)
	return stands, seen, nil
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

// isAmong reports whether a machine has that name.
func isAmong(machines []capacity.Machine, name string) bool {
	return slices.ContainsFunc(machines, func(machine capacity.Machine) bool { return machine.Name == name })
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
// about to end, because the one in the cache does not fit its plan, would release the new one.
func awaitSame(shown, held []capacity.Machine) error {
	for i := range held {
		isBehind := func(m capacity.Machine) bool { return m.Name == held[i].Name && m.UID != held[i].UID }
		if slices.ContainsFunc(shown, isBehind) {
			return progress.Behind("machines")
		}
	}
	return nil
}

// classOf is the NodeClass that machines are bought with where a plan names this one, or none.
func (r *Reconciler) classOf(named *v1beta1.NodeClassReference) v1beta1.NodeClassReference {
	switch {
	case named != nil:
		return *named
	case len(r.NodeClasses) > 0:
		return r.NodeClasses[0]
	default:
		return v1beta1.NodeClassReference{}
	}
}
