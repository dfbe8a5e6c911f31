// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// waves returns a trace of three hours. It is nearly idle, except for 20 minutes of each hour with this many requests a
// second.
func waves(busy int) string {
	var rows strings.Builder
	rows.WriteString("time,input,output\n")
	for second := range 3 * 3600 {
		rate := 0
		switch {
		case second%3600 >= 1200 && second%3600 < 2400:
			rate = busy
		case second%20 == 0:
			rate = 1
		}
		for range rate {
			fmt.Fprintf(&rows, "%d,500,200\n", second)
		}
	}
	return rows.String()
}

// TestTune searches on two thirds of a file, judges by the rest, and checks the whole output.
func TestTune(t *testing.T) {
	set, _ := simulated(t, scaledSet)
	got := process{stdin: waves(4)}.run(t, "autoscale", "tune", "-f", set, "--trace", "-", "--start-up", "1m")
	if got.Code != 0 {
		t.Fatalf("code %d: %s", got.Code, got.Err)
	}
	golden(t, "testdata/golden/tune.txt", got.Out)
	_, snippet, _ := strings.Cut(got.Out, "To write into the set\n")
	var patch struct {
		Spec struct {
			Autoscaling map[string]any `json:"autoscaling"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(snippet), &patch); err != nil || len(patch.Spec.Autoscaling) != 1 {
		t.Errorf("the output does not end with a part of a set: %v\n%s", err, snippet)
	}
}

type tunedOutput struct {
	GoalReached                bool
	GoalReachedOnOtherRequests *bool
	Autoscaling                map[string]any
	Requests                   []struct {
		Name, Use string
		Count     int
		Rules     []struct {
			Rule        string
			Dollars     float64
			Attained    float64
			GoalReached bool
		}
	}
	Remedies []string
}

func tunedData(t *testing.T, args ...string) tunedOutput {
	t.Helper()
	got := run(t, append([]string{"autoscale", "tune", "-o", "json"}, args...)...)
	var out tunedOutput
	if err := json.Unmarshal([]byte(got.Out), &out); err != nil {
		t.Fatalf("%v: %s", err, got.Err)
	}
	return out
}

// TestTuneWritesASet: a set with the found targets costs what the command says.
func TestTuneWritesASet(t *testing.T) {
	set, _ := simulated(t, scaledSet)
	_, trace := simulated(t, scaledSet) // too short to judge by
	data := tunedData(t, "-f", set, "--trace", trace, "--start-up", "1m", "--quick")
	if data.GoalReachedOnOtherRequests != nil || len(data.Requests) != 1 || data.Requests[0].Count != 240 {
		t.Fatalf("20 minutes are judged by other requests: %+v", data)
	}
	targets, err := json.Marshal(data.Autoscaling["targets"])
	if err != nil {
		t.Fatal(err)
	}
	found, _ := simulated(t, strings.Replace(scaledSet, `[{metric: RequestsInFlight, value: "4"}]`, string(targets), 1))
	got := run(t, "autoscale", "simulate", "-f", found, "--trace", trace, "--start-up", "1m", "--quick", "-o", "json")
	if want := fmt.Sprintf(`"dollars": %v,`, data.Requests[0].Rules[1].Dollars); !strings.Contains(got.Out, want) {
		t.Errorf("simulate of the found targets lacks %s:\n%s%s", want, got.Out, got.Err)
	}
}

// TestTuneSeeds judges the targets of a generated trace by two further seeds.
func TestTuneSeeds(t *testing.T) {
	set, _ := simulated(t, scaledSet)
	data := tunedData(t, "-f", set, "--trace", "bursty", "--seed", "5", "--load", "0.5", "--quick")
	var names []string
	for _, requests := range data.Requests {
		names = append(names, requests.Name+" "+requests.Use)
	}
	if got, want := strings.Join(names, ", "), "seed 5 search, seed 6 judge, seed 7 judge"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if data.GoalReachedOnOtherRequests == nil {
		t.Error("the found targets are not judged")
	}
}

// TestTuneOutOfReach: if no targets reach the goal, the output has the closest ones and the remedies.
func TestTuneOutOfReach(t *testing.T) {
	for reason, c := range map[string]struct{ most, start, want string }{
		"too few replicas": {"maxReplicas: 1", "1m", "Even with minReplicas 1, these targets would miss the goal: raise maxReplicas or --ttft."},
		"a slow start":     {"maxReplicas: 6", "40m", "With these targets, minReplicas"},
	} {
		t.Run(reason, func(t *testing.T) {
			set, _ := simulated(t, strings.Replace(scaledSet, "maxReplicas: 6", c.most, 1))
			args := []string{"autoscale", "tune", "-f", set, "--trace", "-", "--start-up", c.start, "--quick"}
			got := process{stdin: waves(10)}.run(t, args...)
			if !strings.Contains(got.Out, "No targets reach the goal") || !strings.Contains(got.Out, c.want) {
				t.Errorf("the output lacks %q:\n%s%s", c.want, got.Out, got.Err)
			}
		})
	}
}

// TestTuneProgress: a terminal shows the progress in one line, and clears it.
func TestTuneProgress(t *testing.T) {
	set, trace := simulated(t, scaledSet)
	args := []string{"autoscale", "tune", "-f", set, "--trace", trace, "--quick"}
	got := process{terminal: true, env: map[string]string{"NO_COLOR": "1"}}.run(t, args...)
	frames := strings.Split(got.Out, "\r\x1b[J")
	if len(frames) < 10 || frames[1] != "simulation 1 of at most 80" {
		t.Errorf("%d frames: %q", len(frames), got.Out)
	}
	if plain := run(t, args...); frames[len(frames)-1] != plain.Out {
		t.Errorf("a terminal ends with\n%s\nwant\n%s", frames[len(frames)-1], plain.Out)
	}
}

func TestTuneRefuses(t *testing.T) {
	set, trace := simulated(t, scaledSet)
	for reason, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":    {[]string{"--trace", trace}, "name a manifest with -f"},
		"no trace":   {[]string{"-f", set}, "name a CSV file with --trace"},
		"percentile": {[]string{"-f", set, "--trace", trace, "--percentile", "101"}, "--percentile is 101"},
		"load":       {[]string{"-f", set, "--trace", "bursty", "--load", "1e-9"}, "generates no requests"},
	} {
		t.Run(reason, func(t *testing.T) {
			got := run(t, append([]string{"autoscale", "tune"}, c.args...)...)
			if got.Code == 0 || !strings.Contains(got.Err, c.want) {
				t.Errorf("code %d, %q, want %q", got.Code, got.Err, c.want)
			}
		})
	}
}
