// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/modelberth/modelberth/test/localcloud/sku"
	"github.com/modelberth/modelberth/test/script"
)

// Runner runs machines.
type Runner interface {
	// Run starts the machine, calls started with its first process, and returns when the machine is gone with all it
	// held: because ctx ended, or on its own.
	Run(ctx context.Context, m Machine, labels map[string]string, started func(pid int)) error
}

// Options configures a Service.
type Options struct {
	Catalogue sku.Catalogue
	Runner    Runner
	// Script is read before each sale, with the edition it is of.
	Script func() (s script.Script, edition string, err error)
	// Records is the directory with one file for each machine.
	Records string
	// Bill is the file with one line for each machine that ended. Empty keeps none.
	Bill string
	// Objects makes sold machines mere objects of the cluster: they need no address, so any number fits.
	Objects bool
	Log     *slog.Logger
}

// Service sells and ends machines.
type Service struct {
	options Options
	running sync.WaitGroup
	player  script.Player

	mu       sync.Mutex
	closed   bool
	machines map[string]*entry // by id
	sold     int
	lastSlot int
}

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

// Catalogue lists the machine types for sale.
func (s *Service) Catalogue() []sku.SKU { return s.options.Catalogue.Sorted() }

// System starts the machine for everything without a customer. It is none of the catalogue's types and is not for
// sale.
func (s *Service) System(name string, labels map[string]string) (Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.book(Request{Name: name, Labels: labels}, sku.SKU{})
	if err != nil {
		return Machine{}, err
	}
	m.System = true
	s.launch(m, labels)
	return m.Machine, nil
}

// Create sells a machine or refuses with an *Error. The machine starts on its own.
func (s *Service) Create(request Request) (Machine, error) {
	kind, err := s.check(request)
	if err != nil {
		return Machine{}, err
	}
	if err := s.readScript(); err != nil {
		return Machine{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if existing := s.named(request.Name); existing != nil {
		return again(existing.Machine, request)
	}
	answer := s.player.Answer(script.Request{
		Offer: script.Offer{SKU: request.SKU, Zone: request.Zone, CapacityType: request.CapacityType},
		Claim: request.Claim, Attempt: request.Attempt,
	})
	if err := refusal(answer, request); err != nil {
		return Machine{}, err
	}
	m, err := s.book(request, kind)
	if err != nil {
		return Machine{}, err
	}
	if answer.Rule.Outcome != script.Accept {
		m.Fate = &answer.Rule
	}
	if _, inPool := request.Labels[labelNodePool]; m.Fate != nil && m.Fate.KeepsWaiting(inPool) {
		m.Answered = m.Created.Add(m.Fate.Delay.Duration)
	}
	s.launch(m, NodeLabels(request, kind))
	return m.Machine, nil
}

// ScriptState is the current script, with the numbers of each rule's checks and uses.
type ScriptState struct {
	Script script.Script  `json:"script"`
	Counts []script.Count `json:"counts"`
}

// ScriptState returns the script as it would be played now.
func (s *Service) ScriptState() (ScriptState, error) {
	if err := s.readScript(); err != nil {
		return ScriptState{}, err
	}
	var state ScriptState
	state.Script, state.Counts = s.player.State()
	return state, nil
}

func (s *Service) readScript() error {
	rules, edition, err := s.options.Script()
	if err != nil {
		return &Error{Code: CodeInternal, Message: err.Error()}
	}
	s.player.Play(rules, edition)
	return nil
}

// validName matches a valid host name of a node.
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

// again answers a request for a taken name.
func again(existing Machine, request Request) (Machine, error) {
	same := existing.SKU == request.SKU && existing.Zone == request.Zone && existing.CapacityType == request.CapacityType
	if same && existing.State != Stopping && !existing.System {
		return existing, nil
	}
	return Machine{}, &Error{Code: CodeConflict, Message: fmt.Sprintf("the name %s belongs to machine %s, which is %s", request.Name, existing.ID, existing.State)}
}

// refusal turns the script's answer into an error; nil if it sells.
func refusal(answer script.Answer, request Request) error {
	code, refuses := map[script.Outcome]Code{
		script.NoCapacity: CodeNoCapacity,
		script.Quota:      CodeQuota,
		script.APIError:   CodeUnavailable,
	}[answer.Rule.Outcome]
	if refuses {
		return &Error{
			Code: code, Message: answer.Refusal.Message,
			Cloud: answer.Rule.Cloud, Refusal: &answer.Refusal, Delay: answer.Rule.Delay.Duration,
		}
	}
	if answer.Rule.Outcome == script.Hang {
		return &Error{Code: CodeSilent, Message: "no answer to the request for machine " + request.Name}
	}
	return nil
}

// book gives the machine its id and addresses.
func (s *Service) book(request Request, kind sku.SKU) (*entry, error) {
	if s.closed {
		return nil, &Error{Code: CodeInternal, Message: "the cloud is shutting down"}
	}
	var network layout.NodeNetwork
	if !s.options.Objects || kind.Name == "" {
		var err error
		if network, err = s.address(); err != nil {
			return nil, err
		}
	}
	s.sold++
	id := fmt.Sprintf("m-%06d", s.sold)
	m := &entry{Machine: Machine{
		Request: request, ID: id, ProviderID: ProviderID(id), GPUs: kind.GPUs, GPUResource: kind.Resource,
		CPUs: kind.VCPUs, MemoryGiB: kind.MemoryGiB,
		Network: network, State: Starting, Created: time.Now().UTC(),
	}}
	s.machines[id] = m
	return m, nil
}

// address takes the addresses of a free slot.
func (s *Service) address() (layout.NodeNetwork, error) {
	used := map[int]bool{}
	for _, m := range s.machines {
		used[m.Network.Slot] = true
	}
	slot, err := layout.NextSlot(used, s.lastSlot)
	if err != nil {
		return layout.NodeNetwork{}, &Error{Code: CodeQuota, Message: err.Error()}
	}
	network, err := layout.NetworkOf(slot)
	if err != nil {
		return layout.NodeNetwork{}, &Error{Code: CodeInternal, Message: err.Error()}
	}
	s.lastSlot = slot
	return network, nil
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

// List returns all machines in the order of their sale.
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

// Sale is a line of the bill: a machine from its sale until it was gone.
type Sale struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	SKU     string    `json:"sku"`
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended"`
}

// charge adds a machine to the bill.
func (s *Service) charge(m Machine) {
	if s.options.Bill == "" || m.System {
		return
	}
	line, err := json.Marshal(Sale{m.ID, m.Name, m.SKU, m.Created, time.Now().UTC()})
	if err == nil {
		err = appendLine(s.options.Bill, line)
	}
	if err != nil {
		s.options.Log.Error("machine is not on the bill", "machine", m.ID, "error", err)
	}
}

func appendLine(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// record writes the machine's file. The file is for people and for the clean-up after a crash; the service itself
// never reads it.
func (s *Service) record(m Machine) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.WriteFile(s.recordPath(m.ID), data, 0o644)
	}
	if err != nil {
		s.options.Log.Error("machine is not recorded", "machine", m.ID, "error", err)
	}
}
