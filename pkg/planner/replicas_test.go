// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/planner"
)

// If a load is too large for one deployment, the error suggests several, not one request at a time.
func TestLoadBeyondOneDeployment(t *testing.T) {
	w := city(t)
	w.SKUs = w.SKUs[:1]
	for _, tc := range []struct {
		reason      string
		concurrency int
		want        string
	}{
		{"a little more than two machines hold", 150, "; an InferenceSet of 4 replicas with inference.objectives.concurrency: 38 serves the load on Swift ($3.00/h) each, $12.00/h in all"},
		{"many times that", 3000, "; an InferenceSet of 67 replicas with inference.objectives.concurrency: 45 serves the load on Swift ($3.00/h) each, $201.00/h in all"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := ask(t, w, planner.Request{Objectives: planner.Objectives{Concurrency: tc.concurrency, MaxModelLen: 8192}})
			if err == nil {
				t.Fatal("one deployment holds it")
			}
			got := regexp.MustCompile(`; an InferenceSet.*`).FindString(err.Error())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("way out of %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The error names the machine type whose replicas cost least in all, whatever one sequence costs on it. Replicas on one
// machine come before replicas on several. The parts of the load add up to the whole.
func TestReplicasThatCostLeast(t *testing.T) {
	c := realCatalog(t)
	words := regexp.MustCompile(`an InferenceSet of (\d+) replicas with inference.objectives.concurrency: (\d+) serves the load on (\S+) \(\$([\d.]+)/h\) each`)
	for name, asked := range map[string]int{"llama-3.1-8b-instruct": 200_000, "llama-3.3-70b-instruct": 100_000, "gpt-oss-120b": 60_000} {
		m, err := c.ResolveModel(name)
		if err != nil {
			t.Fatal(err)
		}
		p := planner.New(c, planner.Settings{Clouds: []string{"azure"}})
		_, err = p.Plan(planner.Request{Model: &m, Objectives: planner.Objectives{Concurrency: asked, MaxModelLen: 8192}})
		if err == nil {
			t.Fatalf("%s: one deployment holds %d", name, asked)
		}
		found := words.FindStringSubmatch(err.Error())
		if found == nil {
			t.Errorf("%s: %v, want replicas of one machine", name, err)
			continue
		}
		replicas, _ := strconv.Atoi(found[1])
		part, _ := strconv.Atoi(found[2])
		price, _ := strconv.ParseFloat(found[4], 64)
		if replicas*part < asked {
			t.Errorf("%s: %d replicas of %d hold fewer than %d", name, replicas, part, asked)
		}
		for _, other := range []string{"Standard_NC24ads_A100_v4", "Standard_NC96ads_A100_v4", "Standard_ND96amsr_A100_v4"} {
			one := planner.Request{
				Model: &m, Objectives: planner.Objectives{Concurrency: part, MaxModelLen: 8192},
				Constraints: planner.Constraints{InstanceTypes: []string{other}},
			}
			if plan, err := p.Plan(one); err == nil && plan.Nodes == 1 && plan.HourlyPrice < price-0.01 {
				t.Errorf("%s: %s holds %d for $%.2f/h, %s costs $%.2f/h", name, other, part, plan.HourlyPrice, found[3], price)
			}
		}
		one := planner.Request{
			Model: &m, Objectives: planner.Objectives{Concurrency: part, MaxModelLen: 8192},
			Constraints: planner.Constraints{InstanceTypes: []string{found[3]}},
		}
		if _, err := p.Plan(one); err != nil {
			t.Errorf("%s: a replica does not serve its part: %v", name, err)
		}
	}
}
