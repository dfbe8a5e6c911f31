// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// counts returns counts without times.
func counts(served, failed int64) Counts { return Counts{Served: served, Failed: failed} }

// timed returns n times around a middle: half of them shorter by a tenth, and half longer by a tenth.
func timed(n int, middle time.Duration) Times {
	var out Times
	for i := range n {
		out.Add(middle * time.Duration(9+2*(i%2)) / 10)
	}
	return out
}

func TestJudge(t *testing.T) {
	even, usual := Replicas{New: 1, Previous: 1}, Margins{Errors: 5, Requests: 100}
	timely := Margins{Errors: 5, FirstToken: 50, PerToken: 25, Requests: 100}
	streams := func(n int64, first, each time.Duration) Counts {
		return Counts{Served: n, FirstToken: timed(int(n), first), PerToken: timed(int(n), each)}
	}
	const fewNew, fewPrevious = "the routers have counted fewer than 100 requests to the new template",
		"the routers have counted fewer than 100 requests to the previous template"
	cases := []struct {
		reason   string
		pair     Pair
		margins  Margins
		replicas Replicas
		want     Verdict
	}{
		{"nothing counted", Pair{}, usual, even, Verdict{Undecided, fewNew}},
		{"one request short", Pair{counts(99, 0), counts(5000, 0)}, usual, even, Verdict{Undecided, fewNew}},
		{"all of a few requests fail", Pair{counts(0, 99), counts(5000, 0)}, usual, even, Verdict{Undecided, fewNew}},
		{"nothing to compare with", Pair{counts(5000, 0), counts(99, 0)}, usual, even, Verdict{Undecided, fewPrevious}},
		{"no errors", Pair{counts(100, 0), counts(100, 0)}, usual, even, Verdict{Passed, ""}},
		{"equally many errors", Pair{counts(700, 300), counts(7000, 3000)}, usual, even, Verdict{Passed, ""}},
		{"fewer errors", Pair{counts(100, 0), counts(50, 50)}, usual, even, Verdict{Passed, ""}},
		{"more errors within the margin", Pair{counts(9600, 400), counts(10000, 0)}, usual, even, Verdict{Passed, ""}},
		{"more errors, perhaps by chance", Pair{counts(90, 10), counts(100, 0)}, usual, even, Verdict{Passed, ""}},
		{"the same share of more requests", Pair{counts(900, 100), counts(1000, 0)}, usual, even, Verdict{
			Worse, "10.0% of 1000 requests to the new template failed, but only 0.0% of 1000 to the previous one; " +
				"at most 5 percentage points more are allowed",
		}},
		{"all fail", Pair{counts(0, 100), counts(1990, 10)}, usual, even, Verdict{
			Worse, "100.0% of 100 requests to the new template failed, but only 0.5% of 2000 to the previous one; " +
				"at most 5 percentage points more are allowed",
		}},
		{"a wide margin", Pair{counts(900, 100), counts(1000, 0)}, Margins{Errors: 20, Requests: 100}, even, Verdict{Passed, ""}},
		{"equal times", Pair{streams(200, time.Second, 20*time.Millisecond), streams(400, time.Second, 20*time.Millisecond)}, timely, even, Verdict{Passed, ""}},
		{"slower within the margin", Pair{streams(200, time.Second, 24*time.Millisecond), streams(400, time.Second, 20*time.Millisecond)}, timely, even, Verdict{Passed, ""}},
		{"tokens are slower", Pair{streams(200, time.Second, 40*time.Millisecond), streams(400, time.Second, 20*time.Millisecond)}, timely, even, Verdict{
			Worse, "the time per output token is 100% higher with the new template: 39.8ms (200 answers) instead of 19.9ms (400 answers); " +
				"at most 25% more is allowed",
		}},
		{"first tokens are slower", Pair{streams(200, 2*time.Second, 40*time.Millisecond), streams(400, time.Second, 20*time.Millisecond)}, timely, even, Verdict{
			Worse, "the time to the first token is 100% higher with the new template: 1.99s (200 answers) instead of 995ms (400 answers); " +
				"at most 50% more is allowed",
		}},
		{"slower, but not asked for", Pair{streams(200, time.Second, 40*time.Millisecond), streams(400, time.Second, 20*time.Millisecond)}, usual, even, Verdict{Passed, ""}},
		{"too few streams", Pair{counts(200, 0), streams(400, time.Second, time.Second)}, timely, even, Verdict{
			Undecided, "the routers have counted fewer than 100 streamed answers of each template",
		}},
		{"the canary is busier", Pair{streams(400, 4*time.Second, time.Second), streams(400, time.Second, 20*time.Millisecond)}, timely, Replicas{New: 1, Previous: 4}, Verdict{
			Undecided, "each replica with the new template gets more requests than one with the previous template, " +
				"so their times cannot be compared: lower canaryWeight",
		}},
		{"the canary is busier, and fails", Pair{counts(0, 400), counts(400, 0)}, timely, Replicas{New: 1, Previous: 4}, Verdict{
			Worse, "100.0% of 400 requests to the new template failed, but only 0.0% of 400 to the previous one; " +
				"at most 5 percentage points more are allowed",
		}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Judge(c.pair, c.margins, c.replicas)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewcombe compares with the example of Newcombe's paper: 56 of 70 and 48 of 80, method 10, at 95%.
func TestNewcombe(t *testing.T) {
	if got := leastDifference(1.959964, counts(14, 56), counts(32, 48)); math.Abs(got-0.0524) > 0.00005 {
		t.Errorf("the lower bound is %.4f, want 0.0524", got)
	}
}

// service answers random requests with a share of failures, and with times of a median and a spread of the logarithm.
type service struct {
	share, median, spread float64
}

func (s service) serve(random *rand.Rand, into *Counts) {
	if random.Float64() < s.share {
		into.Failed++
		return
	}
	into.Served++
	took := time.Duration(s.median * math.Exp(s.spread*random.NormFloat64()) * float64(time.Second))
	into.FirstToken.Add(took)
	into.PerToken.Add(took)
}

// judged returns the share of rollouts that become worse while 5,000 requests arrive, with a look after each 20.
func judged(now, previous service, rollouts uint64) float64 {
	margins, worse := Margins{Errors: 5, FirstToken: 25, PerToken: 25, Requests: 100}, 0
	for seed := range rollouts {
		random := rand.New(rand.NewPCG(seed, 31))
		var pair Pair
		for n := range 5000 {
			if n%2 == 0 {
				now.serve(random, &pair.New)
			} else {
				previous.serve(random, &pair.Previous)
			}
			if n%20 == 19 && Judge(pair, margins, Replicas{New: 1, Previous: 1}).State == Worse {
				worse++
				break
			}
		}
	}
	return float64(worse) / float64(rollouts)
}

// TestChanceStopsNoRollout: a template that serves as well as the previous one passes every look, and one that is clearly
// worse is found.
func TestChanceStopsNoRollout(t *testing.T) {
	const rollouts = 300
	for _, c := range []struct {
		reason        string
		now, previous service
		least, most   float64
	}{
		{"equal and good", service{0, .02, .3}, service{0, .02, .3}, 0, 0},
		{"equal, with errors and a wide spread", service{.1, .02, 1}, service{.1, .02, 1}, 0, .01},
		{"half of the margins", service{.125, .0224, .5}, service{.1, .02, .5}, 0, .01},
		{"at the margin of errors", service{.15, .02, .5}, service{.1, .02, .5}, 0, .05},
		{"at the margin of times", service{.1, .025, .5}, service{.1, .02, .5}, 0, .05},
		{"twice as slow", service{0, .04, .5}, service{0, .02, .5}, 1, 1},
		{"a fifth fails", service{.2, .02, .5}, service{.01, .02, .5}, 1, 1},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if got := judged(c.now, c.previous, rollouts); got < c.least || got > c.most {
				t.Errorf("%.1f%% of the rollouts are worse, want %.1f%% to %.1f%%", 100*got, 100*c.least, 100*c.most)
			}
		})
	}
}

// TestMoreFailuresAreNeverBetter: another failure of the new template, or another success of the previous one, takes no
// verdict back.
func TestMoreFailuresAreNeverBetter(t *testing.T) {
	margins := Margins{Errors: 5, Requests: 100}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		pair := Pair{counts(random.Int64N(500), random.Int64N(200)), counts(random.Int64N(500), random.Int64N(200))}
		before := Judge(pair, margins, Replicas{1, 1})
		pair.New.Failed++
		pair.Previous.Served++
		if after := Judge(pair, margins, Replicas{1, 1}); before.State == Worse && after.State != Worse {
			t.Fatalf("seed %d: %+v is worse, and with another failure it is %s", seed, pair, after.State)
		}
	}
}

// TestRoutersAddUp: it does not matter which router counted a request.
func TestRoutersAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var whole Pair
	parts := make([]Pair, 3)
	for range 1000 {
		took, isNew := time.Duration(1+random.IntN(1e9)), random.IntN(2) == 0
		for _, pair := range []*Pair{&whole, &parts[random.IntN(3)]} {
			into := &pair.Previous
			if isNew {
				into = &pair.New
			}
			into.Served++
			into.FirstToken.Add(took)
		}
	}
	sum := parts[0].Plus(parts[1]).Plus(parts[2])
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
	if diff := cmp.Diff(whole, sum, near); diff != "" {
		t.Errorf("(-whole +sum):\n%s", diff)
	}
}

func TestImpossibleCountsAreRefused(t *testing.T) {
	good := Set{Pair: Pair{New: Counts{Served: 9, FirstToken: timed(9, time.Second), PerToken: timed(8, time.Hour)}}}
	if err := good.Check(); err != nil {
		t.Errorf("possible counts: %v", err)
	}
	for reason, spoil := range map[string]func(*Counts){
		"a negative number":          func(c *Counts) { c.Failed = -1 },
		"a number that overflows":    func(c *Counts) { c.Served = math.MaxInt64 },
		"more times than answers":    func(c *Counts) { c.FirstToken.Count = 10 },
		"a time without an answer":   func(c *Counts) { *c = Counts{PerToken: Times{Logs: 1}} },
		"a time of a thousand years": func(c *Counts) { c.PerToken.Logs = 1e6 },
		"no number":                  func(c *Counts) { c.PerToken.Squares = math.NaN() },
		"a negative spread":          func(c *Counts) { c.PerToken.Squares = 0 },
	} {
		t.Run(reason, func(t *testing.T) {
			bad := good
			spoil(&bad.New)
			if bad.Check() == nil {
				t.Errorf("%+v is accepted", bad.New)
			}
		})
	}
}
