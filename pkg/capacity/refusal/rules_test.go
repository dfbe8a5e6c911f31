// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustRules(t testing.TB) Rules {
	t.Helper()
	rules, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestShippedRulesTellCausesApart: the rules have messages of each provider for each of these causes.
func TestShippedRulesTellCausesApart(t *testing.T) {
	has := map[Provider]map[Cause]bool{}
	for _, r := range mustRules(t).rules {
		for _, provider := range r.Providers {
			if has[provider] == nil {
				has[provider] = map[Cause]bool{}
			}
			has[provider][r.Cause] = true
		}
	}
	for _, provider := range []Provider{KarpenterAzure, KarpenterAWS, GPUProvisioner, ClusterAutoscaler} {
		for _, cause := range []Cause{NoCapacity, Quota, NotOffered, Misconfigured} {
			if !has[provider][cause] {
				t.Errorf("%s has no words for %s", provider, cause)
			}
		}
	}
}

func TestParseRules(t *testing.T) {
	const head = `
patience: {karpenter-aws: 2m}
refusingEvents: [Refused]
rules:
`
	const first = `- name: first
  providers: [karpenter-aws]
  source: a manual
  date: "2026-11-21"
  anyOf: [NoMachines]
  example: {reason: LaunchFailed, message: "NoMachines: sorry"}
  cause: NoCapacity
  scope: sku
  cooldown: 1h
`
	const good = head + first
	second := strings.ReplaceAll(first, "first", "second")
	tests := []struct {
		reason string
		from   string
		to     string
		want   string
	}{
		{"good", "", "", ""},
		{"a field that is not there", "scope: sku", "scope: sku\n  speed: 1", `rules: error unmarshaling JSON: while decoding JSON: json: unknown field "speed"`},
		{"not a date", "2026-11-21", "today", `rules[0] "first": date: "today" is not a date like 2026-08-20`},
		{"no source", "source: a manual", "source: ''", `rules[0] "first": name and source must be given`},
		{"no provider", "[karpenter-aws]\n  source", "[]\n  source", `rules[0] "first": providers: must name at least one`},
		{"a provider without patience", "[karpenter-aws]\n  source", "[karpenter-azure]\n  source", `rules[0] "first": providers: "karpenter-azure" needs a patience above zero in this file`},
		{"no words", "anyOf: [NoMachines]", "anyOf: []", `rules[0] "first": one of reasons, allOf, anyOf and pattern must be given`},
		{
			"words that a name could hold", "anyOf: [NoMachines]", "anyOf: [no-machines]",
			`rules[0] "first": words "no-machines": give 8 characters or more, with a capital or a space; shorter words could be part of a name`,
		},
		{"words with a break", "anyOf: [NoMachines]", `anyOf: ["No  machines"]`, `rules[0] "first": words "No  machines": messages are compared on one line with single spaces`},
		{"a pattern that floats", "anyOf: [NoMachines]", "pattern: 'NoMachines'", `rules[0] "first": pattern "NoMachines": it must start with ^`},
		{"a pattern that is none", "anyOf: [NoMachines]", "pattern: '^('", "rules[0] \"first\": pattern \"^(\": error parsing regexp: missing closing ): `^(`"},
		{"a scope that is none", "scope: sku", "scope: region", `rules[0] "first": scope: "region" is not offering, sku, family or everything`},
		{"a capacity type that is none", "scope: sku", "scope: sku\n  capacityType: cheap", `rules[0] "first": capacityType: "cheap" is not on-demand, spot, reserved or *`},
		{"no cooldown", "cooldown: 1h", "cooldown: 0s", `rules[0] "first": cooldown must be above zero; spotCooldown and patience must not be negative`},
		{"a cause that age decides", "cause: NoCapacity", "cause: TimedOut", `rules[0] "first": cause: "TimedOut" cannot come from a message`},
		{"a cause that is none", "cause: NoCapacity", "cause: Bad", `rules[0] "first": cause: "Bad" is unknown`},
		{"misconfigured without a fix", "cause: NoCapacity", "cause: Misconfigured", `rules[0] "first": a rule with cause Misconfigured needs a fix and the scope everything, and must not have a cooldown or weak`},
		{"mended by what nobody watches", "scope: sku", "scope: sku\n  mendedBy: subnet", `rules[0] "first": mendedBy: "subnet" must be nodeClass, and the cause must be Misconfigured`},
		{"capacity mended by the class", "scope: sku", "scope: sku\n  mendedBy: nodeClass", `rules[0] "first": mendedBy: "nodeClass" must be nodeClass, and the cause must be Misconfigured`},
		{"an example of something else", "NoMachines: sorry", "sorry", `rules[0] "first": example: the rule does not match it for karpenter-aws`},
		{"an example in an event", "reason: LaunchFailed", "reason: Refused", ""},
		{"the same name twice", "cooldown: 1h\n", "cooldown: 1h\n" + first, `rules[1] "first": rules[0] has the same name`},
		{"a rule that is never met", "cooldown: 1h\n", "cooldown: 1h\n" + second, `rules[1] "second": example: the earlier rule "first" matches it for karpenter-aws`},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			text := strings.Replace(good, test.from, test.to, 1)
			if test.from != "" && text == good {
				t.Fatalf("%q is not in the rules", test.from)
			}
			_, err := Parse([]byte(text))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(test.want, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
