// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	_ "embed" // the built-in signatures
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/wording"
)

//go:embed signatures.yaml
var shipped []byte

// Signatures are the known messages of engines.
type Signatures struct{ rules []signature }

// signature is a rule: it explains the messages that match a pattern.
type signature struct {
	// Name of the rule, Source of the message, and Date of that source.
	Name   string `json:"name"`
	Source string `json:"source"`
	Date   string `json:"date"`
	// Pattern to find in the message; Says and Next may use its named groups.
	Pattern string `json:"pattern"`
	// Example of the message.
	Example string `json:"example"`
	// Reason of the finding.
	Reason string `json:"reason"`
	// Says describes the failure, Next the remedy.
	Says string `json:"says"`
	Next string `json:"next"`
	// Compare selects the plan's figures to show with the message.
	Compare comparison `json:"compare,omitempty"`

	pattern *regexp.Regexp
}

// comparison selects the part of a plan to compare with an engine's message.
type comparison string

const (
	compareMemory comparison = "memory"
	compareCache  comparison = "cache"
)

// place is the location of a message.
type place struct{ pod, container, image, arch string }

// maxGroup bounds the parts of a message in a sentence.
const maxGroup = 160

// Shipped returns the built-in messages.
func Shipped() (Signatures, error) { return Parse(shipped) }

// Parse reads rules strictly and checks them. Each rule must have a reason and a text, and must be the first that
// matches its own example.
func Parse(data []byte) (Signatures, error) {
	var doc struct {
		Rules []signature `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return Signatures{}, fmt.Errorf("signatures: %s", wording.OneLine(err.Error()))
	}
	all := Signatures{rules: doc.Rules}
	for i := range all.rules {
		rule := &all.rules[i]
		if err := rule.check(); err != nil {
			return Signatures{}, fmt.Errorf("rules[%d] %q: %w", i, rule.Name, err)
		}
		if first := slices.IndexFunc(all.rules, func(r signature) bool { return r.Name == rule.Name }); first != i {
			return Signatures{}, fmt.Errorf("rules[%d] %q: rules[%d] has the same name", i, rule.Name, first)
		}
	}
	for i := range all.rules {
		rule := &all.rules[i]
		if found, _ := all.find(rule.Example); found == nil {
			return Signatures{}, fmt.Errorf("rules[%d] %q: example: the rule does not match it", i, rule.Name)
		} else if found != rule {
			return Signatures{}, fmt.Errorf("rules[%d] %q: example: the earlier rule %q matches it", i, rule.Name, found.Name)
		}
	}
	return all, nil
}

func (r *signature) check() error {
	if r.Name == "" || r.Source == "" || r.Says == "" || r.Next == "" {
		return errors.New("name, source, says and next must be given")
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("date: %q is not a date like 2026-08-20", r.Date)
	}
	if !slices.Contains(reasonsOfSignatures(), r.Reason) {
		return fmt.Errorf("reason: %q is not a reason that a signature may have", r.Reason)
	}
	if r.Compare != "" && r.Compare != compareMemory && r.Compare != compareCache {
		return fmt.Errorf("compare: %q is neither %s nor %s", r.Compare, compareMemory, compareCache)
	}
	if len(r.Pattern) < 8 {
		return fmt.Errorf("pattern: %q is too short to mean one thing", r.Pattern)
	}
	var err error
	if r.pattern, err = regexp.Compile(r.Pattern); err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	for _, match := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(r.Says+r.Next, -1) {
		if _, known := (place{}).values()[match[1]]; !known && r.pattern.SubexpIndex(match[1]) < 0 {
			return fmt.Errorf("says, next: the pattern has no group %q", match[1])
		}
	}
	return nil
}

// reasonsOfSignatures returns the possible reasons of signatures.
func reasonsOfSignatures() []string {
	return []string{
		v1beta1.ReasonWrongArchitecture, v1beta1.ReasonKVCacheTooSmall, v1beta1.ReasonGPUOutOfMemory, v1beta1.ReasonGPUUnusable,
		v1beta1.ReasonEngineArgsRefused, v1beta1.ReasonModelRefused, v1beta1.ReasonContainerOOMKilled,
		v1beta1.ReasonContainerCrashLoop, v1beta1.ReasonWeightsUnauthorized, v1beta1.ReasonWeightsDiskFull,
	}
}

func (p place) values() map[string]string {
	return map[string]string{"pod": p.pod, "container": p.container, "image": p.image, "arch": p.arch}
}

// find returns the first matching rule, with the groups of its pattern.
func (w Signatures) find(said string) (*signature, map[string]string) {
	said = wording.OneLine(said)
	for i := range w.rules {
		rule := &w.rules[i]
		match := rule.pattern.FindStringSubmatch(said)
		if match == nil {
			continue
		}
		groups := map[string]string{}
		for g, name := range rule.pattern.SubexpNames() {
			if name != "" {
				groups[name] = wording.Clip(strings.TrimSpace(steady(match[g])), maxGroup)
			}
		}
		return rule, groups
	}
	return nil, nil
}

// sentences returns a rule's description and remedy for a message from a place.
func (r *signature) sentences(groups map[string]string, where place) (says, next string) {
	var pairs []string
	for _, values := range []map[string]string{where.values(), groups} {
		for name, value := range values {
			pairs = append(pairs, "{"+name+"}", value)
		}
	}
	replacer := strings.NewReplacer(pairs...)
	return replacer.Replace(r.Says), replacer.Replace(r.Next)
}
