// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/modelberth/modelberth/test/script"
)

// restartPause is how long the cloud's own machine rests after it died.
const restartPause = time.Second

// errTaken is the reason for a machine's end by fate.
var errTaken = errors.New("the script took the machine away")

// launch starts the machine's life; it goes on until the machine is deleted or lost.
func (s *Service) launch(m *entry, labels map[string]string) {
	ctx, end := context.WithCancel(context.Background()) // a machine outlives the request for it
	m.end = end
	s.record(m.Machine)
	machine := m.Machine
	s.running.Go(func() {
		defer end()
		if pause(ctx, machine.startsAfter()) {
			s.live(ctx, machine, labels)
		}
		s.gone(machine)
	})
}

// startsAfter returns the scripted part of the machine's start time, on top of the real one.
func (m Machine) startsAfter() time.Duration {
	if m.meets(script.Slow) || m.meets(script.SlowCreate) {
		return m.Fate.Delay.Duration
	}
	return 0
}

// pause waits, and reports whether ctx is still alive afterwards.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// live runs the machine until it ends. A sold one is gone after its death, as after a hardware failure in a cloud;
// the cloud's own is started again.
func (s *Service) live(ctx context.Context, machine Machine, labels map[string]string) {
	log := s.options.Log.With("machine", machine.ID, "node", machine.Name)
	for {
		log.Info("machine starts", "sku", machine.SKU, "zone", machine.Zone)
		err := s.run(ctx, machine, labels)
		if ctx.Err() != nil {
			log.Info("machine ended")
			if err != nil {
				log.Error("machine left something behind", "error", err)
			}
			return
		}
		log.Error("machine was lost", "error", err)
		if !machine.System || !pause(ctx, restartPause) {
			return
		}
	}
}

// run runs the machine once, until ctx ends, it dies, or its fate takes it.
func (s *Service) run(ctx context.Context, machine Machine, labels map[string]string) error {
	if machine.meets(script.NeverRegisters) {
		s.started(machine.ID, 0) // it is paid for, and nothing comes of it
		<-ctx.Done()
		return nil
	}
	ctx, take := context.WithCancelCause(ctx)
	defer take(nil)
	err := s.options.Runner.Run(ctx, machine, labels, func(pid int) {
		s.started(machine.ID, pid)
		s.running.Go(func() { s.meetFate(ctx, take, machine) })
	})
	if cause := context.Cause(ctx); errors.Is(cause, errTaken) {
		return errors.Join(cause, err)
	}
	return err
}

// meetFate waits for the time of the machine's fate, and takes the machine if that is its fate. Others take care of
// its node.
func (s *Service) meetFate(ctx context.Context, take context.CancelCauseFunc, machine Machine) {
	if machine.Fate == nil || machine.Fate.After.Duration == 0 || !pause(ctx, machine.Fate.After.Duration) {
		return
	}
	s.due(machine.ID)
	if machine.meets(script.Evicted) && pause(ctx, machine.Fate.Notice.Duration) || machine.meets(script.Dies) {
		take(errTaken)
	}
}

// due notes the time of a machine's fate as come.
func (s *Service) due(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.machines[id]
	if !ok {
		return
	}
	m.Due = true
	if m.meets(script.Evicted) {
		m.Ends = time.Now().UTC().Add(m.Fate.Notice.Duration)
	}
	s.record(m.Machine)
}

func (s *Service) started(id string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.machines[id]
	if !ok {
		return
	}
	m.PID = pid
	if m.State == Starting {
		m.State = Running
	}
	s.record(m.Machine)
}

// Delete ends the machine. It returns before the machine is gone.
func (s *Service) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.machines[id]
	if !ok {
		return notFound(id)
	}
	before := m.State
	m.State = Stopping
	s.record(m.Machine)
	switch {
	case !m.meets(script.Stuck):
		m.end()
	case before != Stopping && m.Fate.Delay.Duration > 0:
		time.AfterFunc(m.Fate.Delay.Duration, m.end)
	}
	return nil
}

func (s *Service) gone(machine Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.machines, machine.ID)
	s.charge(machine)
	if err := os.Remove(s.recordPath(machine.ID)); err != nil {
		s.options.Log.Error("machine record stays", "machine", machine.ID, "error", err)
	}
}
