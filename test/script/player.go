// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"slices"
	"sync"
)

// Request is one question to the cloud for a machine.
type Request struct {
	Offer

	// Claim is who asks, and Attempt its turn: a claim that is refused may ask again, and in one turn
	// it may try several offers.
	Claim   string
	Attempt string
}

// Answer is what the cloud does.
type Answer struct {
	// Rule that decides, with the script's cloud where it had none of its own.
	Rule Rule
	// Refusal is what the cloud says, where the outcome refuses.
	Refusal Refusal
}

// Count is how often a rule was asked and held.
type Count struct {
	Attempts int `json:"attempts"`
	Met      int `json:"met"`
}

// Player answers requests as its script says, and counts. The same requests in the same order get
// the same answers. Its zero value sells everything; it may be used from several goroutines.
type Player struct {
	mu      sync.Mutex
	script  Script
	edition string
	counts  []Count
	// met are the attempts that each rule was asked about, and whether it held.
	met []map[string]bool
	// refused are the claims that each rule refused, with the attempt at which it did first.
	refused []map[string]string
}

// NewPlayer returns a player of one script.
func NewPlayer(s Script) *Player {
	p := &Player{}
	p.Play(s, "")
	return p
}

// Play sets the script. Counting begins anew with each edition.
func (p *Player) Play(s Script, edition string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts != nil && edition == p.edition {
		return
	}
	p.script, p.edition = s, edition
	p.counts = make([]Count, len(s.Rules))
	p.met = make([]map[string]bool, len(s.Rules))
	p.refused = make([]map[string]string, len(s.Rules))
	for i := range s.Rules {
		p.met[i], p.refused[i] = map[string]bool{}, map[string]string{}
	}
}

// Answer returns what becomes of a request: what the first rule says that is for it and holds.
func (p *Player) Answer(request Request) Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, rule := range p.script.Rules {
		if !rule.isFor(request.Offer) {
			continue
		}
		if rule.Cloud == Plain {
			rule.Cloud = p.script.Cloud
		}
		first, refused := p.refused[i][request.Claim]
		again := refused && first != request.Attempt && rule.isRemembered()
		if !again && !p.holds(i, request.Attempt) {
			continue
		}
		if !rule.Outcome.Refuses() {
			return Answer{Rule: rule}
		}
		if !refused {
			p.refused[i][request.Claim] = request.Attempt
		}
		return Answer{Rule: rule, Refusal: rule.refusal(request.Offer, again)}
	}
	return Answer{Rule: Rule{Outcome: Accept}}
}

// holds counts an attempt, once.
func (p *Player) holds(i int, attempt string) bool {
	if met, known := p.met[i][attempt]; known {
		return met
	}
	rule, count := p.script.Rules[i], &p.counts[i]
	met := count.Attempts >= rule.Skip && (rule.Times == 0 || count.Attempts < rule.Skip+rule.Times)
	count.Attempts++
	if met {
		count.Met++
	}
	p.met[i][attempt] = met
	return met
}

// State returns the script and how often each of its rules was asked and held.
func (p *Player) State() (Script, []Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.script, slices.Clone(p.counts)
}
