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

// referenceMachines are the machines on every preset's page.
func referenceMachines() []string {
	return []string{
		"Standard_NC4as_T4_v3", "Standard_NV36ads_A10_v5", "g6.12xlarge", "g6e.xlarge", "Standard_NC24ads_A100_v4",
		"Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4", "Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5",
		"Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5", "p6-b200.48xlarge",
	}
}

// TestPlansOfPresets keeps a page of plans per preset, so that a review shows the effect of a changed fact or rule.
func TestPlansOfPresets(t *testing.T) {
	c := realCatalog(t)
	pages := map[string]string{}
	for _, m := range c.Models() {
		pages[m.Name+".txt"] = page(c, m)
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

// page returns the plans of one model for each engine that supports it: on any machine of Azure in East US, and on each
// reference machine.
func page(c *catalog.Catalog, m model.Model) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s (%s)\n", m.Name, m.HubID)
	var engines []string
	for _, a := range m.Artifacts {
		if !slices.Contains(engines, a.Engine) {
			engines = append(engines, a.Engine)
		}
	}
	azure := planner.New(c, planner.Settings{Clouds: []string{"azure"}, Region: "eastus"})
	anywhere := planner.New(c, planner.Settings{})
	for _, engine := range engines {
		var reduced []string
		for _, a := range m.Artifacts {
			if a.Engine == engine && !a.Native && !slices.Contains(reduced, a.Quantization) {
				reduced = append(reduced, a.Quantization)
			}
		}
		fmt.Fprintf(&out, "\n== %s, any machine of Azure in East US\n", engine)
		plan, err := azure.Plan(planner.Request{Model: &m, Engine: engine})
		writePlan(&out, plan, err)
		writeRejected(&out, plan)
		if len(reduced) > 0 {
			fmt.Fprintf(&out, "\n== %s, the same, allowed %s\n", engine, strings.Join(reduced, " "))
			plan, err := azure.Plan(planner.Request{Model: &m, Engine: engine, Constraints: planner.Constraints{AllowedQuantizations: reduced}})
			writePlan(&out, plan, err)
		}
		for _, machine := range referenceMachines() {
			fmt.Fprintf(&out, "\n== %s on %s\n", engine, machine)
			plan, err := anywhere.Plan(planner.Request{Model: &m, Engine: engine, Constraints: planner.Constraints{InstanceType: machine}})
			writeOn(&out, plan, err)
		}
	}
	return out.String()
}

// writeOn writes a short plan on a named machine type.
func writeOn(out *strings.Builder, plan planner.Plan, err error) {
	if err != nil {
		fmt.Fprintf(out, "%s\n", err)
		return
	}
	m := plan.Memory
	fmt.Fprintf(out, "%s, TP %d, PP %d, DP %d: %d tokens × %d; %.2f weights + %.2f KV cache + %.2f overhead + %.2f free GiB\n",
		plan.Summary(), plan.TensorParallel, plan.PipelineParallel, plan.DataParallel, plan.MaxModelLen, plan.Concurrency,
		m.Weights, m.KVCache, m.Overhead, m.Free())
	if p := plan.Performance; p != nil {
		fmt.Fprintf(out, "%g ms to the first token, %g ms per token, %g tokens/s, %g $ per million\n",
			p.TTFTMillis, p.TPOTMillis, p.OutputTokensPerSecond, p.PricePerMillion)
	}
	for _, w := range plan.Warnings {
		first, _, _ := strings.Cut(w, ": to require the usual target, set inference.objectives")
		first, _, _ = strings.Cut(first, ": to enforce the limit, set inference.objectives")
		fmt.Fprintf(out, "warning: %s\n", first)
	}
}

// writePlan writes a plan without its rejections.
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
	fmt.Fprintf(out, "%s of %s, TP %d, PP %d, DP %d: %d tokens × %d", plan.Artifact.Quantization, plan.Artifact.Repo,
		plan.TensorParallel, plan.PipelineParallel, plan.DataParallel, plan.MaxModelLen, plan.Concurrency)
	if plan.MaxNumSeqs > 0 {
		fmt.Fprintf(out, "; max-num-seqs %d, utilization %.2f, %d tokens of KV cache", plan.MaxNumSeqs, plan.GPUMemoryUtilization,
			plan.KVCacheTokens)
	}
	m := plan.Memory
	fmt.Fprintf(out, "\nGiB per GPU: %.3f = %.3f weights + %.3f KV cache + %.3f overhead + %.3f free (%s)\n",
		m.Total, m.Weights, m.KVCache, m.Overhead, m.Free(), m.Basis)
	if p := plan.Performance; p != nil {
		fmt.Fprintf(out, "at %d in, %d out, %d at once: %g ms to the first token, %g ms per token, %g tokens/s, %g $ per million (%s)\n",
			p.InputTokens, p.OutputTokens, p.Concurrency, p.TTFTMillis, p.TPOTMillis, p.OutputTokensPerSecond, p.PricePerMillion, p.Basis)
	}
	fmt.Fprintf(out, "requests: %d CPU, %d GiB memory, %d GiB disk\n", plan.CPUs, plan.MemoryGiB, plan.DiskGiB)
	for _, w := range plan.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	for _, a := range plan.Advice {
		fmt.Fprintf(out, "advice: %s\n", a)
	}
	for _, v := range plan.Alternatives {
		fmt.Fprintf(out, "alternative: %d × %s: %s\n", v.Nodes, v.InstanceType, v.Reason)
	}
}

// writeRejected writes a plan's rejections, without those that every model has.
func writeRejected(out *strings.Builder, plan planner.Plan) {
	for _, v := range plan.Rejected {
		if !strings.HasPrefix(v.Reason, "cannot be bought") {
			fmt.Fprintf(out, "rejected: %d × %s: %s\n", v.Nodes, v.InstanceType, v.Reason)
		}
	}
}

// The local cloud's tiny model gets the cheapest machine, or a named one. Other tests and the demo rely on both.
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
