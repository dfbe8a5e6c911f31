// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/test/script"
)

// cloud answers requests for machines by a script that changes all the time.
type cloud struct {
	facts  *facts
	random *rand.Rand
	// rules by offer; an offer without one is sold and works.
	rules map[script.Offer]script.Rule
	// quotas in use, by their unit: no machine of the unit is sold, whatever its own rule.
	quotas map[quota]script.Rule
}

// quota is a unit that a cloud counts together.
type quota struct{ family, capacityType string }

func zones() []string { return []string{"eastus-1", "eastus-2", "eastus-3"} }

func capacityTypes() []string { return []string{"on-demand", "spot"} }

func offers() []script.Offer {
	var out []script.Offer
	for _, machine := range machineTypes() {
		for _, capacityType := range capacityTypes() {
			for _, zone := range zones() {
				out = append(out, script.Offer{SKU: machine.Name, Zone: zone, CapacityType: capacityType})
			}
		}
	}
	return out
}

// refusalKey is the input of a refusal's message.
type refusalKey struct {
	offer   script.Offer
	outcome script.Outcome
	kind    string
}

// said are the messages of a cloud for the first request of a claim, and for later ones.
type said struct{ first, again script.Refusal }

// refusal returns a cloud's words. They are the same in all runs, and made once.
func (f *facts) refusal(offer script.Offer, rule script.Rule) said {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := refusalKey{offer, rule.Outcome, rule.Kind}
	known, ok := f.refused[key]
	if !ok {
		player := script.NewPlayer(script.Script{Cloud: script.Azure, Rules: []script.Rule{rule}})
		known.first = player.Answer(script.Request{Offer: offer, Claim: "a", Attempt: "1"}).Refusal
		known.again = player.Answer(script.Request{Offer: offer, Claim: "a", Attempt: "2"}).Refusal
		f.refused[key] = known
	}
	return known
}

// sale is the cloud's answer: a machine with its fate, or a refusal, after a while.
type sale struct {
	offer   script.Offer
	rule    script.Rule
	refusal *script.Refusal
	after   time.Duration
}

// ask requests the first available one of some offers.
func (c *cloud) ask(wanted []script.Offer, isAgain bool) sale {
	var all []script.Refusal
	wait := c.between(2*time.Second, 30*time.Second)
	for _, offer := range wanted {
		rule := c.rule(offer)
		if rule.Outcome == script.SlowCreate {
			wait += rule.Delay.Duration
		}
		if !rule.Outcome.Refuses() {
			return sale{offer: offer, rule: rule, after: wait}
		}
		words := c.facts.refusal(offer, rule)
		if isAgain {
			words.first = words.again
		}
		all = append(all, words.first)
	}
	verdict := combined(all)
	return sale{refusal: &verdict, after: wait}
}

// combined is script.Combine's result for several refusals by Karpenter on Azure.
func combined(all []script.Refusal) script.Refusal {
	verdict, _ := script.Combine(script.Azure, all)
	return verdict
}

// stir changes the cloud's mind about some offers.
func (c *cloud) stir() {
	if c.random.IntN(3) == 0 {
		c.stirQuotas()
	}
	for _, machine := range machineTypes() {
		for _, capacityType := range capacityTypes() {
			if c.random.IntN(4) > 0 {
				continue
			}
			rule := c.fault()
			for _, zone := range zones() {
				if c.random.IntN(8) == 0 { // one zone is another matter
					rule = c.fault()
				}
				c.set(script.Offer{SKU: machine.Name, Zone: zone, CapacityType: capacityType}, rule)
			}
		}
	}
}

// stirQuotas uses one quota up and frees the others: a family's, the spot machines', or a region's.
func (c *cloud) stirQuotas() {
	clear(c.quotas)
	kind := []string{"", "family", "spot", "regional"}[c.random.IntN(4)]
	families, capacityType := []string{"Family A", "Family B"}, capacityTypes()[c.random.IntN(2)]
	switch kind {
	case "":
		return
	case "family":
		families = families[c.random.IntN(2):][:1]
	case "spot":
		capacityType = "spot"
	}
	for _, family := range families {
		c.quotas[quota{family, capacityType}] = script.Rule{Outcome: script.Quota, Cloud: script.Azure, Kind: kind}
	}
}

// rule is the fate of an offer; the zero Rule if it is sold and works.
func (c *cloud) rule(offer script.Offer) script.Rule {
	if rule, isUsedUp := c.quotas[quotaOf(offer)]; isUsedUp {
		return rule
	}
	return c.rules[offer]
}

func quotaOf(offer script.Offer) quota {
	for _, machine := range machineTypes() {
		if machine.Name == offer.SKU {
			return quota{machine.QuotaFamily, offer.CapacityType}
		}
	}
	return quota{}
}

func (c *cloud) set(offer script.Offer, rule script.Rule) {
	if rule.Outcome == "" || rule.Outcome == script.Accept {
		delete(c.rules, offer)
		return
	}
	c.rules[offer] = rule
}

// heal makes some offers work for good in all zones. Changing offers elsewhere are no longer sold.
func (c *cloud) heal(working []script.Offer) {
	for _, offer := range offers() {
		switch c.rules[offer].Outcome {
		case script.Dies, script.Evicted, script.NotReady, script.GPUFault, script.NoGPUs:
			c.rules[offer] = script.Rule{Outcome: script.NoCapacity, Cloud: script.Azure, Kind: "hidden"}
		}
		anywhere := offer
		anywhere.Zone = ""
		if slices.Contains(working, anywhere) {
			delete(c.rules, offer)
			maps.DeleteFunc(c.quotas, func(used quota, by script.Rule) bool { return used == quotaOf(offer) || by.Kind != "family" })
		}
	}
}

// fault is one of the failures of machines, or none.
func (c *cloud) fault() script.Rule {
	during := func(from, to time.Duration) metav1.Duration { return metav1.Duration{Duration: c.between(from, to)} }
	kind := func(kinds ...string) string { return kinds[c.random.IntN(len(kinds))] }
	rules := []script.Rule{
		{Outcome: script.Accept},
		{Outcome: script.Accept},
		{Outcome: script.NoCapacity, Kind: kind("zonal", "allocation", "overconstrained", "unavailable", "hidden")},
		{Outcome: script.NoCapacity, Kind: "hidden"},
		{Outcome: script.APIError},
		{Outcome: script.SlowCreate, Delay: during(time.Minute, 4*time.Minute)},
		{Outcome: script.Hang},
		{Outcome: script.Slow, Delay: during(time.Minute, 25*time.Minute)},
		{Outcome: script.NeverRegisters},
		{Outcome: script.NoGPUs},
		{Outcome: script.Dies, After: during(time.Minute, 2*time.Hour), RemoveNode: c.random.IntN(2) == 0},
		{Outcome: script.Evicted, After: during(time.Minute, 2*time.Hour), Notice: during(30*time.Second, 2*time.Minute)},
		{Outcome: script.NotReady, After: during(time.Minute, 2*time.Hour)},
		{Outcome: script.GPUFault, After: during(time.Minute, 2*time.Hour)},
		{Outcome: script.Stuck, Delay: during(time.Minute, 40*time.Minute)},
	}
	rule := rules[c.random.IntN(len(rules))]
	rule.Cloud = script.Azure
	return rule
}

func (c *cloud) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)))
}

// describe is a rule in few words.
func describe(rule script.Rule) string {
	return fmt.Sprintf("%s%s", cmp.Or(rule.Outcome, script.Accept), rule.Kind)
}

func newCloud(f *facts, random *rand.Rand) *cloud {
	c := &cloud{facts: f, random: random, rules: map[script.Offer]script.Rule{}, quotas: map[quota]script.Rule{}}
	c.stir()
	return c
}

// String names the broken part.
func (c *cloud) String() string {
	var out []string
	for _, offer := range offers() {
		if rule := c.rule(offer); rule.Outcome != "" {
			out = append(out, fmt.Sprintf("%s/%s/%s %s", offer.SKU, offer.CapacityType, offer.Zone, describe(rule)))
		}
	}
	return strings.Join(out, ", ")
}
