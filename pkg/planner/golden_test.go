// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/presets"
)

// update rewrites the golden files: go test ./pkg/planner -update.
var update = flag.Bool("update", false, "rewrite the golden files")

// TestPlansOfPresets keeps one page per preset with its plans, so that a change of a fact or of a rule
// shows what it changes. Presets that wait for an engine share a page.
func TestPlansOfPresets(t *testing.T) {
	c := realCatalog(t)
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}, Region: "eastus"})
	pages := map[string]string{}
	for _, m := range c.Models() {
		if len(m.Artifacts) == 0 {
			_, err := p.Plan(planner.Request{Model: &m})
			reason, _, _ := strings.Cut(fmt.Sprint(err), "; it serves") // the same list everywhere
			pages["needs-"+m.Needs+".txt"] += reason + "\n"
			continue
		}
		pages[m.Name+".txt"] = page(p, m)
	}
	const dir = "testdata/plans"
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for i := range kept {
		kept[i] = filepath.Base(kept[i])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(pages)), kept); diff != "" {
		t.Errorf("pages, go test ./pkg/planner -update rewrites them (-want +got):\n%s", diff)
	}
	for _, name := range kept {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), pages[name]); diff != "" {
			t.Errorf("%s, go test ./pkg/planner -update rewrites it (-want +got):\n%s", name, diff)
		}
	}
}

// page is the plans of one model on any machine and on three named ones, first without consent to reduced
// precision, then with it.
func page(p *planner.Planner, m model.Model) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s (%s), Azure, East US\n", m.Name, m.HubID)
	consents := [][]string{nil}
	var reduced []string
	for _, a := range m.Artifacts {
		if !a.Native {
			reduced = append(reduced, a.Quantization)
		}
	}
	if len(reduced) > 0 {
		consents = append(consents, reduced)
	}
	for _, consent := range consents {
		for _, machine := range []string{"", "Standard_NC4as_T4_v3", "Standard_NV36ads_A10_v5", "Standard_NC24ads_A100_v4"} {
			heading := "any machine"
			if machine != "" {
				heading = machine
			}
			if len(consent) > 0 {
				heading += ", allowed " + strings.Join(consent, " ")
			}
			fmt.Fprintf(&out, "\n== %s\n", heading)
			plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{
				InstanceType: machine, AllowedQuantizations: consent,
			}})
			writePlan(&out, plan, err)
		}
	}
	return out.String()
}

// writePlan writes everything that a plan says.
func writePlan(out *strings.Builder, plan planner.Plan, err error) {
	if infeasible, ok := errors.AsType[*planner.InfeasibleError](err); ok {
		fmt.Fprintf(out, "%s: %s\n", infeasible.Reason, infeasible.Message)
		return
	}
	if err != nil {
		fmt.Fprintf(out, "error: %v\n", err)
		return
	}
	fmt.Fprintf(out, "%s, %s, %g $/h\n", plan.Summary(), plan.CapacityType, plan.HourlyPrice)
	fmt.Fprintf(out, "%s %s: %d tokens × %d; TP %d, PP %d, DP %d\n", plan.Engine, plan.Artifact.Quantization,
		plan.MaxModelLen, plan.Concurrency, plan.TensorParallel, plan.PipelineParallel, plan.DataParallel)
	m := plan.Memory
	fmt.Fprintf(out, "GiB per GPU: %.3f = %.3f weights + %.3f KV cache + %.3f overhead + %.3f free (%s)\n",
		m.Total, m.Weights, m.KVCache, m.Overhead, m.Free(), m.Basis)
	fmt.Fprintf(out, "requests: %d CPU, %d GiB memory, %d GiB disk\n", plan.CPUs, plan.MemoryGiB, plan.DiskGiB)
	for _, w := range plan.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	for _, v := range plan.Alternatives {
		fmt.Fprintf(out, "alternative: %d × %s: %s\n", v.Nodes, v.InstanceType, v.Reason)
	}
	for _, v := range plan.Rejected {
		fmt.Fprintf(out, "rejected: %d × %s: %s\n", v.Nodes, v.InstanceType, v.Reason)
	}
}

// The local cloud's tiny model goes to the cheapest machine, and to a named one; tests and the demo
// count on both.
func TestPlansOfLocalCatalog(t *testing.T) {
	c, err := catalog.Load(presets.FS(), os.DirFS("../../examples/local-catalog"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.ResolveModel("tiny-chat")
	if err != nil {
		t.Fatal(err)
	}
	p := planner.New(c, planner.Settings{Clouds: []string{"azure"}})
	for instanceType, want := range map[string]string{
		"":                         "1 × Standard_NC4as_T4_v3 (1 × T4)",
		"standard_nc24ads_a100_V4": "1 × Standard_NC24ads_A100_v4 (1 × A100-80)",
	} {
		plan, err := p.Plan(planner.Request{Model: &m, Constraints: planner.Constraints{InstanceType: instanceType}})
		if err != nil || plan.Summary() != want || len(plan.Warnings) > 0 {
			t.Errorf("instance type %q: %s, warnings %q, error %v, want %s", instanceType, plan.Summary(), plan.Warnings, err, want)
		}
	}
}
