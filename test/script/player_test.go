// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswerByOffer(t *testing.T) {
	offer := Offer{SKU: "Standard_NC24ads_A100_v4", Zone: "eastus-1", CapacityType: "spot"}
	for _, test := range []struct {
		reason string
		rules  []Rule
		want   Outcome
	}{
		{reason: "without rules everything is sold", want: Accept},
		{reason: "an empty rule is for everything", rules: []Rule{{Outcome: NoCapacity}}, want: NoCapacity},
		{reason: "every field that is given must match", rules: []Rule{{SKU: offer.SKU, Zone: "eastus-1", CapacityType: "spot", Outcome: Quota}}, want: Quota},
		{reason: "patterns", rules: []Rule{{SKU: "Standard_NC*_A100_v4", Zone: "eastus-[12]", CapacityType: "sp?t", Outcome: Quota}}, want: Quota},
		{reason: "a pattern is for the whole name", rules: []Rule{{SKU: "NC", Outcome: Quota}}, want: Accept},
		{reason: "another type", rules: []Rule{{SKU: "B", Outcome: Quota}}, want: Accept},
		{reason: "another zone", rules: []Rule{{Zone: "eastus-2", Outcome: Quota}}, want: Accept},
		{reason: "another way of selling", rules: []Rule{{CapacityType: "on-demand", Outcome: Quota}}, want: Accept},
		{reason: "the first match counts", rules: []Rule{{Zone: "eastus-1", Outcome: Hang}, {Outcome: Quota}}, want: Hang},
		{reason: "so an exception stands before the rule", rules: []Rule{{CapacityType: "spot", Outcome: Accept}, {Outcome: Quota}}, want: Accept},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got := NewPlayer(Script{Rules: test.rules}).Answer(Request{Offer: offer})
			if got.Rule.Outcome != test.want {
				t.Errorf("got %q, want %q", got.Rule.Outcome, test.want)
			}
		})
	}
}

// attempts plays requests "CLAIM/ATTEMPT" and notes the outcome of each.
func attempts(p *Player, requests string) string {
	var out []string
	for request := range strings.FieldsSeq(requests) {
		claim, _, _ := strings.Cut(request, "/")
		answer := p.Answer(Request{Claim: claim, Attempt: request})
		said := string(answer.Rule.Outcome)
		if answer.Rule.Outcome.Refuses() {
			said += "," + string(answer.Refusal.Ending)
		}
		out = append(out, said)
	}
	return strings.Join(out, " ")
}

func TestAnswerCounts(t *testing.T) {
	twice := []Rule{{Times: 2, Outcome: NoCapacity}}
	for _, test := range []struct {
		reason   string
		script   Script
		requests string
		want     string
		counts   []Count
	}{
		{
			"the first ones are refused, then it heals",
			Script{Rules: twice},
			"a/1 b/1 c/1 d/1",
			"noCapacity,delete noCapacity,delete accept accept",
			[]Count{{4, 2}},
		},
		{
			"an attempt counts once, however many zones it tries",
			Script{Rules: twice},
			"a/1 a/1 a/1 b/1 c/1",
			"noCapacity,delete noCapacity,delete noCapacity,delete noCapacity,delete accept",
			[]Count{{3, 2}},
		},
		{
			"an attempt that was let pass stays so",
			Script{Rules: []Rule{{Skip: 1, Outcome: Hang}}},
			"a/1 b/1 a/1 b/1",
			"accept hang accept hang",
			[]Count{{2, 1}},
		},
		{
			"bursts",
			Script{Rules: []Rule{{Skip: 1, Times: 2, Outcome: APIError}, {Skip: 2, Times: 1, Outcome: APIError}}},
			"a/1 a/2 a/3 a/4 a/5 a/6 a/7",
			"accept apiError,error apiError,error accept apiError,error accept accept",
			[]Count{{7, 2}, {5, 1}},
		},
		{
			"an outcome for each machine in turn",
			Script{Rules: []Rule{{Times: 1, Outcome: NoGPUs}, {Times: 1, Outcome: NeverRegisters}}},
			"a/1 b/1 c/1",
			"noGPUs neverRegisters accept",
			[]Count{{3, 1}, {2, 1}},
		},
		{
			"Azure remembers its refusal: the claim that asks again is deleted, and does not count again",
			Script{Cloud: Azure, Rules: []Rule{{Times: 1, Outcome: Quota}}},
			"a/1 a/1 a/2 b/1",
			"quota,keep quota,keep quota,delete accept",
			[]Count{{2, 1}},
		},
		{
			"gpu-provisioner asks for ever",
			Script{Cloud: GPUProvisioner, Rules: []Rule{{Outcome: Quota}}},
			"a/1 a/2 a/3",
			"quota,error quota,error quota,error",
			[]Count{{3, 3}},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			player := NewPlayer(test.script)
			if diff := cmp.Diff(test.want, attempts(player, test.requests)); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			_, counts := player.State()
			if diff := cmp.Diff(test.counts, counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlayCountsAnewWithEachEdition(t *testing.T) {
	once := Script{Rules: []Rule{{Times: 1, Outcome: Hang}}}
	player := &Player{}
	var got []string
	for i, edition := range []string{"", "1", "1", "1", "2", "2"} {
		s := once
		if edition == "" {
			s = Script{}
		}
		player.Play(s, edition)
		got = append(got, attempts(player, fmt.Sprintf("c%d/1", i)))
	}
	if diff := cmp.Diff([]string{"accept", "hang", "accept", "accept", "hang", "accept"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}
