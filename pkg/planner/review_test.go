// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
)

// review has a reviewer's verdicts on plans.
type review struct {
	// Changes of the planner by name, with the fault that each one removed.
	Changes []struct{ Name, Was string } `json:"changes"`
	Plans   []judged                     `json:"plans"`
}

// judged is one plan with the reviewer's verdict.
type judged struct {
	Model, Cloud string
	Objectives   struct {
		MaxModelLen, Concurrency             int
		OptimizeFor                          v1beta1.OptimizeFor
		TimeToFirstToken, TimePerOutputToken metav1.Duration
	}
	// Machine is the summary of the plan at the time of the review.
	Machine string
	Verdict string
	Changed []string
}

// asked returns the objectives of a judged plan as text.
func (j *judged) asked() string {
	var out []string
	o := &j.Objectives
	add := func(name, value string, set bool) {
		if set {
			out = append(out, fmt.Sprintf("`%s: %s`", name, value))
		}
	}
	add("maxModelLen", fmt.Sprint(o.MaxModelLen), o.MaxModelLen > 0)
	add("concurrency", fmt.Sprint(o.Concurrency), o.Concurrency > 0)
	add("timeToFirstToken", o.TimeToFirstToken.Duration.String(), o.TimeToFirstToken.Duration > 0)
	add("timePerOutputToken", o.TimePerOutputToken.Duration.String(), o.TimePerOutputToken.Duration > 0)
	add("optimizeFor", string(o.OptimizeFor), o.OptimizeFor != "")
	return strings.Join(out, ", ")
}

// TestReviewedPlans keeps docs/plans.md: the current plans with their verdicts. It fails if a plan has other machines
// than at its review: review it again.
func TestReviewedPlans(t *testing.T) {
	const from, page = "testdata/review.yaml", "../../docs/plans.md"
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var r review
	if err := yaml.UnmarshalStrict(data, &r); err != nil {
		t.Fatal(err)
	}
	got := r.page(t)
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/plans.md, go test ./pkg/planner -update rewrites it (-want +got):\n%s", diff)
	}
}

// page returns the review as a page.
func (r *review) page(t *testing.T) string {
	t.Helper()
	var out, aimed strings.Builder
	models := map[string]bool{}
	c := realCatalog(t)
	for i := range r.Plans {
		j := &r.Plans[i]
		models[j.Model] = true
		m, err := c.ResolveModel(j.Model)
		if err != nil {
			t.Fatal(err)
		}
		o := j.Objectives
		plan, err := planner.New(c, planner.Settings{Clouds: []string{j.Cloud}, NoRDMA: true}).Plan(planner.Request{Model: &m, Objectives: planner.Objectives{
			MaxModelLen: o.MaxModelLen, Concurrency: o.Concurrency, OptimizeFor: o.OptimizeFor,
			TimeToFirstToken: o.TimeToFirstToken.Duration, TimePerOutputToken: o.TimePerOutputToken.Duration,
		}})
		if err != nil {
			t.Fatalf("%s on %s: %v", j.Model, j.Cloud, err)
		}
		if plan.Summary() != j.Machine {
			t.Errorf("%s on %s %s: planned %s, judged %s: judge the plan again and write the verdict to testdata/review.yaml",
				j.Model, j.Cloud, j.asked(), plan.Summary(), j.Machine)
		}
		r.check(t, j)
		if asked := j.asked(); asked != "" {
			fmt.Fprintf(&aimed, "| %s | %s | %s %s\n", j.Model, j.Cloud, asked+" |", j.row(&plan))
			continue
		}
		fmt.Fprintf(&out, "| %s | %s %s\n", j.Model, j.Cloud+" |", j.row(&plan))
	}
	if len(models) < 40 {
		t.Errorf("%d models, want 40", len(models))
	}
	const figures = "machines | $/h | $/M tokens | first token, further tokens | verdict | changed |\n"
	return r.head() + "## Defaults\n\n| model | cloud | " + figures + "|---|---|---|---|---|---|---|---|\n" + out.String() +
		"\n## With objectives\n\n| model | cloud | objectives | " + figures + "|---|---|---|---|---|---|---|---|---|\n" + aimed.String()
}

// check fails the test if a judged plan names a change outside the list of changes, or has no verdict.
func (r *review) check(t *testing.T, j *judged) {
	t.Helper()
	for _, name := range j.Changed {
		if !slices.ContainsFunc(r.Changes, func(c struct{ Name, Was string }) bool { return c.Name == name }) {
			t.Errorf("%s on %s: change %q is not in the list", j.Model, j.Cloud, name)
		}
	}
	if j.Verdict == "" {
		t.Errorf("%s on %s has no verdict", j.Model, j.Cloud)
	}
}

// row returns the figures of a plan and its verdict as a row of a table.
func (j *judged) row(plan *planner.Plan) string {
	p := plan.Performance
	return fmt.Sprintf("%s | %.2f | %g | %s, %s | %s | %s |", plan.Summary(), plan.HourlyPrice, p.PricePerMillion,
		rounded(p.TTFTMillis), rounded(p.TPOTMillis), j.Verdict, strings.Join(j.Changed, ", "))
}

func rounded(millis float64) string {
	return (time.Duration(millis*10) * time.Millisecond / 10).String()
}

// head returns the beginning of the page.
func (r *review) head() string {
	var out strings.Builder
	fmt.Fprintf(&out, `# Plans under review

How good are the plans? This page has %d of them, for well-known models on three clouds in their reference regions, with the default settings of `+"`kubectl berth plan`"+`. For each, a reviewer read the plan with its alternatives and advice, and compared the prices. "Right" in the column "verdict" means that no other machine of the region is clearly better for the objectives. [How a plan is made](planning.md) has the rules.

A test keeps the page up to date: `+"`go test ./pkg/planner -run Reviewed -update`"+` writes the figures of this version. The test fails if a plan has other machines than at its review, until somebody judges the plan again in `+"`pkg/planner/testdata/review.yaml`"+`.

## What the review changed

The review found faults of the planner, which are fixed. The column "changed" of the tables below names the fixes that changed a plan or its advice:

| name | fault, and the rule now |
|---|---|
`, len(r.Plans))
	for _, c := range r.Changes {
		fmt.Fprintf(&out, "| %s | %s |\n", c.Name, c.Was)
	}
	return out.String() + "\n"
}
