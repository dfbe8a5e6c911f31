// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/progress"
)

// adoptServing takes the serving machines into an attempt. Machines with foreign names are left out from then on.
func (r *Reconciler) adoptServing(ctx context.Context, s *scope) error {
	serving := s.unrecorded()
	isFound, err := r.adoptFor(ctx, s, s.revisionOf(s.statefulSet))
	switch {
	case isFound:
		s.attempts.Last().ReadyTime = new(seconds(r.Clock.Now()))
	case err == nil:
		s.foreign = append(s.foreign, serving...)
	}
	return err
}

// adopt takes held machines into an attempt if no attempt records them.
func (r *Reconciler) adopt(ctx context.Context, s *scope) error {
	isFound, err := r.adoptFor(ctx, s, s.revision)
	if err != nil || isFound {
		return err
	}
	// Foreign names: such machines cannot be told apart later.
	for i := range s.machines {
		s.foreign = append(s.foreign, s.machines[i].Name)
	}
	return nil
}

// adoptFor takes held machines that fit a plan into an attempt, with the number in their names.
func (r *Reconciler) adoptFor(ctx context.Context, s *scope, made *revision) (isFound bool, err error) {
	if err := r.awaitMachines(ctx, s); err != nil {
		return false, err
	}
	for number := int32(1); number <= mostAttempts; number++ {
		names, err := r.Provisioner.Names(s.owner, number, made.Plan.Nodes)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			machine := s.machines.Named(name)
			if machine == nil || machine.Deleting || !acquire.Fits(machine, &made.Revision) || s.isKnown(name) {
				continue
			}
			r.begin(s, made, number, names, machine.CreatedAt)
			return true, nil
		}
	}
	return false, nil
}

// awaitMachines returns an error while the cache lacks a held machine. Without a recorded attempt, a vanished machine
// would count as serving, or a second one would be requested for one on its way.
func (r *Reconciler) awaitMachines(ctx context.Context, s *scope) error {
	held, err := r.heldLive(ctx, s)
	if err != nil {
		return err
	}
	var shown []string
	for _, machine := range s.machines.Standing() {
		shown = append(shown, machine.Name)
	}
	if slices.Equal(slices.Sorted(slices.Values(shown)), slices.Sorted(slices.Values(capacity.MachineNames(held)))) {
		return nil
	}
	return progress.Behind("machines")
}
