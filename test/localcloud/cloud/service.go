// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/script"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// Runner runs machines.
type Runner interface {
	// Run starts the machine, calls started with its first process, and returns
	// when the machine is gone with all it held: because ctx ended, or by itself.
	Run(ctx context.Context, m Machine, labels map[string]string, started func(pid int)) error
}

// Options is what a Service works with.
type Options struct {
	Catalogue sku.Catalogue
	Runner    Runner
	// Script is read before each sale.
	Script func() (script.Script, error)
	// Records is the directory that holds one file for each machine.
	Records string
	Log     *slog.Logger
}

// Service sells and ends machines.
type Service struct {
	options Options
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	machines map[string]*entry // by id
	sold     int
	lastSlot int
}

// restartPause is how long the cloud's own machine rests after it died.
const restartPause = time.Second

type entry struct {
	Machine
	end context.CancelFunc
}

// NewService returns a service without machines. Close ends it.
func NewService(options Options) *Service {
	return &Service{options: options, machines: map[string]*entry{}, lastSlot: -1}
}

// Close ends all machines, sells no more, and returns when all are gone.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, m := range s.machines {
		m.end()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Catalogue lists what is for sale.
func (s *Service) Catalogue() []sku.SKU { return s.options.Catalogue.Sorted() }

// System starts the machine that runs what belongs to no customer. It is none
// of the catalogue's types and is not for sale.
func (s *Service) System(name string, labels map[string]string) (Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.book(Request{Name: name, Labels: labels}, sku.SKU{})
	if err != nil {
		return Machine{}, err
	}
	m.System = true
	s.launch(m, labels, 0)
	return m.Machine, nil
}

// Create sells a machine or refuses with an *Error. The machine starts on its own.
func (s *Service) Create(request Request) (Machine, error) {
	kind, err := s.check(request)
	if err != nil {
		return Machine{}, err
	}
	rules, err := s.options.Script()
	if err != nil {
		return Machine{}, &Error{Code: CodeInternal, Message: err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing := s.named(request.Name); existing != nil {
		return again(existing.Machine, request)
	}
	rule := rules.Decide(script.Offer{SKU: request.SKU, Zone: request.Zone, CapacityType: request.CapacityType})
	if err := refusal(rule, request); err != nil {
		return Machine{}, err
	}
	m, err := s.book(request, kind)
	if err != nil {
		return Machine{}, err
	}
	s.launch(m, NodeLabels(request, kind), rule.Delay.Duration)
	return m.Machine, nil
}

// validName is what a node's host name may be.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (s *Service) check(request Request) (sku.SKU, error) {
	if !validName.MatchString(request.Name) {
		return sku.SKU{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("machine name %q is not a host name of at most 63 characters", request.Name)}
	}
	kind, known := s.options.Catalogue[request.SKU]
	if !known {
		return sku.SKU{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("machine type %q is not in the catalogue", request.SKU)}
	}
	if !kind.Offers(request.Zone, request.CapacityType) {
		return sku.SKU{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("machine type %s is not sold as %q in zone %q: it is sold as %s in %s",
			kind.Name, request.CapacityType, request.Zone, strings.Join(kind.CapacityTypes(), ", "), strings.Join(kind.Zones, ", "))}
	}
	return kind, nil
}

// again answers a request for a name that is taken.
func again(existing Machine, request Request) (Machine, error) {
	same := existing.SKU == request.SKU && existing.Zone == request.Zone && existing.CapacityType == request.CapacityType
	if same && existing.State != Stopping && !existing.System {
		return existing, nil
	}
	return Machine{}, &Error{Code: CodeConflict, Message: fmt.Sprintf("the name %s belongs to machine %s, which is %s", request.Name, existing.ID, existing.State)}
}

// refusal turns a rule into the cloud's answer.
func refusal(rule script.Rule, request Request) error {
	where := fmt.Sprintf("%s (%s) in %s", request.SKU, request.CapacityType, request.Zone)
	switch rule.Outcome {
	case script.NoCapacity:
		return &Error{Code: CodeNoCapacity, Message: orElse(rule.Message, "no capacity for "+where)}
	case script.Quota:
		return &Error{Code: CodeQuota, Message: orElse(rule.Message, "quota exceeded for "+where)}
	}
	return nil
}

func orElse(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}

// book gives the machine its id and addresses.
func (s *Service) book(request Request, kind sku.SKU) (*entry, error) {
	if s.closed {
		return nil, &Error{Code: CodeInternal, Message: "the cloud is going down"}
	}
	used := map[int]bool{}
	for _, m := range s.machines {
		used[m.Network.Slot] = true
	}
	slot, err := layout.NextSlot(used, s.lastSlot)
	if err != nil {
		return nil, &Error{Code: CodeQuota, Message: err.Error()}
	}
	network, err := layout.NetworkOf(slot)
	if err != nil {
		return nil, &Error{Code: CodeInternal, Message: err.Error()}
	}
	s.lastSlot = slot
	s.sold++
	id := fmt.Sprintf("m-%06d", s.sold)
	m := &entry{Machine: Machine{
		Request: request, ID: id, ProviderID: ProviderID(id), GPUs: kind.GPUs, GPUResource: kind.Resource,
		Network: network, State: Starting, Created: time.Now().UTC(),
	}}
	s.machines[id] = m
	return m, nil
}

// launch starts the machine's life, which goes on until it is deleted or lost.
func (s *Service) launch(m *entry, labels map[string]string, delay time.Duration) {
	ctx, end := context.WithCancel(context.Background()) // a machine outlives the request for it
	m.end = end
	s.record(m.Machine)
	machine := m.Machine
	s.running.Go(func() {
		defer end()
		select {
		case <-ctx.Done():
		case <-time.After(delay):
			s.live(ctx, machine, labels)
		}
		s.gone(machine)
	})
}

// live runs the machine until it ends. One that was sold and dies is gone, as in
// a cloud whose hardware fails; the cloud's own is started again.
func (s *Service) live(ctx context.Context, machine Machine, labels map[string]string) {
	log := s.options.Log.With("machine", machine.ID, "node", machine.Name)
	for {
		log.Info("machine starts", "sku", machine.SKU, "zone", machine.Zone)
		err := s.options.Runner.Run(ctx, machine, labels, func(pid int) { s.started(machine.ID, pid) })
		if ctx.Err() != nil {
			log.Info("machine ended")
			if err != nil {
				log.Error("machine left something behind", "error", err)
			}
			return
		}
		log.Error("machine was lost", "error", err)
		if !machine.System {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartPause):
		}
	}
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

func (s *Service) gone(machine Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.machines, machine.ID)
	if err := os.Remove(s.recordPath(machine.ID)); err != nil {
		s.options.Log.Error("machine record stays", "machine", machine.ID, "error", err)
	}
}

// Delete ends the machine. It returns before the machine is gone.
func (s *Service) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.machines[id]
	if !ok {
		return notFound(id)
	}
	m.State = Stopping
	s.record(m.Machine)
	m.end()
	return nil
}

// Get returns the machine with the id.
func (s *Service) Get(id string) (Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.machines[id]
	if !ok {
		return Machine{}, notFound(id)
	}
	return m.Machine, nil
}

// List returns all machines in the order in which they were sold.
func (s *Service) List() []Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Machine, 0, len(s.machines))
	for _, m := range s.machines {
		out = append(out, m.Machine)
	}
	slices.SortFunc(out, func(a, b Machine) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (s *Service) named(name string) *entry {
	for _, m := range s.machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func notFound(id string) error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no machine %s", id)}
}

func (s *Service) recordPath(id string) string { return filepath.Join(s.options.Records, id+".json") }

// record writes the machine's file. The file is for people who look and for the
// clean-up after a crash; the service itself never reads it.
func (s *Service) record(m Machine) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.WriteFile(s.recordPath(m.ID), data, 0o644)
	}
	if err != nil {
		s.options.Log.Error("machine is not recorded", "machine", m.ID, "error", err)
	}
}
