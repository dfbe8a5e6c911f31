// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
)

// simple returns an engine that takes 1 s per prompt, and 0.1 s per token for up to two sequences.
func simple() simulation.Speed {
	return simulation.Speed{
		Points:        []simulation.Point{{Sequences: 1, Seconds: 0.1}, {Sequences: 2, Seconds: 0.1}},
		PromptSeconds: 1, Seats: 2, CacheTokens: 1e6,
	}
}

func setting(speed simulation.Speed, initial int) simulation.Setting {
	return simulation.Setting{
		Speed: speed, StartUp: time.Minute, ReplicaPrice: 3600, Initial: initial, Interval: 15 * time.Second,
		Start: time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC),
	}
}

func approximately() cmp.Option { return cmpopts.EquateApprox(0, 1e-6) }

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		initial int
		scaler  simulation.Scaler
		trace   []simulation.Request
		ttft    []float64
		dollars float64
	}{
		"one": {
			"the prompt takes a second, the answer another", 1, simulation.Fixed(1),
			[]simulation.Request{{Input: 9, Output: 10}},
			[]float64{1},
			2,
		},
		"two": {
			"prompts run one after the other", 1, simulation.Fixed(1),
			[]simulation.Request{{Input: 9, Output: 10}, {Input: 9, Output: 10}},
			[]float64{1, 2},
			3,
		},
		"a full engine": {
			"the third waits for a seat until the first has its answer, at 2 s", 1, simulation.Fixed(1),
			[]simulation.Request{{Output: 10}, {Output: 10}, {Output: 10}},
			[]float64{1, 2, 3},
			4,
		},
		"two replicas": {
			"requests go to the replica with the fewest", 2, simulation.Fixed(2),
			[]simulation.Request{{Output: 10}, {Output: 10}},
			[]float64{1, 1},
			4,
		},
		"from zero": {
			"the replica is requested at the first interval after the request, and starts for a minute: 15 + 60 + 1 - 1 s",
			0, &simulation.Ours{Policy: autoscale.Policy{Max: 3}},
			[]simulation.Request{{At: 1, Output: 10}},
			[]float64{75},
			62,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := simulation.Run(setting(simple(), c.initial), c.trace, c.scaler)
			if diff := cmp.Diff(c.ttft, got.TTFT, approximately()); diff != "" {
				t.Errorf("%s: times to the first token (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.dollars, got.Dollars, approximately()); diff != "" {
				t.Errorf("%s: dollars (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestWake: 200 requests wait for the first replica, which answers them before another replica could start.
func TestWake(t *testing.T) {
	speed := simulation.Speed{
		Points:        []simulation.Point{{Sequences: 1, Seconds: 0.02}, {Sequences: 64, Seconds: 0.05}},
		PromptSeconds: 0.05, Seats: 64, CacheTokens: 200_000,
	}
	s := setting(speed, 0)
	s.StartUp = 5 * time.Minute
	var trace []simulation.Request
	for i := range 200 {
		trace = append(trace, simulation.Request{At: float64(i), Input: 200, Output: 200})
	}
	for name, targets := range map[string][]autoscale.Target{
		"the usual targets":  {{Metric: autoscale.KVCacheUse, Value: 0.7}, {Metric: autoscale.WaitingRequests, Value: 1}},
		"requests in flight": {{Metric: autoscale.RequestsInFlight, Value: 30}},
	} {
		got := simulation.Run(s, trace, &simulation.Ours{Policy: autoscale.Policy{Max: 20, Targets: targets, Down: autoscale.Pace{Window: autoscale.FollowsLead}}})
		if got.Most > 1 {
			t.Errorf("%s: %d replicas for requests that one answers in 40 s", name, got.Most)
		}
	}
}

// sequence is a scaler with one number of replicas after the other.
type sequence []int

func (s *sequence) Replicas(autoscale.Signals) int {
	out := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return out
}

// TestDrain: a removed replica first finishes its answers, and costs until then.
func TestDrain(t *testing.T) {
	scaler := &sequence{2, 1}
	got := simulation.Run(setting(simple(), 2), []simulation.Request{{Output: 400}, {Output: 400}}, scaler)
	if diff := cmp.Diff([]float64{1, 1}, got.TTFT, approximately()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(82.0, got.Dollars, approximately()); diff != "" { // twice 41 s; one was removed after 15 s
		t.Errorf("dollars (-want +got):\n%s", diff)
	}
}

// TestWithdrawn: an unready replica is removed at once, and costs until then.
func TestWithdrawn(t *testing.T) {
	scaler := &sequence{2, 1}
	got := simulation.Run(setting(simple(), 1), []simulation.Request{{Output: 290}}, scaler)
	if got.StartUps != 1 || got.Wasted != 1 {
		t.Errorf("got %d starts, %d withdrawn, want one of each", got.StartUps, got.Wasted)
	}
	if diff := cmp.Diff(30.0+15, got.Dollars, approximately()); diff != "" {
		t.Errorf("dollars (-want +got):\n%s", diff)
	}
}

// TestLaws checks a generated trace with the rule of package autoscale. Each request gets one answer, and none before
// its prompt is read. The price equals the area under the number of replicas.
func TestLaws(t *testing.T) {
	shapes, err := simulation.Shapes()
	if err != nil {
		t.Fatal(err)
	}
	speed := simulation.Speed{
		Points:        []simulation.Point{{Sequences: 1, Seconds: 0.03}, {Sequences: 64, Seconds: 0.08}},
		PromptSeconds: 0.02, PromptSecondsPerToken: 1e-4, Seats: 64, CacheTokens: 60_000,
	}
	for i := range shapes {
		shape := &shapes[i]
		t.Run(shape.Name, func(t *testing.T) {
			shape.Hours = 2
			trace, _ := shape.Generate(2, 7)
			scaler := func() simulation.Scaler {
				return &simulation.Ours{Policy: autoscale.Policy{
					Min: 1, Max: 9, Targets: []autoscale.Target{{Metric: autoscale.RequestsInFlight, Value: 30}},
					Down: autoscale.Pace{Window: autoscale.FollowsLead},
				}}
			}
			got := simulation.Run(setting(speed, 2), trace, scaler())
			for j, ttft := range got.TTFT {
				if least := speed.PromptSeconds + speed.PromptSecondsPerToken*float64(trace[j].Input); !(ttft >= least-1e-9) || math.IsInf(ttft, 0) {
					t.Fatalf("request %d has its first token after %v s, and its prompt alone takes %v s", j, ttft, least)
				}
			}
			if got.Most > 10+9 || got.Duration < trace[len(trace)-1].At {
				t.Errorf("up to %d replicas, until %v s", got.Most, got.Duration)
			}
			if bound := simulation.WorkBound(setting(speed, 2), trace); got.Dollars < bound {
				t.Errorf("$%v are less than the bound of the work, $%v", got.Dollars, bound)
			}
			if diff := cmp.Diff(got, simulation.Run(setting(speed, 2), trace, scaler())); diff != "" {
				t.Errorf("the same arguments give another result:\n%s", diff)
			}
		})
	}
}

func TestGeneratedTraces(t *testing.T) {
	shapes, err := simulation.Shapes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range shapes {
		shape := &shapes[i]
		t.Run(shape.Name, func(t *testing.T) {
			if shape.Source == "" || shape.Chosen == "" {
				t.Error("a trace names its source, and what is chosen")
			}
			trace, isWhole := shape.Generate(3, 1)
			if !isWhole {
				t.Error("the trace is cut")
			}
			if rate := float64(len(trace)) / (shape.Hours * 3600); math.Abs(rate/3-1) > 0.05 {
				t.Errorf("%.2f requests per second, want 3", rate)
			}
			mean, want := simulation.Mean(trace), shape.MeanRequest()
			if math.Abs(float64(mean.Input)/float64(want.Input)-1) > 0.05 || math.Abs(float64(mean.Output)/float64(want.Output)-1) > 0.05 {
				t.Errorf("mean lengths %+v, want about %+v", mean, want)
			}
			for j := 1; j < len(trace); j++ {
				if trace[j].At < trace[j-1].At || trace[j].Input < 1 || trace[j].Output < 1 {
					t.Fatalf("request %d is %+v after %+v", j, trace[j], trace[j-1])
				}
			}
			again, _ := shape.Generate(3, 1)
			if diff := cmp.Diff(trace[:100], again[:100]); diff != "" {
				t.Errorf("the same seed gives another trace:\n%s", diff)
			}
		})
	}
}

// TestClairvoyant: the search finds the schedule of a trace for which it is obvious.
func TestClairvoyant(t *testing.T) {
	speed := simulation.Speed{Points: []simulation.Point{{Sequences: 1, Seconds: 0.1}}, Seats: 1, CacheTokens: 1e6}
	var trace []simulation.Request
	for i := range 720 { // two hours with a 5 s request every 10 s, and two of them in the second hour
		trace = append(trace, simulation.Request{At: float64(i * 10), Output: 50})
		if i >= 360 {
			trace = append(trace, simulation.Request{At: float64(i * 10), Output: 50})
		}
	}
	s := setting(speed, 1)
	best, ok := simulation.Clairvoyant(s, trace, simulation.Goal{TTFT: time.Second, Share: 0.95}, 1, 4)
	if !ok {
		t.Fatal("no schedule was found")
	}
	// One hour with one replica, one with two, and a start-up of a minute. The goal allows some late requests.
	if hours := best.ReplicaSeconds / 3600; hours < 2.7 || hours > 3.2 {
		t.Errorf("%.2f replica hours, want about 3", hours)
	}
	if _, ok := simulation.Clairvoyant(s, trace, simulation.Goal{TTFT: time.Second, Share: 0.99}, 1, 1); ok {
		t.Error("a schedule of one replica reaches a goal that needs two")
	}
}

func TestReadTrace(t *testing.T) {
	for name, c := range map[string]struct {
		reason, text string
		want         []simulation.Request
		err          string
	}{
		"plain": {
			"seconds, out of order, from zero", "time,input,output\n12.5,100,20\n2.5,7,3\n",
			[]simulation.Request{{At: 0, Input: 7, Output: 3}, {At: 10, Input: 100, Output: 20}},
			"",
		},
		"azure": {
			"dates, and the names of that trace", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.009930+00:00,10,6\n",
			[]simulation.Request{{At: 0, Input: 2162, Output: 5}, {At: 1, Input: 10, Output: 6}},
			"",
		},
		"burstgpt": {
			"failures have no answer, and are left out", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n6,ChatGPT,0,0,0,API log\n",
			[]simulation.Request{{At: 0, Input: 472, Output: 18}},
			"",
		},
		"empty":          {"no header", "", nil, "empty"},
		"no requests":    {"a header alone", "time,input,output\n", nil, "no request with output tokens"},
		"missing column": {"the error names the column and other names for it", "time,input\n1,2\n", nil, "no column output"},
		"bad number":     {"the error has the line", "time,input,output\n1,2,3\n1,x,3\n", nil, `line 3: "x"`},
		"negative":       {"tokens are not negative", "time,input,output\n1,2,-3\n", nil, "line 2"},
		"bad time":       {"neither seconds nor a date", "time,input,output\nnoon,2,3\n", nil, "line 2"},
		"NaN":            {"not a time", "time,input,output\nNaN,2,3\n", nil, "line 2"},
		"too long":       {"more than a month", "time,input,output\n0,2,3\n9e9,2,3\n", nil, "days"},
		"ragged":         {"too few fields", "time,input,output\n1,2\n", nil, "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := simulation.ReadTrace(strings.NewReader(c.text))
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%s: error %v, want %q", c.reason, err, c.err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-3)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("time,input,output\n1,2,3\n")
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := simulation.ReadTrace(strings.NewReader(text))
		if err == nil && (len(trace) == 0 || trace[0].At != 0) {
			t.Errorf("a trace that begins with %v", trace)
		}
	})
}
