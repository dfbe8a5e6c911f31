// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/planner"
)

// A rate of requests is a load. The plan is the cheapest hour that keeps up with some capacity to spare, or the error
// names a number of replicas.
func TestRates(t *testing.T) {
	for _, tc := range []struct {
		reason      string
		rate        float64
		machine     string
		machines    []string
		want        string
		advice, not string
	}{
		{reason: "few requests take the cheapest machine of known speed", rate: 0.05, want: "1 × Dull (1 × Dull), TP 1 PP 1 DP 1"},
		{reason: "more take a faster one", rate: 3, want: "1 × Swift (1 × Swift), TP 1 PP 1 DP 1"},
		{
			reason: "still more take copies, and advice has the machines side by side that cost much less", rate: 40,
			want:   "1 × Swifts (4 × Swift), TP 1 PP 1 DP 4",
			advice: `an InferenceSet of 2 replicas with inference.objectives.requestsPerSecond: "20" serves the load on Swift ($3.00/h) each, $6.00/h in all, instead of $12.00/h`,
		},
		{
			reason: "they are not advised where they cost as much", rate: 20, machines: []string{"Dull", "Swifts"},
			want: "1 × Swifts (4 × Swift), TP 1 PP 1 DP 4", not: "an InferenceSet",
		},
		{
			reason: "too many for any machine", rate: 1500,
			want: "DoesNotFit: chat works on none of the 4 machine types allowed; the largest, Swifts: does not keep up with 1500 requests " +
				`per second; an InferenceSet of 14 replicas with inference.objectives.requestsPerSecond: "107.15" serves the load on Swifts ($12.00/h) each, $168.00/h in all`,
		},
		{
			reason: "a machine that is named must keep up too", rate: 30, machine: "Dull",
			want: "DoesNotFit: chat on Dull: does not keep up with 30 requests per second; an InferenceSet of 6 replicas with " +
				`inference.objectives.requestsPerSecond: "5" serves the load on Dull ($2.00/h) each, $12.00/h in all`,
		},
		{
			reason: "a machine of unknown speed keeps up with nothing", rate: 0.01, machine: "Dark",
			want: "DoesNotFit: chat on Dark: its speed is not known, and inference.objectives.requestsPerSecond depends on it; " +
				"Dull ($2.00/h) is suitable",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			r := planner.Request{
				Objectives:  planner.Objectives{RequestsPerSecond: tc.rate},
				Constraints: planner.Constraints{InstanceType: tc.machine, InstanceTypes: tc.machines},
			}
			plan, err := ask(t, city(t), r)
			if diff := cmp.Diff(tc.want, answer(plan, err)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if tc.advice != "" && !slices.Contains(plan.Advice, tc.advice) {
				t.Errorf("advice %q, want %q", plan.Advice, tc.advice)
			}
			if tc.not != "" && slices.ContainsFunc(plan.Advice, func(a string) bool { return strings.HasPrefix(a, tc.not) }) {
				t.Errorf("advice %q", plan.Advice)
			}
			if err != nil {
				return
			}
			p := plan.Performance
			inFlight := tc.rate * (p.TTFTMillis + 256*p.TPOTMillis) / 1e3
			if p.RequestsPerSecond != tc.rate || p.OutputTokensPerSecond < 255*tc.rate || float64(p.Concurrency) < 0.99*inFlight || float64(p.Concurrency) > inFlight+1.5 {
				t.Errorf("performance %+v, want %g requests/s and %.1f in flight", p, tc.rate, inFlight)
			}
		})
	}
}

// The replicas that an error suggests do serve the load.
func TestReplicasOfARefusalKeepUp(t *testing.T) {
	c := realCatalog(t)
	for _, name := range []string{"llama-3.1-8b-instruct", "gpt-oss-120b", "qwen3-32b"} {
		m, err := c.ResolveModel(name)
		if err != nil {
			t.Fatal(err)
		}
		p := planner.New(c, planner.Settings{Clouds: []string{"azure"}})
		_, err = p.Plan(planner.Request{Model: &m, Objectives: planner.Objectives{RequestsPerSecond: 900}})
		if err == nil || !strings.Contains(err.Error(), "an InferenceSet of ") {
			t.Errorf("%s: %v, want replicas", name, err)
		}
	}
}

// The set for a rate costs no more than sets of other machine types, whose layouts for a larger part of the rate may keep
// up with more requests than those for a few.
func TestReplicasForARateCostLeast(t *testing.T) {
	const rate = 300.0
	words := regexp.MustCompile(`an InferenceSet of (\d+) replicas .*? serves the load on (\S+) \(\$([\d.]+)/h\) each`)
	m, err := realCatalog(t).ResolveModel("gpt-oss-120b")
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(realCatalog(t), planner.Settings{Clouds: []string{"azure"}})
	_, err = p.Plan(planner.Request{Model: &m, Objectives: planner.Objectives{RequestsPerSecond: rate}})
	found := words.FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatalf("%v, want replicas", err)
	}
	replicas, _ := strconv.Atoi(found[1])
	price, _ := strconv.ParseFloat(found[3], 64)
	for _, other := range []string{"Standard_NC24ads_A100_v4", "Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4", "Standard_NC40ads_H100_v5"} {
		for _, part := range []float64{1, 2, 5, 10.5, 20, 40} {
			plan, err := p.Plan(planner.Request{
				Model: &m, Objectives: planner.Objectives{RequestsPerSecond: part},
				Constraints: planner.Constraints{InstanceTypes: []string{other}},
			})
			if total := math.Ceil(rate/part) * plan.HourlyPrice; err == nil && total < float64(replicas)*price-0.01 {
				t.Errorf("%v for %g requests/s each cost $%.2f/h in all on %s, less than %d × $%.2f on %s", math.Ceil(rate/part), part, total,
					other, replicas, price, found[2])
			}
		}
	}
}

// A load beyond one deployment is answered with replicas that keep the precision, before fewer bits.
func TestReplicasComeBeforeFewerBits(t *testing.T) {
	m, err := realCatalog(t).ResolveModel("llama-3.1-8b-instruct")
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(realCatalog(t), planner.Settings{Clouds: []string{"aws"}})
	_, err = p.Plan(planner.Request{Model: &m, Objectives: planner.Objectives{RequestsPerSecond: 300}})
	if err == nil {
		t.Fatal("one deployment keeps up with 300 requests per second")
	}
	set, bits := strings.Index(err.Error(), "an InferenceSet of "), strings.Index(err.Error(), "allowedQuantizations: [")
	if set < 0 || bits < set {
		t.Errorf("%v; want replicas, and then fewer bits", err)
	}
}
