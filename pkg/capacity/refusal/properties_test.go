// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func randomObservation(random *rand.Rand, rules Rules) Observation {
	moment := func() time.Time { return created.Add(time.Duration(random.IntN(60)-2) * time.Minute) }
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	words := func() (reason, message string) {
		switch example := rules.rules[random.IntN(len(rules.rules))].Example; random.IntN(4) {
		case 0:
			return pick("", "AwaitingReconciliation", v1beta1.ReasonTriggeredScaleUp, "LaunchFailed", "CreateInstanceFailed"), pick("", "boom", "quota", "capacity")
		case 1:
			return pick("LaunchFailed", ice, "AsyncProvisioningError"), example.Message
		default:
			return example.Reason, example.Message
		}
	}
	condition := func() Condition {
		reason, message := words()
		c := Condition{Status: Status(pick("", "Unknown", "Unknown", "True", "False")), Reason: reason, Message: message}
		if random.IntN(3) > 0 {
			c.Since = moment()
		}
		return c
	}
	o := Observation{
		Provider: Provider(pick("", string(KarpenterAzure), string(KarpenterAWS), string(GPUProvisioner), string(ClusterAutoscaler))),
		Offering: randomOffering(random), UID: uid, CreatedAt: moment(),
		Launched: condition(), Registered: condition(), Initialized: condition(),
		ProviderID: pick("", "", "", "vm"), NodeName: pick("", "", "", "node"),
		GPUs: random.IntN(3), GPUsWanted: random.IntN(3), WasUsable: random.IntN(8) == 0,
		Class: ClassState(pick("", "Ready", "NotReady", "Missing")), ClassMessage: pick("", "why"),
	}
	if random.IntN(3) == 0 {
		o.GoneAt = moment()
	}
	for range random.IntN(3) {
		reason, message := words()
		o.Noted = append(o.Noted, Note{Reason: reason, Message: message, At: moment()})
	}
	for range random.IntN(3) {
		reason, message := words()
		o.Events = append(o.Events, Event{UID: uid, Reason: reason, Message: message, At: moment()})
	}
	return o
}

// TestVerdictsInTime: a verdict depends only on the values. A final verdict never changes with time. Any other verdict
// changes at its LookAgain, and not before.
func TestVerdictsInTime(t *testing.T) {
	rules := mustRules(t)
	finals := 0
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 2))
		o := randomObservation(random, rules)
		now := created.Add(time.Duration(random.IntN(90*60)-600) * time.Second)
		v := rules.Classify(o, limits, now)

		again := o
		again.Events, again.Noted = slices.Clone(o.Events), slices.Clone(o.Noted)
		random.Shuffle(len(again.Events), func(i, j int) { again.Events[i], again.Events[j] = again.Events[j], again.Events[i] })
		if diff := cmp.Diff(v, rules.Classify(again, limits, now)); diff != "" {
			t.Fatalf("seed %d: the order of events matters:\n%s", seed, diff)
		}
		switch {
		case v.Final && (!v.LookAgain.IsZero() || v.Cause == None):
			t.Fatalf("seed %d: final, and yet %+v", seed, v)
		case v.Final:
			finals++
			later := now.Add(time.Duration(1+random.IntN(1e6)) * time.Second)
			if diff := cmp.Diff(v, rules.Classify(o, limits, later)); diff != "" {
				t.Fatalf("seed %d: a final verdict changed in time:\n%s", seed, diff)
			}
		case v.LookAgain.IsZero():
			if later := rules.Classify(o, limits, now.Add(1e6*time.Second)); later.Final {
				t.Fatalf("seed %d: nothing to look at again, and yet %+v", seed, later)
			}
		default:
			before := now.Add(time.Duration(random.Int64N(int64(v.LookAgain.Sub(now)))))
			if diff := cmp.Diff(v, rules.Classify(o, limits, before)); diff != "" {
				t.Fatalf("seed %d: it changed before the time that it named:\n%s", seed, diff)
			}
			if later := rules.Classify(o, limits, v.LookAgain); !later.Final {
				t.Fatalf("seed %d: to be looked at again at %s for %+v", seed, v.LookAgain, later)
			}
		}
	}
	if finals < 5000 {
		t.Errorf("only %d of 20000 observations came to an end: the generator is too tame", finals)
	}
}

// TestScopesAreNotWiderThanTheWords: a scope is never wider than the message allows. Without a rule, it is at most the
// machine type. With a rule, it is no wider than the rule's scope. It covers another zone, capacity type or family
// only if the rule or the message says so. Only a message or a node class leads to Misconfigured.
func TestScopesAreNotWiderThanTheWords(t *testing.T) {
	rules := mustRules(t)
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 3))
		o := randomObservation(random, rules)
		v := rules.Classify(o, limits, created.Add(time.Duration(random.IntN(5400))*time.Second))
		if v.Cause == None {
			continue
		}
		allowed, capacityType := SKU, o.Offering.CapacityType
		i := slices.IndexFunc(rules.rules, func(r rule) bool { return r.Name == v.Rule })
		switch {
		case i >= 0:
			allowed = rules.rules[i].Breadth
			if rules.rules[i].CapacityType != "" {
				capacityType = rules.rules[i].CapacityType
			}
			if !slices.Contains(rules.rules[i].Providers, o.Provider) {
				t.Fatalf("seed %d: %s does not speak as %q", seed, o.Provider, v.Rule)
			}
		case v.Cause == Misconfigured && o.Class != ClassNotReady && o.Class != ClassMissing:
			t.Fatalf("seed %d: Misconfigured without a word: %+v", seed, v)
		case v.Cause == Misconfigured:
			allowed = Everything
		}
		if slices.Index(widths(), v.Scope.Breadth) > slices.Index(widths(), allowed) {
			t.Fatalf("seed %d: %s is wider than the %s that rule %q says", seed, v.Scope, allowed, v.Rule)
		}
		if v.Scope.CapacityType != capacityType {
			t.Fatalf("seed %d: %s is about %s, rule %q about %s", seed, v.Scope, v.Scope.CapacityType, v.Rule, capacityType)
		}
		if v.Cause == Misconfigured && (v.Cooldown != 0 || v.Fix == "") {
			t.Fatalf("seed %d: Misconfigured with a cooldown or without a fix: %+v", seed, v)
		}
		if zone := v.Scope.Zone; v.Scope.Breadth == OneOffering && zone != o.Offering.Zone && !strings.Contains(everySaid(o), zone) {
			t.Fatalf("seed %d: %s: nobody named that zone", seed, v.Scope)
		}
		if v.Final && !o.isLaunched() && v.Scope.isPartOf(o.Offering) {
			t.Fatalf("seed %d: after %s, the same would be asked for again at once", seed, v.Scope)
		}
	}
}

func everySaid(o Observation) string {
	said := []string{o.Launched.Message}
	for _, note := range o.Noted {
		said = append(said, note.Message)
	}
	for _, event := range o.Events {
		said = append(said, event.Message)
	}
	return strings.Join(said, "\n")
}

// FuzzClassify: the verdict on any message of a cloud can be displayed and stored.
func FuzzClassify(f *testing.F) {
	rules := mustRules(f)
	for _, r := range rules.rules {
		f.Add(string(r.Providers[0]), r.Example.Reason, r.Example.Message, false, int64(30))
	}
	f.Add("karpenter-aws", ice, iceAWS+"\xff\x00\u2028 \"message\\\\\": \\\\\"", true, int64(-5))
	f.Add("", "", `\"message\\"`, true, int64(1<<40))
	f.Fuzz(func(t *testing.T, provider, reason, message string, isGone bool, age int64) {
		o := claim(by(Provider(provider)), says(reason, message), event(0, reason, message), noted(time.Second, reason, message))
		if isGone {
			o.GoneAt = created.Add(time.Duration(age))
		}
		v := rules.Classify(o, limits, created.Add(time.Duration(age)))
		if len(v.Message) > wordsLimit || !utf8.ValidString(v.Message) || v.Message != oneLine(v.Message) {
			t.Errorf("message %q cannot be shown", v.Message)
		}
		if v.Cause == None {
			return
		}
		if parsed, err := ParseScope(v.Scope.String()); err != nil || parsed != v.Scope {
			t.Errorf("scope %+v is read back as %+v, %v", v.Scope, parsed, err)
		}
	})
}
