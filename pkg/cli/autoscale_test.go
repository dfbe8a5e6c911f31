// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scaledSet = `apiVersion: kaito.sh/v1beta1
kind: InferenceSet
metadata: {name: chat}
spec:
  autoscaling: {minReplicas: 1, maxReplicas: 6, targets: [{metric: RequestsInFlight, value: "4"}]}
  template: {inference: {preset: {name: small}}}
`

// simulated writes a set and a trace of 20 minutes to files.
func simulated(t *testing.T, set string) (setFile, trace string) {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("time,input,output\n")
	for i := range 240 {
		fmt.Fprintf(&rows, "%d,500,200\n", i*5)
	}
	setFile, trace = filepath.Join(dir, "set.yaml"), filepath.Join(dir, "requests.csv")
	for file, text := range map[string]string{setFile: set, trace: rows.String()} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return setFile, trace
}

// TestSimulate replays a trace from a file, and checks the whole output.
func TestSimulate(t *testing.T) {
	set, trace := simulated(t, scaledSet)
	drawing := filepath.Join(t.TempDir(), "replicas.svg")
	rows, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	got := process{stdin: string(rows)}.run(t, "autoscale", "simulate", "-f", set, "--trace", "-", "--start-up", "1m", "--svg", drawing)
	if got.Code != 0 {
		t.Fatalf("code %d: %s", got.Code, got.Err)
	}
	golden(t, "testdata/golden/simulate.txt", got.Out)
	svg, err := os.Open(drawing)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = svg.Close() }() // it was read only
	decoder := xml.NewDecoder(svg)
	paths := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the drawing is not XML: %v", err)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "path" {
			paths++
		}
	}
	if paths < 4 {
		t.Errorf("the drawing has %d lines", paths)
	}
}

// TestSimulateData compares the rules in the JSON output. The clairvoyant schedule is the cheapest, and reaches the
// goal.
func TestSimulateData(t *testing.T) {
	set, trace := simulated(t, scaledSet)
	got := run(t, "autoscale", "simulate", "-f", set, "--trace", trace, "-o", "json")
	var data struct {
		WorkBoundDollars float64
		Rules            []struct {
			Rule        string
			Dollars     float64
			GoalReached bool
		}
	}
	if err := json.Unmarshal([]byte(got.Out), &data); err != nil {
		t.Fatalf("%v: %s", err, got.Err)
	}
	if len(data.Rules) != 4 {
		t.Fatalf("%d rules, want this policy, two others, and the clairvoyant one: %s", len(data.Rules), got.Out)
	}
	best := data.Rules[3]
	if best.Rule != "clairvoyant" || !best.GoalReached || best.Dollars < data.WorkBoundDollars {
		t.Errorf("%+v, with a bound of %v", best, data.WorkBoundDollars)
	}
	for _, rule := range data.Rules[:3] {
		if rule.GoalReached && rule.Dollars < best.Dollars-0.02 {
			t.Errorf("%s reaches the goal for $%v, and the search found $%v", rule.Rule, rule.Dollars, best.Dollars)
		}
	}
}

func TestSimulateRefuses(t *testing.T) {
	set, trace := simulated(t, scaledSet)
	with := func(old, replacement string) string {
		t.Helper()
		file, _ := simulated(t, strings.Replace(scaledSet, old, replacement, 1))
		return file
	}
	for reason, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":           {[]string{"--trace", trace}, "name a manifest with -f"},
		"no trace":          {[]string{"-f", set}, "name a CSV file with --trace, or bursty, diurnal or long-tail"},
		"no such trace":     {[]string{"-f", set, "--trace", "weekly"}, "the generated ones are bursty, diurnal or long-tail"},
		"not a trace":       {[]string{"-f", set, "--trace", set}, "no column time"},
		"no set":            {[]string{"-f", trace, "--trace", trace}, "not a Kubernetes object"},
		"no policy":         {[]string{"-f", with("autoscaling:", "nodeCountLimit: 1 #"), "--trace", trace}, "spec.autoscaling is not set"},
		"max below min":     {[]string{"-f", with("maxReplicas: 6", "maxReplicas: 0"), "--trace", trace}, "maxReplicas is 0, below minReplicas 1"},
		"unknown metric":    {[]string{"-f", with("RequestsInFlight", "Mood"), "--trace", trace}, `"Mood" is not a metric`},
		"unknown field":     {[]string{"-f", with("maxReplicas", "mostReplicas"), "--trace", trace}, "mostReplicas"},
		"unknown model":     {[]string{"-f", with("small", "no-such-model"), "--trace", trace}, "no-such-model"},
		"no model":          {[]string{"-f", with("preset: {name: small}", "config: a"), "--trace", trace}, "spec.template.inference.preset must name a model"},
		"load":              {[]string{"-f", set, "--trace", trace, "--load", "NaN"}, "--load is NaN"},
		"percentile":        {[]string{"-f", set, "--trace", trace, "--percentile", "0"}, "--percentile is 0"},
		"negative start-up": {[]string{"-f", set, "--trace", trace, "--start-up=-1s"}, "--start-up is -1s"},
	} {
		t.Run(reason, func(t *testing.T) {
			got := run(t, append([]string{"autoscale", "simulate"}, c.args...)...)
			if got.Code == 0 || !strings.Contains(got.Err, c.want) {
				t.Errorf("code %d, %q, want %q", got.Code, got.Err, c.want)
			}
		})
	}
}

// TestShippedAutoscaling replays each shipped trace against the example, for a policy that needs little time.
func TestShippedAutoscaling(t *testing.T) {
	for _, trace := range []string{"bursty", "long-tail"} {
		got := shipped(t, "autoscale", "simulate", "-f", "../../examples/inferencesets/autoscaling.yaml", "--trace", trace, "--load", "2", "--quick", "-o", "json")
		if got.Code != 0 || !strings.Contains(got.Out, `"rule": "this policy"`) {
			t.Errorf("%s: code %d: %s", trace, got.Code, got.Err)
		}
	}
}

// TestGeneratedLoad: the rate of a generated trace does not depend on the targets. Otherwise, the costs of two policies
// would not be comparable.
func TestGeneratedLoad(t *testing.T) {
	requests := func(set string) string {
		file, _ := simulated(t, set)
		got := run(t, "autoscale", "simulate", "-f", file, "--trace", "bursty", "--load", "0.5", "--quick")
		_, after, _ := strings.Cut(got.Out, "bursty: ")
		count, _, ok := strings.Cut(after, " requests in")
		if !ok {
			t.Fatalf("no number of requests:\n%s%s", got.Out, got.Err)
		}
		return count
	}
	if few, many := requests(scaledSet), requests(strings.Replace(scaledSet, `value: "4"`, `value: "24"`, 1)); few != many {
		t.Errorf("%s requests with a target of 4, and %s with 24", few, many)
	}
}
