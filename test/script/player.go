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

	// Claim is the asking claim, and Attempt its turn: a refused claim may ask again, and in one turn it may try
	// several offers.
	Claim   string
	Attempt string
}

// Answer is the cloud's reaction.
type Answer struct {
	// Rule is the deciding rule, with the script's cloud if it had none of its own.
	Rule Rule
	// Refusal is the cloud's words if the outcome refuses.
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
	// met holds each rule's attempts so far, and whether it held for them.
	met []map[string]bool
	// refused holds the claims refused by each rule, with the attempt of the first refusal.
	refused []map[string]string
}

// NewPlayer returns a player of one script.
func NewPlayer(s Script) *Player {
	p := &Player{}
	p.Play(s, "")
	return p
}

// Play sets the script. Counting starts again with each edition.
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

// Answer returns the cloud's answer to a request: that of the first matching rule in force.
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
