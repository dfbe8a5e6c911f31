// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/progress"
)

// mostAttempts bounds the search for the attempt of a machine's name.
const mostAttempts = 4096

// unrecorded returns the names of machines that serve another plan than the accepted one, if the status has lost
// their attempt: they would count as strays.
func (p *pass) unrecorded() []string {
	runs := p.Running
	if len(p.Attempts.Open()) > 0 || runs == nil || runs.Name == p.Accepted.Name {
		return nil
	}
	var names []string
	for _, machine := range p.Machines.Standing() {
		isOther := Fits(&machine, runs.Revision) && !Fits(&machine, p.Accepted.Revision)
		if machine.Initialized && isOther && !p.isKnown(machine.Name) {
			names = append(names, machine.Name)
		}
	}
	return names
}

// adoptServing takes the serving machines into an attempt. Machines with foreign names are left out from then on.
func (p *pass) adoptServing() error {
	serving := p.unrecorded()
	isFound, err := p.adoptFor(p.Running)
	switch {
	case isFound:
		p.Attempts.Last().ReadyTime = new(Seconds(p.Judge.Now))
	case err == nil:
		p.Foreign = slices.Concat(p.Foreign, serving)
	}
	return err
}

// adopt takes held machines into an attempt if no attempt records them. Those with foreign names cannot be told apart
// later.
func (p *pass) adopt() error {
	isFound, err := p.adoptFor(p.Accepted)
	if err == nil && !isFound {
		p.Foreign = slices.Concat(p.Foreign, capacity.MachineNames(p.Machines))
	}
	return err
}

// adoptFor takes held machines that fit a plan into an attempt, with the number in their names.
func (p *pass) adoptFor(made *Plan) (isFound bool, err error) {
	if !p.Live.AreMachinesKnown {
		return false, &missing{Read{Needs: NeedsHeld}}
	}
	if err := AwaitMachines(p.Machines, p.Live.Machines); err != nil {
		return false, err
	}
	for number := int32(1); number <= mostAttempts; number++ {
		names, err := p.Lookup.Names(number, made.Plan.Nodes)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			machine := p.Machines.Named(name)
			if machine == nil || machine.Deleting || !Fits(machine, made.Revision) || p.isKnown(name) {
				continue
			}
			p.Attempts.Begin(p.NewAttempt(made, number, names, machine.CreatedAt))
			return true, nil
		}
	}
	return false, nil
}

// AwaitMachines returns an error while the cache lacks a held machine. Without a recorded attempt, a vanished machine
// would count as serving, or a second one would be requested for one on its way.
func AwaitMachines(shown, held Machines) error {
	isSame := slices.Equal(slices.Sorted(slices.Values(capacity.MachineNames(shown.Standing()))),
		slices.Sorted(slices.Values(capacity.MachineNames(held))))
	if isSame {
		return nil
	}
	return progress.Behind("machines")
}
