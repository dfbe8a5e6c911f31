// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	_ "embed" // the rules that ship
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
)

//go:embed rules.yaml
var shipped []byte

// zoneGroup is the name of the group in a pattern that matches the refused zone.
const zoneGroup = "zone"

// Rules interpret the messages with which clouds refuse requests.
type Rules struct {
	patience       map[Provider]time.Duration
	refusingEvents []string
	rules          []rule
}

// rule is the meaning of some messages.
type rule struct {
	// Name of the rule, and the providers that send such messages.
	Name      string     `json:"name"`
	Providers []Provider `json:"providers"`
	// Source of the message, and the source's date.
	Source string `json:"source"`
	Date   string `json:"date"`

	// Reasons of the Launched condition or of an event; one of them must match exactly.
	Reasons []string `json:"reasons,omitempty"`
	// AllOf and AnyOf are literal parts of the message.
	AllOf []string `json:"allOf,omitempty"`
	AnyOf []string `json:"anyOf,omitempty"`
	// Pattern matches the message from its start; its group "zone" matches the refused zone.
	Pattern string `json:"pattern,omitempty"`
	// Example is a message that the rule must match.
	Example example `json:"example"`

	// Cause, Breadth, CapacityType (empty: that of the request) and Cooldown of the verdict.
	Cause        Cause                `json:"cause"`
	Breadth      Breadth              `json:"scope"`
	CapacityType v1beta1.CapacityType `json:"capacityType,omitempty"`
	Cooldown     metav1.Duration      `json:"cooldown,omitzero"`
	// Evidence decides which other Workspaces are affected; by default, a quota affects the account, and anything
	// else the node class.
	Evidence Evidence `json:"evidence,omitempty"`
	// SpotCooldown is the cooldown for spot machines, if it differs.
	SpotCooldown metav1.Duration `json:"spotCooldown,omitzero"`
	// Patience is how long the provisioner may keep trying, from the claim's creation.
	Patience metav1.Duration `json:"patience,omitzero"`
	// Weak messages count only if no strong message about the same claim matches a rule.
	Weak bool `json:"weak,omitempty"`
	// Fix is the remedy for users.
	Fix string `json:"fix,omitempty"`
	// MendedBy is the object whose state shows the repair.
	MendedBy Mender `json:"mendedBy,omitempty"`

	pattern *regexp.Regexp
}

// example is a reason and a message for a rule.
type example struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// document is the file of rules.
type document struct {
	// Patience with unknown errors, by provider.
	Patience map[Provider]metav1.Duration `json:"patience"`
	// RefusingEvents are the reasons of events that count as messages.
	RefusingEvents []string `json:"refusingEvents"`
	// Rules in the order of comparison.
	Rules []rule `json:"rules"`
}

// Shipped returns the built-in rules.
func Shipped() (Rules, error) {
	return Parse(shipped)
}

// Parse reads rules strictly and checks them: each rule must have a meaning, and must be the first to match its own
// example.
func Parse(data []byte) (Rules, error) {
	var doc document
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return Rules{}, fmt.Errorf("rules: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	out := Rules{patience: map[Provider]time.Duration{}, refusingEvents: doc.RefusingEvents, rules: doc.Rules}
	for provider, patience := range doc.Patience {
		out.patience[provider] = patience.Duration
	}
	for i := range out.rules {
		if err := out.check(&out.rules[i]); err != nil {
			return Rules{}, fmt.Errorf("rules[%d] %q: %w", i, out.rules[i].Name, err)
		}
		if first := slices.IndexFunc(out.rules, func(r rule) bool { return r.Name == out.rules[i].Name }); first != i {
			return Rules{}, fmt.Errorf("rules[%d] %q: rules[%d] has the same name", i, out.rules[i].Name, first)
		}
	}
	for i := range out.rules {
		if err := out.checkExample(&out.rules[i]); err != nil {
			return Rules{}, fmt.Errorf("rules[%d] %q: %w", i, out.rules[i].Name, err)
		}
	}
	return out, nil
}

func (r Rules) check(entry *rule) error {
	if err := entry.checkWords(); err != nil {
		return err
	}
	if entry.MendedBy != "" && (entry.MendedBy != MendedByClass || entry.Cause != Misconfigured) {
		return fmt.Errorf("mendedBy: %q must be %s, and the cause must be Misconfigured", entry.MendedBy, MendedByClass)
	}
	if err := entry.checkMeaning(); err != nil {
		return err
	}
	if len(entry.Providers) == 0 {
		return errors.New("providers: must name at least one")
	}
	for _, provider := range entry.Providers {
		if provider == UnknownProvider || r.patience[provider] <= 0 {
			return fmt.Errorf("providers: %q needs a patience above zero in this file", provider)
		}
	}
	if entry.Name == "" || entry.Source == "" {
		return errors.New("name and source must be given")
	}
	if _, err := time.Parse(time.DateOnly, entry.Date); err != nil {
		return fmt.Errorf("date: %q is not a date like 2026-08-20", entry.Date)
	}
	return nil
}

// checkWords requires literals that can match, but not by accident. A capital or a space excludes the Kubernetes names
// in messages, because these have neither.
func (entry *rule) checkWords() error {
	if len(entry.Reasons)+len(entry.AllOf)+len(entry.AnyOf)+len(entry.Pattern) == 0 {
		return errors.New("one of reasons, allOf, anyOf and pattern must be given")
	}
	for _, literal := range slices.Concat(entry.AllOf, entry.AnyOf) {
		if len(literal) < 8 || strings.ToLower(literal) == literal && !strings.Contains(literal, " ") {
			return fmt.Errorf("words %q: give 8 characters or more, with a capital or a space; shorter words could be part of a name", literal)
		}
		if literal != oneLine(literal) {
			return fmt.Errorf("words %q: messages are compared on one line with single spaces", literal)
		}
	}
	if entry.Pattern == "" {
		return nil
	}
	if !strings.HasPrefix(entry.Pattern, "^") {
		return fmt.Errorf("pattern %q: it must start with ^", entry.Pattern)
	}
	compiled, err := regexp.Compile(entry.Pattern)
	if err != nil {
		return fmt.Errorf("pattern %q: %w", entry.Pattern, err)
	}
	entry.pattern = compiled
	return nil
}

func (entry *rule) checkMeaning() error {
	switch entry.Breadth {
	case OneOffering, SKU, Family, Everything:
	default:
		return fmt.Errorf("scope: %q is not offering, sku, family or everything", entry.Breadth)
	}
	if err := entry.checkEvidence(); err != nil {
		return err
	}
	switch entry.CapacityType {
	case "", Any, v1beta1.CapacityOnDemand, v1beta1.CapacitySpot, v1beta1.CapacityReserved:
	default:
		return fmt.Errorf("capacityType: %q is not on-demand, spot, reserved or %s", entry.CapacityType, Any)
	}
	switch entry.Cause {
	case NoCapacity, Quota, NotOffered, Lost, Unknown:
		if entry.Cooldown.Duration <= 0 || entry.SpotCooldown.Duration < 0 || entry.Patience.Duration < 0 {
			return errors.New("cooldown must be above zero; spotCooldown and patience must not be negative")
		}
	case Misconfigured:
		if entry.Fix == "" || entry.Breadth != Everything || entry.Cooldown.Duration != 0 || entry.Weak {
			return errors.New("a rule with cause Misconfigured needs a fix and the scope everything, and must not have a cooldown or weak")
		}
	case None, TimedOut, NeverRegistered, NeverInitialized, CannotServe:
		return fmt.Errorf("cause: %q cannot come from a message", entry.Cause)
	default:
		return fmt.Errorf("cause: %q is unknown", entry.Cause)
	}
	return nil
}

// checkEvidence sets the default evidence.
func (entry *rule) checkEvidence() error {
	switch {
	case entry.Evidence == "" && entry.Cause == Quota:
		entry.Evidence = OfAccount
	case entry.Evidence == "":
		entry.Evidence = OfClass
	case !slices.Contains([]Evidence{OfAccount, OfClass, OfRequest}, entry.Evidence):
		return fmt.Errorf("evidence: %q is not account, nodeClass or request", entry.Evidence)
	}
	return nil
}

// checkExample requires that no earlier rule matches the example.
func (r Rules) checkExample(entry *rule) error {
	for _, provider := range entry.Providers {
		said := signal{reason: entry.Example.Reason, message: entry.Example.Message}
		said.isEvent = slices.Contains(r.refusingEvents, said.reason)
		found := r.find(provider, said)
		if found == nil {
			return fmt.Errorf("example: the rule does not match it for %s", provider)
		}
		if found.Name != entry.Name {
			return fmt.Errorf("example: the earlier rule %q matches it for %s", found.Name, provider)
		}
	}
	return nil
}

// find returns the first rule for a signal, or nil.
func (r Rules) find(provider Provider, said signal) *rule {
	if said.isEvent && !slices.Contains(r.refusingEvents, said.reason) {
		return nil
	}
	message := oneLine(said.message)
	for i := range r.rules {
		if entry := &r.rules[i]; slices.Contains(entry.Providers, provider) && entry.matches(said.reason, message) {
			return entry
		}
	}
	return nil
}

func (entry *rule) matches(reason, message string) bool {
	contains := func(part string) bool { return strings.Contains(message, part) }
	if len(entry.Reasons) > 0 && !slices.Contains(entry.Reasons, reason) {
		return false
	}
	if len(entry.AnyOf) > 0 && !slices.ContainsFunc(entry.AnyOf, contains) {
		return false
	}
	for _, part := range entry.AllOf {
		if !contains(part) {
			return false
		}
	}
	return entry.pattern == nil || entry.pattern.MatchString(message)
}

// zoneIn returns the refused zone in a message, or "".
func (entry *rule) zoneIn(message string) string {
	if entry.pattern == nil {
		return ""
	}
	match, group := entry.pattern.FindStringSubmatch(oneLine(message)), entry.pattern.SubexpIndex(zoneGroup)
	if match == nil || group < 0 {
		return ""
	}
	return match[group]
}
