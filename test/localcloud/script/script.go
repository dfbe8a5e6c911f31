// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package script decides what the cloud answers to a request for a machine when
// a test wants it to misbehave: no capacity, no quota, a machine that is slow to
// come. It holds the rules and matches them; who asks and what follows from the
// answer it must not know.
package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what happens to a request.
type Outcome string

const (
	// Accept sells the machine.
	Accept Outcome = "accept"
	// NoCapacity refuses: the cloud has none of these machines left here.
	NoCapacity Outcome = "noCapacity"
	// Quota refuses: the customer may not have more of these machines.
	Quota Outcome = "quota"
	// Slow sells the machine, which then takes Delay longer to start.
	Slow Outcome = "slow"
)

// Rule says what happens to the requests that it matches. An empty field
// matches everything.
type Rule struct {
	SKU          string  `json:"sku,omitempty"`
	Zone         string  `json:"zone,omitempty"`
	CapacityType string  `json:"capacityType,omitempty"`
	Outcome      Outcome `json:"outcome"`
	// Message is the cloud's sentence; empty stands for a plain one.
	Message string `json:"message,omitempty"`
	// Delay belongs to Slow.
	Delay metav1.Duration `json:"delay,omitzero"`
}

// Script is the rules in the order in which they are tried.
type Script struct {
	Rules []Rule `json:"rules"`
}

// Offer is one machine type in one zone, sold in one way.
type Offer struct {
	SKU          string
	Zone         string
	CapacityType string
}

// Decide returns the first rule that matches, or one that accepts.
func (s Script) Decide(offer Offer) Rule {
	for _, rule := range s.Rules {
		if rule.matches(offer) {
			return rule
		}
	}
	return Rule{Outcome: Accept}
}

func (r Rule) matches(offer Offer) bool {
	pairs := [][2]string{{r.SKU, offer.SKU}, {r.Zone, offer.Zone}, {r.CapacityType, offer.CapacityType}}
	for _, pair := range pairs {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	return true
}

// Parse reads a script, refusing fields and outcomes it does not know.
func Parse(data []byte) (Script, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var s Script
	if err := decoder.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("decoding the script: %w", err)
	}
	for i, rule := range s.Rules {
		if err := rule.validate(); err != nil {
			return Script{}, fmt.Errorf("rules[%d]: %w", i, err)
		}
	}
	return s, nil
}

func (r Rule) validate() error {
	switch r.Outcome {
	case Accept, NoCapacity, Quota:
		if r.Delay.Duration != 0 {
			return fmt.Errorf("delay %s goes with outcome %q only, not with %q", r.Delay.Duration, Slow, r.Outcome)
		}
		return nil
	case Slow:
		if r.Delay.Duration <= 0 {
			return fmt.Errorf("outcome %q needs a delay above zero, such as \"20s\"", Slow)
		}
		return nil
	}
	return fmt.Errorf("outcome %q is unknown: use %q, %q, %q or %q", r.Outcome, Accept, NoCapacity, Quota, Slow)
}

// Load reads the script of a file. No file means no rules.
func Load(path string) (Script, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Script{}, nil
	}
	if err != nil {
		return Script{}, fmt.Errorf("reading the script: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return Script{}, fmt.Errorf("script %s: %w", path, err)
	}
	return s, nil
}
