// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
)

// tuner returns a search on an hour of a shipped trace, with an engine for about 20 requests at once.
func tuner(t *testing.T, shape string, inFlight float64) *simulation.Tuner {
	t.Helper()
	speed := simulation.Speed{
		Points:        []simulation.Point{{Sequences: 1, Seconds: 0.03}, {Sequences: 64, Seconds: 0.08}},
		PromptSeconds: 0.02, PromptSecondsPerToken: 1e-4, Seats: 64, CacheTokens: 20_000,
	}
	out := &simulation.Tuner{
		Setting: setting(speed, 0), Goal: simulation.Goal{TTFT: 5 * time.Second, Share: 0.95}, HasCache: true, Most: 80,
		Policy: autoscale.Policy{
			Min: 1, Max: 12, Targets: []autoscale.Target{{Metric: autoscale.RequestsInFlight, Value: inFlight}},
			Down: autoscale.Pace{Window: autoscale.FollowsLead},
		},
	}
	out.Trace = generated(t, shape, 7)
	return out
}

func generated(t *testing.T, name string, seed uint64) []simulation.Request {
	t.Helper()
	shapes, err := simulation.Shapes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range shapes {
		if shapes[i].Name == name {
			shapes[i].Hours = 1
			trace, _ := shapes[i].Generate(1.5, seed)
			return trace
		}
	}
	t.Fatalf("no trace %s", name)
	return nil
}

// TestTune: for each trace and any present target, the found targets are at least as good as the present ones, the search
// ends, and a second search finds the same.
func TestTune(t *testing.T) {
	for _, trace := range []string{"bursty", "diurnal", "long-tail"} {
		for name, inFlight := range map[string]float64{"wasteful": 2, "usual": 12, "far too high": 500} {
			t.Run(trace+", "+name, func(t *testing.T) {
				first := tuner(t, trace, inFlight)
				trials := 0
				first.Progress = func(done int) {
					if done != trials {
						t.Errorf("progress %d after %d simulations", done, trials)
					}
					trials++
				}
				present, found := first.Tune()
				if trials > first.Most {
					t.Errorf("%d simulations, want at most %d", trials, first.Most)
				}
				if least := 0.96; found.Attained < least && found.Result != present.Result {
					t.Errorf("the found targets %v answer %.3f in time, want %v: a fifth of the late answers is a reserve", found.Policy.Targets, found.Attained, least)
				}
				if found.Attained < first.Goal.Share {
					t.Errorf("the targets %v answer %.3f in time", found.Policy.Targets, found.Attained)
				}
				if present.Attained >= first.Goal.Share && found.Result.Dollars > present.Result.Dollars {
					t.Errorf("the found targets cost %v, and the present ones %v", found.Result.Dollars, present.Result.Dollars)
				}
				again := simulation.Try(first.Setting, first.Trace, found.Policy, first.Goal)
				if diff := cmp.Diff(again, found); diff != "" {
					t.Errorf("the result is not that of the found policy (-want +got):\n%s", diff)
				}
				if name != "usual" {
					return // one search after another takes long
				}
				_, second := tuner(t, trace, inFlight).Tune()
				if diff := cmp.Diff(found.Policy, second.Policy); diff != "" {
					t.Errorf("a second search finds other targets (-first +second):\n%s", diff)
				}
			})
		}
	}
}

func TestTuneFinds(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		change func(*simulation.Tuner)
		check  func(present, found simulation.Trial) string
	}{
		"cheaper": {
			"a target of 1 wastes replicas for 20",
			func(s *simulation.Tuner) { s.Policy.Targets[0].Value = 1 },
			func(present, found simulation.Trial) string {
				if found.Result.Dollars > 0.8*present.Result.Dollars {
					return "the found targets are hardly cheaper"
				}
				return ""
			},
		},
		"other fields stay": {
			"the search chooses targets only",
			func(s *simulation.Tuner) { s.Policy.Up.Window, s.Policy.MaxHourlyPrice = time.Minute, 1e6 },
			func(present, found simulation.Trial) string {
				found.Policy.Targets = present.Policy.Targets
				return cmp.Diff(present.Policy, found.Policy)
			},
		},
		"slots": {
			"if the use of the cache is the share of busy slots, it is no target of its own",
			func(s *simulation.Tuner) { s.HasCache, s.Most, s.Policy.Targets[0].Value = false, 3, 1 },
			func(_, found simulation.Trial) string {
				if len(found.Policy.Targets) != 1 || found.Policy.Targets[0].Metric != autoscale.RequestsInFlight {
					return "the targets are not one for requests in flight"
				}
				return ""
			},
		},
		"out of reach": {
			"some prompts alone take longer than the goal; the closest targets have the most requests in time",
			func(s *simulation.Tuner) { s.Goal.TTFT, s.Policy.Targets[0].Value = 200*time.Millisecond, 500 },
			func(present, found simulation.Trial) string {
				if found.Attained >= 0.95 || found.Attained <= present.Attained {
					return "the closest targets reach the goal, or are no closer than the present ones"
				}
				return ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tuner(t, "long-tail", 12)
			c.change(s)
			present, found := s.Tune()
			if problem := c.check(present, found); problem != "" {
				t.Errorf("%s: %s: present %v (%v, $%v), found %v (%v, $%v)", c.reason, problem,
					present.Policy.Targets, present.Attained, present.Result.Dollars, found.Policy.Targets, found.Attained, found.Result.Dollars)
			}
		})
	}
}

// TestTuneEnds: the search keeps to its limit of simulations.
func TestTuneEnds(t *testing.T) {
	s := tuner(t, "long-tail", 12)
	s.Most = 5
	trials := 0
	s.Progress = func(int) { trials++ }
	s.Tune()
	if trials != 5 {
		t.Errorf("%d simulations, want 5", trials)
	}
}

// TestTuneKeepsCheaperTargets: present targets that just reach the goal stay, if the reserve costs more.
func TestTuneKeepsCheaperTargets(t *testing.T) {
	s := tuner(t, "long-tail", 2)
	_, cheap := s.Tune()
	s.Policy, s.Goal.Share = cheap.Policy, cheap.Attained
	present, found := s.Tune()
	if diff := cmp.Diff(present, found); diff != "" {
		t.Errorf("the reserve costs more than targets that reach the goal (-present +found):\n%s", diff)
	}
}

// TestLeastMin: the minimum reaches the goal, and one replica less does not.
func TestLeastMin(t *testing.T) {
	s := tuner(t, "bursty", 500)
	s.Setting.StartUp = 20 * time.Minute
	trial, ok := s.LeastMin(s.Policy)
	if !ok || trial.Attained < s.Goal.Share {
		t.Fatalf("%v: %v of the requests are in time", ok, trial.Attained)
	}
	less := trial.Policy
	less.Min--
	if fewer := simulation.Try(s.Setting, s.Trace, less, s.Goal); fewer.Attained >= s.Goal.Share {
		t.Errorf("minReplicas %d is found, and %d reaches the goal, too", trial.Policy.Min, less.Min)
	}
	if next, ok := s.LeastMin(less); !ok || next.Policy.Min != trial.Policy.Min {
		t.Errorf("from minReplicas %d: %v, %d, want one more", less.Min, ok, next.Policy.Min)
	}
	s.Policy.Max = 2
	if trial, ok := s.LeastMin(s.Policy); ok {
		t.Errorf("minReplicas %d reaches the goal with a maximum of 2", trial.Policy.Min)
	}
}

// TestLongestStartUp: the time reaches the goal, and twice the time does not.
func TestLongestStartUp(t *testing.T) {
	s := tuner(t, "bursty", 8)
	s.Setting.StartUp = 20 * time.Minute
	startUp, trial, ok := s.LongestStartUp(s.Policy)
	if !ok || trial.Attained < s.Goal.Share {
		t.Fatalf("%v, %s: %v of the requests are in time", ok, startUp, trial.Attained)
	}
	twice := s.Setting
	twice.StartUp = 2 * startUp
	if slower := simulation.Try(twice, s.Trace, s.Policy, s.Goal); slower.Attained >= s.Goal.Share {
		t.Errorf("%s is found, and %s reaches the goal, too", startUp, twice.StartUp)
	}
	s.Policy.Max = 1
	if startUp, _, ok := s.LongestStartUp(s.Policy); ok {
		t.Errorf("one replica reaches the goal with a start of %s", startUp)
	}
}
