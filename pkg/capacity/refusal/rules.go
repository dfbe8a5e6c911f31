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

// zoneGroup is the group of a pattern that names the zone that a refusal is about.
const zoneGroup = "zone"

// Rules are the words in which clouds refuse.
type Rules struct {
	patience       map[Provider]time.Duration
	refusingEvents []string
	rules          []rule
}

// rule says what some words mean.
type rule struct {
	// Name of the rule, and who says such words.
	Name      string     `json:"name"`
	Providers []Provider `json:"providers"`
	// Source of the words, and the date of that source.
	Source string `json:"source"`
	Date   string `json:"date"`

	// Reasons of the Launched condition or of an event, any of which is met exactly.
	Reasons []string `json:"reasons,omitempty"`
	// AllOf and AnyOf are literal parts of the message.
	AllOf []string `json:"allOf,omitempty"`
	AnyOf []string `json:"anyOf,omitempty"`
	// Pattern that the message matches from its start; its group "zone" names the zone at issue.
	Pattern string `json:"pattern,omitempty"`
	// Example of the words.
	Example example `json:"example"`

	// Cause, Breadth, CapacityType (that of the request where empty) and Cooldown of the verdict.
	Cause        Cause                `json:"cause"`
	Breadth      Breadth              `json:"scope"`
	CapacityType v1beta1.CapacityType `json:"capacityType,omitempty"`
	Cooldown     metav1.Duration      `json:"cooldown,omitzero"`
	// Evidence says who else would be refused; where it is empty, a quota is the account's, and anything else is
	// about the node class.
	Evidence Evidence `json:"evidence,omitempty"`
	// SpotCooldown is for spot, where it differs.
	SpotCooldown metav1.Duration `json:"spotCooldown,omitzero"`
	// Patience is how long the provisioner may go on trying, from the claim's creation.
	Patience metav1.Duration `json:"patience,omitzero"`
	// Weak words say less than any others that were heard about the same claim.
	Weak bool `json:"weak,omitempty"`
	// Fix is what somebody could do about it.
	Fix string `json:"fix,omitempty"`
	// MendedBy is what of the cluster tells that it was done.
	MendedBy Mender `json:"mendedBy,omitempty"`

	pattern *regexp.Regexp
}

// example is a reason and a message that a rule is there for.
type example struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// document is the file of rules.
type document struct {
	// Patience with errors that no rule knows, by provider.
	Patience map[Provider]metav1.Duration `json:"patience"`
	// RefusingEvents are the reasons of events whose words count.
	RefusingEvents []string `json:"refusingEvents"`
	// Rules in the order in which words are compared with them.
	Rules []rule `json:"rules"`
}

// Shipped returns the rules that ship with this program.
func Shipped() (Rules, error) {
	return Parse(shipped)
}

// Parse reads rules strictly and checks them: each must mean something, and be the one that its own
// example meets.
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
		return fmt.Errorf("mendedBy: %q is not %s, or the cause is not Misconfigured", entry.MendedBy, MendedByClass)
	}
	if err := entry.checkMeaning(); err != nil {
		return err
	}
	if len(entry.Providers) == 0 {
		return errors.New("providers: nobody says these words")
	}
	for _, provider := range entry.Providers {
		if provider == UnknownProvider || r.patience[provider] <= 0 {
			return fmt.Errorf("providers: %q has no patience above zero in the file", provider)
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

// checkWords sees to it that words can be met, and cannot be met by accident: Kubernetes names, which
// stand in messages too, have neither capitals nor spaces.
func (entry *rule) checkWords() error {
	if len(entry.Reasons)+len(entry.AllOf)+len(entry.AnyOf)+len(entry.Pattern) == 0 {
		return errors.New("one of reasons, allOf, anyOf and pattern must be given")
	}
	for _, literal := range slices.Concat(entry.AllOf, entry.AnyOf) {
		if len(literal) < 8 || strings.ToLower(literal) == literal && !strings.Contains(literal, " ") {
			return fmt.Errorf("words %q: they must be 8 characters or more, with a capital or a space, or a name could hold them", literal)
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
			return errors.New("cooldown must be above zero; spotCooldown and patience must not be below")
		}
	case Misconfigured:
		if entry.Fix == "" || entry.Breadth != Everything || entry.Cooldown.Duration != 0 || entry.Weak {
			return errors.New("what is Misconfigured has a fix, the scope everything, no cooldown, and is not weak")
		}
	case None, TimedOut, NeverRegistered, NeverInitialized, CannotServe:
		return fmt.Errorf("cause: %q is not for words to say", entry.Cause)
	default:
		return fmt.Errorf("cause: %q is unknown", entry.Cause)
	}
	return nil
}

// checkEvidence fills in the evidence where none is given.
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

// checkExample sees to it that no earlier rule takes the words that this one is there for.
func (r Rules) checkExample(entry *rule) error {
	for _, provider := range entry.Providers {
		said := signal{reason: entry.Example.Reason, message: entry.Example.Message}
		said.isEvent = slices.Contains(r.refusingEvents, said.reason)
		found := r.find(provider, said)
		if found == nil {
			return fmt.Errorf("example: the rule does not match it for %s", provider)
		}
		if found.Name != entry.Name {
			return fmt.Errorf("example: rule %q matches it before, for %s", found.Name, provider)
		}
	}
	return nil
}

// find returns the first rule that a signal meets, or nil.
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

// zoneIn returns the zone that a message names, or "".
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
