// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// state returns the inputs of the next step.
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
	out.Unwritten = s.isUnwritten()
	return out, err
}

// lastState returns the inputs about the latest attempt. names are its machines if it is open.
func (r *Reconciler) lastState(ctx context.Context, s *scope, last *v1beta1.Attempt, names []string) (*acquire.Attempt, error) {
	out := &acquire.Attempt{Open: last.Reason == "", Unchanged: s.isUnchangedSince(last), Mended: s.isMended}
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

// namesOf returns the names of the machines of an open attempt. If they differ from the back end's names, another
// back end began it; so it did if that one still manages the machines.
func (r *Reconciler) namesOf(s *scope, open *v1beta1.Attempt) (names []string, isFormer bool, err error) {
	names, err = r.Provisioner.Names(s.owner, open.Number, s.revision.Plan.Nodes)
	if noted := open.NodeClaims; len(noted) > 0 && !slices.Contains(names, noted[0]) {
		return noted, true, nil
	}
	return names, s.machines.AreFormer(), err
}

// tally counts the machines outside the given names and the held attempt.
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

// isUnchangedSince says whether nobody has changed the Workspace since an attempt ended, or asked to
// have it tried again.
func (s *scope) isUnchangedSince(last *v1beta1.Attempt) bool {
	return last.Generation == s.ws.Generation && s.revision != nil && last.Revision == s.revision.Name && !s.attempts.IsRetry(s.ws)
}
