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
	// Wording selects the provider of the messages; nil means that of the NodeClass.
	Wording *refusal.Provider
}

// judge returns the state of each machine of an attempt. Events and the node class are read only for a final verdict,
// as its reasons.
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

// judgeOf returns the judge of a Workspace's machines.
func (r *Reconciler) judgeOf(s *scope) *acquire.Judge {
	return &acquire.Judge{
		Rules: r.Answers.Rules, Deadlines: r.Answers.Deadlines, Provider: r.Answers.provider(r.market.ClassOf(s.revision.NodeClass)),
		Nodes: s.machineNodes(r.Answers.NodeGrace), Asker: asker(s.ws), Now: r.Clock.Now(),
	}
}

// caseOf returns an attempt with the facts about its machines, without another read.
func (r *Reconciler) caseOf(s *scope, attempt *v1beta1.Attempt, names []string) acquire.Case {
	offer := r.market.Offering(attempt.InstanceType, attempt.Zone, attempt.CapacityType, attempt.NodeClassName)
	offer.Zone = r.groupZone(s, attempt, offer)
	return acquire.Case{
		Attempt: attempt, Names: names, Machines: s.machines, Lost: s.attempts.LostUIDs(),
		Offering: offer, GPUs: s.machineGPUs(attempt),
	}
}

// machineGPUs returns how many GPUs each machine of an attempt has, by the attempt's own plan: after an edit the accepted
// one may ask for larger machines, and those that serve meanwhile would seem to lack GPUs.
func (s *scope) machineGPUs(attempt *v1beta1.Attempt) int {
	if own := s.revisions.Named(attempt.Revision); own != nil {
		return own.Plan.MachineGPUs
	}
	return s.revision.Plan.MachineGPUs
}

// reasons reads explanations for the end of machines.
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

// groupZone returns the zone of the request for a machine of the open attempt. In a group it is the zone of the first
// existing member, so that a refusal proves nothing about other zones. A group in a zone to be avoided came from a
// provisioner that ignores zones: none is better than another there.
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

// heldLive reads the held machines from the API server, once in a pass.
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

// provider returns the provider of the messages about machines of a node class.
func (a *Answers) provider(class v1beta1.NodeClassReference) refusal.Provider {
	if a.Wording != nil {
		return *a.Wording
	}
	return refusal.ProviderOf(class.Group, class.Kind)
}

// awaitUsable returns an error while the cache shows a usable machine as still on its way. An attempt without a
// usable machine ends, and would release it.
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
