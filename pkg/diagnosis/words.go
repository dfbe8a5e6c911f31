// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	_ "embed" // the words that ship
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

//go:embed words.yaml
var shipped []byte

// Words are the known messages of engines.
type Words struct{ rules []wordRule }

// wordRule gives the meaning of some messages.
type wordRule struct {
	// Name of the rule, the source of the message, and the date of that source.
	Name   string `json:"name"`
	Source string `json:"source"`
	Date   string `json:"date"`
	// Pattern to find in the message; Says and Next may use its named groups.
	Pattern string `json:"pattern"`
	// Example of the words.
	Example string `json:"example"`
	// Reason of the finding.
	Reason string `json:"reason"`
	// Says describes the failure, Next the way out.
	Says string `json:"says"`
	Next string `json:"next"`
	// Beside selects the plan's figures for comparison.
	Beside figures `json:"beside,omitempty"`

	pattern *regexp.Regexp
}

// figures are a plan's figures for comparison with an engine's message.
type figures string

const (
	besideMemory figures = "memory"
	besideCache  figures = "cache"
)

// place is the location of a message.
type place struct{ pod, container, image, arch string }

// maxGroup bounds the parts of a message in a sentence.
const maxGroup = 160

// Shipped returns the built-in messages.
func Shipped() (Words, error) { return Parse(shipped) }

// Parse reads rules strictly and checks them: each must have a meaning, and match its own example first.
func Parse(data []byte) (Words, error) {
	var doc struct {
		Rules []wordRule `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return Words{}, fmt.Errorf("words: %s", wording.OneLine(err.Error()))
	}
	words := Words{rules: doc.Rules}
	for i := range words.rules {
		rule := &words.rules[i]
		if err := rule.check(); err != nil {
			return Words{}, fmt.Errorf("rules[%d] %q: %w", i, rule.Name, err)
		}
		if first := slices.IndexFunc(words.rules, func(r wordRule) bool { return r.Name == rule.Name }); first != i {
			return Words{}, fmt.Errorf("rules[%d] %q: rules[%d] has the same name", i, rule.Name, first)
		}
	}
	for i := range words.rules {
		rule := &words.rules[i]
		if found, _ := words.find(rule.Example); found == nil {
			return Words{}, fmt.Errorf("rules[%d] %q: example: the rule does not match it", i, rule.Name)
		} else if found != rule {
			return Words{}, fmt.Errorf("rules[%d] %q: example: rule %q matches it before", i, rule.Name, found.Name)
		}
	}
	return words, nil
}

func (r *wordRule) check() error {
	if r.Name == "" || r.Source == "" || r.Says == "" || r.Next == "" {
		return errors.New("name, source, says and next must be given")
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("date: %q is not a date like 2026-08-20", r.Date)
	}
	if !slices.Contains(reasonsOfWords(), r.Reason) {
		return fmt.Errorf("reason: %q is none that words may give", r.Reason)
	}
	if r.Beside != "" && r.Beside != besideMemory && r.Beside != besideCache {
		return fmt.Errorf("beside: %q is neither %s nor %s", r.Beside, besideMemory, besideCache)
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

// reasonsOfWords are the possible reasons of an engine's message.
func reasonsOfWords() []string {
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
func (w Words) find(said string) (*wordRule, map[string]string) {
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

// sentences are a rule's description and way out for a message at a place.
func (r *wordRule) sentences(groups map[string]string, where place) (says, next string) {
	var pairs []string
	for _, values := range []map[string]string{where.values(), groups} {
		for name, value := range values {
			pairs = append(pairs, "{"+name+"}", value)
		}
	}
	replacer := strings.NewReplacer(pairs...)
	return replacer.Replace(r.Says), replacer.Replace(r.Next)
}
