// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

// An expert objects to a plan for one of three reasons. It passes over an option for little more per hour and much less
// per token. It takes two machines although one costs little more. Or it keeps a floor by less than the error of its
// figures.
const (
	littleDearer = 1.25
	muchCheaper  = 1.3
	usualTTFT    = 5000
	usualTPOT    = 100
)

// soundness counts the expert's objections.
type soundness struct {
	plans, dominated, split, close int
}

// count judges one plan.
func (s *soundness) count(plan *planner.Plan) (objections []string) {
	s.plans++
	verdicts := slices.Concat(plan.Alternatives, plan.Rejected)
	if better := dominating(plan, verdicts); better != nil {
		s.dominated++
		objections = append(objections, fmt.Sprintf("%s at $%.2f/h and $%.2f/M is dominated by %d × %s at $%.2f/h and $%.2f/M", plan.Summary(),
			plan.HourlyPrice, plan.Performance.PricePerMillion, better.Nodes, better.InstanceType, better.HourlyPrice, better.Performance.PricePerMillion))
	}
	if single := singleMachine(plan, verdicts); single != nil {
		s.split++
		objections = append(objections, fmt.Sprintf("%s at $%.2f/h, and %s holds it at $%.2f/h", plan.Summary(), plan.HourlyPrice,
			single.InstanceType, single.HourlyPrice))
	}
	if p := plan.Performance; p != nil && (p.TPOTMillis > kept(p.Basis)*usualTPOT || p.TTFTMillis > kept(p.Basis)*usualTTFT) {
		s.close++
		objections = append(objections, fmt.Sprintf("%s: %.0f ms to the first token, %.0f ms per token (%s)", plan.Summary(), p.TTFTMillis, p.TPOTMillis, p.Basis))
	}
	return objections
}

// kept returns the part of a floor that figures may use.
func kept(basis v1beta1.Basis) float64 {
	if basis == v1beta1.BasisEstimated {
		return 0.8
	}
	return 0.95
}

// dominating returns an option for little more per hour and much less per token.
func dominating(plan *planner.Plan, verdicts []planner.Verdict) *planner.Verdict {
	if plan.Performance == nil || plan.HourlyPrice < 0 {
		return nil
	}
	var best *planner.Verdict
	for i := range verdicts {
		v := &verdicts[i]
		if v.Performance == nil || v.HourlyPrice < 0 || v.HourlyPrice > littleDearer*plan.HourlyPrice ||
			v.Performance.PricePerMillion*muchCheaper > plan.Performance.PricePerMillion {
			continue
		}
		if best == nil || v.Performance.PricePerMillion < best.Performance.PricePerMillion {
			best = v
		}
	}
	return best
}

// singleMachine returns an option with one machine in place of the plan's several, for little more.
func singleMachine(plan *planner.Plan, verdicts []planner.Verdict) *planner.Verdict {
	if plan.Nodes < 2 {
		return nil
	}
	for i := range verdicts {
		v := &verdicts[i]
		if v.Performance != nil && v.Nodes == 1 && v.HourlyPrice >= 0 && v.HourlyPrice < littleDearer*plan.HourlyPrice {
			return v
		}
	}
	return nil
}

// loads returns the loads to plan for every preset on every cloud.
func loads() []planner.Objectives {
	return []planner.Objectives{{}, {Concurrency: 16}}
}

// TestPlansOfCatalogueAreSound plans every preset on every cloud, and applies an expert's standard to the plans.
func TestPlansOfCatalogueAreSound(t *testing.T) {
	c := realCatalog(t)
	var all soundness
	for _, cloud := range []string{"azure", "aws", "gcp"} {
		p, of := planner.New(c, planner.Settings{Clouds: []string{cloud}, NoRDMA: true}), soundness{}
		for _, m := range c.Models() {
			for _, load := range loads() {
				plan, err := p.Plan(planner.Request{Model: &m, Objectives: load})
				if _, none := errors.AsType[*planner.InfeasibleError](err); none {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, objection := range of.count(&plan) {
					t.Logf("%s, %s, %d at once: %s", m.Name, cloud, load.Concurrency, objection)
				}
			}
		}
		t.Logf("figure: decisions on %s %s", cloud, of)
		all = soundness{all.plans + of.plans, all.dominated + of.dominated, all.split + of.split, all.close + of.close}
	}
	t.Logf("figure: decisions %s", all)
	if all.plans < 700 || 20*all.dominated > all.plans || all.split > 0 || all.close > 0 {
		t.Errorf("decisions %s; at most 5 %%, none and none are allowed", all)
	}
}

// String returns the figures for the test's log.
func (s soundness) String() string {
	return fmt.Sprintf("of %d plans: %d (%.0f %%) pass over an option at most 25 %% dearer and 1.3 × cheaper by the token, %d take several "+
		"machines where one costs less than 25 %% more, %d are within the margin of a floor",
		s.plans, s.dominated, 100*float64(s.dominated)/float64(max(s.plans, 1)), s.split, s.close)
}
