// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"slices"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/progress"
)

// mostAttempts bounds the search for the attempt number in a machine's name.
const mostAttempts = 4096

// unrecorded returns the names of machines that serve another plan than the accepted one, if the status has lost their
// attempt. Without an attempt they would count as strays.
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

// adoptServing records the serving machines in an attempt. If no attempt has their names, they count as foreign from
// then on.
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

// adopt records held machines in a new attempt, because no attempt records them. If no attempt has their names, they
// count as foreign.
func (p *pass) adopt() error {
	isFound, err := p.adoptFor(p.Accepted)
	if err == nil && !isFound {
		p.Foreign = slices.Concat(p.Foreign, capacity.MachineNames(p.Machines))
	}
	return err
}

// adoptFor begins an attempt for held machines that fit a plan, with the attempt number in their names.
func (p *pass) adoptFor(made *Plan) (isFound bool, err error) {
	if !p.Live.AreMachinesConfirmed {
		return false, &missing{Read{Needs: NeedsMachines}}
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

// AwaitMachines returns a *progress.WaitingError unless the cache shows the machines of the API server: the same
// number, with the same UIDs, and initialized if the API server's are. A back end may report names alone, without
// UIDs.
func AwaitMachines(shown, held Machines) error {
	standing := shown.Standing()
	isHidden := func(m capacity.Machine) bool {
		known := standing.Named(m.Name)
		return known == nil || m.UID != "" && m.UID != known.UID || m.Initialized && !known.Initialized
	}
	if len(standing) != len(held) || slices.ContainsFunc(held, isHidden) {
		return progress.Behind("machines")
	}
	return nil
}
