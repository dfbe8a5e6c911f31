// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The two forms of the providers' generated files, shortened.
const (
	azureForm = `package pricing

import "time"

// generated at 2026-06-18T03:43:41Z

var InitialPriceUpdate, _ = time.Parse(time.RFC3339, "2026-06-18T03:43:41Z")
var initialOnDemandPrices = map[string]map[string]float64{}

func init() {
	// eastus
	initialOnDemandPrices["eastus"] = map[string]float64{
		"Standard_A": 3.673000,
		"Standard_Unsold": 0.000000,
	}
	initialOnDemandPrices["westus"] = map[string]float64{
		"Standard_A": 4,
	}
}
`
	awsForm = `package pricing

// generated at 2026-07-06T14:20:29Z for us-east-1

import ec2types "example.invalid/types"

var InitialOnDemandPricesAWS = map[string]map[ec2types.InstanceType]float64{
	// us-east-1
	"us-east-1": {
		// a1 family
		"a1.large": 0.051000, "a1.metal": 0.408000,
	},
	"us-east-2": {"a1.large": 0.052000},
}
`
)

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadGo(t *testing.T) {
	for _, tc := range []struct {
		reason, text string
		want         table
	}{
		{"an assignment for each region", azureForm, table{
			date:     "2026-06-18",
			onDemand: prices{"Standard_A": {"eastus": 3.673, "westus": 4}},
		}},
		{"one literal", awsForm, table{
			date:     "2026-07-06",
			onDemand: prices{"a1.large": {"us-east-1": 0.051, "us-east-2": 0.052}, "a1.metal": {"us-east-1": 0.408}},
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := readGo(write(t, tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(table{})); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadGoRefuses(t *testing.T) {
	for _, tc := range []struct{ reason, old, replacement, want string }{
		{"no date", "generated at", "made at", `it has no comment "generated at" with a date`},
		{"a price that is computed", "0.052000", "-1.0", `region "us-east-2": an entry is not a machine type and a number`},
		{"a price that is text", "0.052000", `"a"`, `region "us-east-2": a1.large: "a" is no price`},
		{"a list", `"us-east-2": {"a1.large": 0.052000}`, `"us-east-2": {0.052000}`, `region "us-east-2": an entry has no machine type`},
		{"no Go", "0.051000, \"a1.metal\": 0.408000,\n\t},\n\t\"us-east-2\": {\"a1.large\": 0.052000}", "0},", "parsing"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			text := strings.Replace(awsForm, tc.old, tc.replacement, 1)
			if text == awsForm {
				t.Fatalf("%q does not occur", tc.old)
			}
			if _, err := readGo(write(t, text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	const empty = "package p\n\n// generated at 2026-01-01T00:00:00Z\n\nvar prices = fetch()\n"
	if _, err := readGo(write(t, empty)); err == nil || !strings.Contains(err.Error(), "no prices") {
		t.Errorf("a file without prices gives %v", err)
	}
}

func TestReadGCP(t *testing.T) {
	got, err := readGCP(write(t, `{"prices": {"us-central1": {
		"on_demand": {"g2-standard-4": 0.7068322551}, "spot": {"g2-standard-4": 0.397}}}}`), "2026-08-03")
	if err != nil {
		t.Fatal(err)
	}
	want := table{
		date: "2026-08-03", hasSpot: true,
		onDemand: prices{"g2-standard-4": {"us-central1": 0.7068322551}},
		spot:     prices{"g2-standard-4": {"us-central1": 0.397}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(table{})); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	for _, tc := range []struct{ reason, text, date, want string }{
		{"a date that is none", `{"prices": {"r": {}}}`, "August", `-gcp-date "August" is not a date`},
		{"another file", `{"regions": {}}`, "2026-08-03", "holds no prices"},
		{"no JSON", `prices:`, "2026-08-03", "decoding GCP's prices"},
	} {
		if _, err := readGCP(write(t, tc.text), tc.date); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.want)
		}
	}
}

// file is a catalogue file with comments. Its prices are on one line, on several lines, missing, or of a machine that
// the source lacks.
const file = `# A comment with date: "2020-01-01" in it.
cloud: azure
date: "2025-06-03" # the old one
skus:
- name: A
  gpus: 1
  prices: {eastus: 3.5, gone: 1}
  unusable: because
# About B.
- name: B
  vcpus: 4 # a comment
  prices: {eastus: 1,
    westus: 2}
  memoryGiB: 28

- name: C
  vcpus: 4
- name: D
  prices: {eastus: 9}
  spotPrices: {eastus: 4}
`

func TestRewrite(t *testing.T) {
	got, changes, err := rewrite(file, table{date: "2026-06-18", onDemand: prices{
		"A": {"eastus": 3.673},
		"B": {"eastus": 1, "westus": 2.0000001},
		"C": {"eastus": 0.5},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		`date: "2025-06-03" # the old one`, `date: "2026-06-18"`,
		"prices: {eastus: 3.5, gone: 1}", "prices: {eastus: 3.673}",
		"{eastus: 1,\n    westus: 2}", "{eastus: 1, westus: 2}",
		"- name: C\n  vcpus: 4\n", "- name: C\n  vcpus: 4\n  prices: {eastus: 0.5}\n",
		"  prices: {eastus: 9}\n", "",
	).Replace(file)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	wantChanges := []string{
		`date "2025-06-03" # the old one becomes "2026-06-18"`,
		"A: prices: eastus 3.5 becomes 3.673, gone 1 is gone",
		"B: prices: new layout",
		"C: prices: eastus 0.5 is new",
		"D: prices: eastus 9 is gone",
	}
	if diff := cmp.Diff(wantChanges, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	again, changes, err := rewrite(got, table{date: "2026-06-18", onDemand: prices{
		"A": {"eastus": 3.673}, "B": {"eastus": 1, "westus": 2}, "C": {"eastus": 0.5},
	}})
	if err != nil || again != got || len(changes) > 0 {
		t.Errorf("a second run changes %q, error %v, want nothing", changes, err)
	}
}

// Spot prices of a source are written, too, before the reason at the end of an entry.
func TestRewriteSpotPrices(t *testing.T) {
	got, _, err := rewrite("date: \"2026-01-01\"\nskus:\n- name: A\n  gpus: 1\n  unusable: because\n", table{
		date: "2026-01-01", hasSpot: true, onDemand: prices{"A": {"r": 2}}, spot: prices{"A": {"r": 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "date: \"2026-01-01\"\nskus:\n- name: A\n  gpus: 1\n  prices: {r: 2}\n  spotPrices: {r: 1}\n  unusable: because\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestRewriteRefuses(t *testing.T) {
	for _, tc := range []struct{ reason, text, want string }{
		{"no entries", "date: \"2026-01-01\"\n", `it has no entry that begins with "- name: "`},
		{"no date", "skus:\n- name: A\n", `it has no line that begins with "date: "`},
		{"a map over indented lines", "date: \"2026-01-01\"\n- name: A\n  prices:\n    r: 1\n", "A: prices: is not a map in braces"},
		{"a price that is none", "date: \"2026-01-01\"\n- name: A\n  prices: {r: x}\n", `A: r: "x" is no price`},
	} {
		_, _, err := rewrite(tc.text, table{date: "2026-01-01"})
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: error %v, want %q", tc.reason, err, tc.want)
		}
	}
}

// Long maps are broken into lines, and parse reads them again.
func TestRenderBreaksLines(t *testing.T) {
	regions := map[string]float64{}
	for region := range strings.FieldsSeq("australiacentral australiaeast brazilsouth canadacentral eastus westeurope westus") {
		regions[region] = 0.684
	}
	text := render("prices", regions)
	for line := range strings.Lines(text) {
		if len(line) > lineWidth+1 {
			t.Errorf("line of %d characters: %s", len(line), line)
		}
	}
	if strings.Count(text, "\n") != 2 {
		t.Errorf("written over %d lines, want 2:\n%s", strings.Count(text, "\n"), text)
	}
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(regions, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
}

// -check writes nothing and fails on a difference.
func TestCheckWritesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "azure.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	source := table{date: "2026-06-18", onDemand: prices{"A": {"eastus": 3.673}}}
	var out strings.Builder
	differs, err := settings{dir: dir, check: true}.file("azure.yaml", source, &out)
	if err != nil || !differs {
		t.Fatalf("differs %v, error %v, want a difference", differs, err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != file {
		t.Errorf("the file was changed to %q, error %v", after, err)
	}
	if want := "azure.yaml: A: prices: eastus 3.5 becomes 3.673, gone 1 is gone\n"; !strings.Contains(out.String(), want) {
		t.Errorf("said %q, want a line %q", out.String(), want)
	}
	for range 2 { // the second time there is nothing to do
		out.Reset()
		if differs, err = (settings{dir: dir}).file("azure.yaml", source, &out); err != nil {
			t.Fatal(err)
		}
	}
	if differs || out.String() != "azure.yaml: up to date, prices of 2026-06-18\n" {
		t.Errorf("differs %v and said %q after writing", differs, out.String())
	}
}

// The real files have the layout that rewrite expects: it finds every entry.
func TestProductFilesCanBeRewritten(t *testing.T) {
	for _, name := range []string{"azure.yaml", "aws.yaml", "gcp.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../presets/skus", name))
		if err != nil {
			t.Fatal(err)
		}
		got, changes, err := rewrite(string(content), table{date: "2000-01-01", hasSpot: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.Contains(got, "rices: {") || !strings.Contains(got, `date: "2000-01-01"`) {
			t.Errorf("%s: prices or the date survived a source that has none", name)
		}
		if entries := strings.Count(string(content), "\n- name: "); len(changes) < entries/2 {
			t.Errorf("%s: %d changes in %d entries", name, len(changes), entries)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"prices without their date", []string{"-gcp-prices", "f"}, "need each other"},
		{"an unknown flag", []string{"-nope"}, "not defined"},
	} {
		if err := run(t.Context(), tc.args, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.want)
		}
	}
}
