// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/pkg/cost"
)

// noon is on the last day but one of a month.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// chat returns an account at 3.60 USD per hour, that is, 0.001 USD per second.
func chat() cost.Key {
	return cost.Key{Namespace: "team-a", Workspace: "chat", InstanceType: "A100", Price: 3_600_000, Source: "NodeClaim"}
}

// look is one step of a test.
type look struct {
	at       time.Duration
	elapsed  time.Duration
	gap      bool
	machines []cost.Machine
}

func starting() cost.Machine { return cost.Machine{UID: "a", Key: chat(), Owned: true} }

func launched(at time.Duration) cost.Machine {
	m := starting()
	m.LaunchedAt = noon.Add(at)
	return m
}

func serving(since time.Duration) cost.Machine {
	m := starting()
	m.Serving, m.Since = true, noon.Add(since)
	return m
}

func broken(since time.Duration) cost.Machine {
	m := starting()
	m.Since = noon.Add(since)
	return m
}

// answered is a machine on which a model answered until a time.
func answered(launch, until time.Duration) cost.Machine {
	m := broken(until)
	m.Served, m.LaunchedAt = true, noon.Add(launch)
	return m
}

func leaked() cost.Machine {
	m := starting()
	m.Owned = false
	return m
}

// times returns the seconds in each state, and those of them that nobody observed.
func times(l *cost.Ledger) map[string]float64 {
	var sum cost.Cells
	for _, charge := range l.Charges(time.Time{}) {
		sum.Add(&charge.Cells)
	}
	out := map[string]float64{}
	for _, state := range cost.States() {
		if millis := sum.Of(state).Millis; millis > 0 {
			out[state.String()] = float64(millis) / 1000
		}
	}
	if sum.Unsure > 0 {
		out["unsure"] = float64(sum.Unsure) / 1000
	}
	return out
}

func TestObserve(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		reason string
		looks  []look
		want   map[string]float64
	}{
		{"nothing is bought", []look{{}, {at: 60 * s, elapsed: 60 * s}}, map[string]float64{}},
		{
			"a machine starts, serves, stops serving, and is gone",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(8 * s)}},
				{at: 100 * s, elapsed: 90 * s, machines: []cost.Machine{serving(90 * s)}},
				{at: 200 * s, elapsed: 100 * s, machines: []cost.Machine{broken(195 * s)}},
				{at: 230 * s, elapsed: 30 * s},
			},
			map[string]float64{"starting": 82, "serving": 105, "idle": 35},
		},
		{
			"a machine that never serves is wasted",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 100 * s, elapsed: 90 * s, machines: []cost.Machine{starting()}},
				{at: 110 * s, elapsed: 10 * s},
			},
			map[string]float64{"wasted": 110},
		},
		{
			"one that still may serve is starting",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 100 * s, elapsed: 90 * s, machines: []cost.Machine{starting()}},
			},
			map[string]float64{"starting": 100},
		},
		{
			"a machine without a Workspace is leaked",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 20 * s, elapsed: 10 * s, machines: []cost.Machine{leaked()}},
				{at: 60 * s, elapsed: 40 * s},
			},
			map[string]float64{"serving": 10, "leaked": 40},
		},
		{
			"a new ledger has a machine on which a model answered before, and none does now",
			[]look{
				{machines: []cost.Machine{answered(-3600*s, -600*s)}},
				{at: 60 * s, elapsed: 60 * s, machines: []cost.Machine{answered(-3600*s, -600*s)}},
				{at: 70 * s, elapsed: 10 * s},
			},
			map[string]float64{"serving": 3000, "idle": 670},
		},
		{
			"a model answers between two looks",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 100 * s, elapsed: 90 * s, machines: []cost.Machine{answered(0, 70*s)}},
				{at: 110 * s, elapsed: 10 * s},
			},
			map[string]float64{"starting": 70, "idle": 40},
		},
		{
			"a new ledger charges from the launch",
			[]look{{machines: []cost.Machine{launched(-3600 * s)}}},
			map[string]float64{"starting": 3600},
		},
		{
			"a machine in the future costs nothing yet",
			[]look{{machines: []cost.Machine{launched(3600 * s)}}},
			map[string]float64{},
		},
		{
			"a launch long before the former look is a clock that is ahead",
			[]look{{}, {at: 7200 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}}},
			map[string]float64{"starting": 10},
		},
		{
			"a launch long before the former look, which a cache did not show",
			[]look{{}, {at: 7200 * s, elapsed: 7200 * s}, {at: 7210 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}}},
			map[string]float64{"starting": 70},
		},
		{
			"one list lacks a machine",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 20 * s, elapsed: 10 * s},
				{at: 30 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 319 * s, elapsed: 289 * s, machines: []cost.Machine{serving(0)}},
				{at: 320 * s, elapsed: s, machines: []cost.Machine{serving(0)}},
				{at: 330 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
			},
			map[string]float64{"serving": 320},
		},
		{
			"the first list after a restart lacks a machine",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 20 * s, elapsed: 10 * s, gap: true},
				{at: 30 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 400 * s, elapsed: 370 * s, machines: []cost.Machine{serving(0)}},
			},
			map[string]float64{"serving": 390, "unsure": 10},
		},
		{
			"a later machine has the UID, and nobody saw the end of the former one",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 70 * s, elapsed: 60 * s, machines: []cost.Machine{launched(50 * s)}},
			},
			map[string]float64{"wasted": 50, "starting": 20},
		},
		{
			"a later machine has the UID after a day without a controller",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 86410 * s, elapsed: 86400 * s, gap: true, machines: []cost.Machine{launched(86400 * s)}},
			},
			map[string]float64{"wasted": 910, "starting": 10, "unsure": 900},
		},
		{
			"the clock of the former process was an hour behind",
			[]look{
				{at: -3600 * s},
				{at: -3590 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 60 * s, elapsed: 3650 * s, gap: true, machines: []cost.Machine{launched(0)}},
			},
			map[string]float64{"starting": 60},
		},
		{
			"a machine is seen twice in one look",
			[]look{{}, {at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0), launched(0)}}},
			map[string]float64{"starting": 10},
		},
		{
			"a cache that lags brings a machine back",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 20 * s, elapsed: 10 * s},
				{at: 30 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 40 * s, elapsed: 10 * s},
			},
			map[string]float64{"wasted": 20},
		},
		{
			"another machine is launched for the same UID, as for the pod of a StatefulSet",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 20 * s, elapsed: 10 * s},
				{at: 40 * s, elapsed: 20 * s, machines: []cost.Machine{launched(30 * s)}},
			},
			map[string]float64{"wasted": 20, "starting": 10},
		},
		{
			"another one is launched in the second in which the former one was found gone",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 20*s + s/2, elapsed: 10*s + s/2},
				{at: 40 * s, elapsed: 19*s + s/2, machines: []cost.Machine{launched(20 * s)}},
			},
			map[string]float64{"wasted": 20.5, "starting": 20},
		},
		{
			"another one is launched by a clock that is behind",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 20 * s, elapsed: 10 * s},
				{at: 40 * s, elapsed: 20 * s, machines: []cost.Machine{launched(15 * s)}},
			},
			map[string]float64{"wasted": 20, "starting": 25},
		},
		{
			"a cache that lags brings a machine back without its launch",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{launched(0)}},
				{at: 20 * s, elapsed: 10 * s},
				{at: 30 * s, elapsed: 10 * s, machines: []cost.Machine{starting()}},
			},
			map[string]float64{"wasted": 20},
		},
		{
			"the launch is known only later, and a cache that lags brings the machine back",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{starting()}},
				{at: 20 * s, elapsed: 10 * s, machines: []cost.Machine{launched(15 * s)}},
				{at: 14 * s, elapsed: 10 * s},
				{at: 24 * s, elapsed: 10 * s, machines: []cost.Machine{launched(15 * s)}},
			},
			map[string]float64{"wasted": 20},
		},
		{
			"after a restart the machine is still there",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 7210 * s, elapsed: 7200 * s, gap: true, machines: []cost.Machine{serving(0)}},
			},
			map[string]float64{"serving": 7200},
		},
		{
			"a machine went in a short gap",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 310 * s, elapsed: 300 * s, gap: true},
			},
			map[string]float64{"serving": 300, "unsure": 300},
		},
		{
			"a machine went in a gap of a day",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 86410 * s, elapsed: 86400 * s, gap: true},
			},
			map[string]float64{"serving": 900, "unsure": 900},
		},
		{
			"the clock jumps an hour ahead and back",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 3620 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 30 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: 40 * s, elapsed: 10 * s},
			},
			map[string]float64{"serving": 30},
		},
		{
			"time runs backwards",
			[]look{
				{},
				{at: 10 * s, elapsed: 10 * s, machines: []cost.Machine{serving(0)}},
				{at: -10 * s, elapsed: -20 * s, machines: []cost.Machine{serving(0)}},
			},
			map[string]float64{},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := cost.New()
			for _, step := range tc.looks {
				l.Observe(cost.Step{At: noon.Add(step.at), Elapsed: step.elapsed, Gap: step.gap, Machines: step.machines})
			}
			if diff := cmp.Diff(tc.want, times(l)); diff != "" {
				t.Error(diff)
			}
			stored := cost.New()
			for _, step := range tc.looks {
				stored.Observe(cost.Step{At: noon.Add(step.at), Elapsed: step.elapsed, Gap: step.gap, Machines: step.machines})
				stored = again(t, stored)
			}
			if diff := cmp.Diff(tc.want, times(stored)); diff != "" {
				t.Errorf("stored after each look: %s", diff)
			}
		})
	}
}

// TestMoney charges a machine beyond the end of a day and of a month.
func TestMoney(t *testing.T) {
	l := cost.New()
	l.Observe(cost.Step{At: noon})
	l.Observe(cost.Step{At: noon, Machines: []cost.Machine{serving(0)}})
	for range 48 {
		l.Observe(cost.Step{At: l.Seen.Add(time.Hour), Elapsed: time.Hour, Machines: []cost.Machine{serving(0)}})
	}
	byDay := cost.Group(l.Charges(time.Time{}), func(c *cost.Charge) string { return c.Period[:len("2006-01-02")] })
	got := map[string]string{}
	for _, line := range byDay {
		got[line.Name] = fmt.Sprintf("%.9f", line.Cells.Serving.USD())
	}
	want := map[string]string{"2026-11-29": "43.200000000", "2026-11-30": "86.400000000", "2026-12-01": "43.200000000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var december cost.Cells
	for _, charge := range l.Month(l.Seen) {
		december.Add(&charge.Cells)
	}
	if got := december.Total().USD(); got != 43.2 {
		t.Errorf("December costs $%v, want $43.2", got)
	}
}

// TestResult: only an observation of the end of a machine sets Ended. That end is then in the ledger alone.
func TestResult(t *testing.T) {
	l := cost.New()
	if got := l.Observe(cost.Step{At: noon}); got != (cost.Result{}) {
		t.Errorf("nothing is bought: %+v", got)
	}
	here := []cost.Machine{serving(0)}
	if got := l.Observe(cost.Step{At: noon, Machines: here}); got != (cost.Result{IsUrgent: true, Changed: true}) {
		t.Errorf("a new machine: %+v", got)
	}
	if got := l.Observe(cost.Step{At: noon, Machines: here}); got != (cost.Result{}) {
		t.Errorf("the same look again: %+v", got)
	}
	if got := l.Observe(cost.Step{At: noon}); got != (cost.Result{IsUrgent: true, Changed: true}) {
		t.Errorf("an end: %+v", got)
	}
}

func TestCount(t *testing.T) {
	name := cost.Name{Namespace: "team-a", Workspace: "chat"}
	counters := func(process string, prompt, output int64) []cost.Counters {
		return []cost.Counters{{Incarnation: process, Prompt: prompt, Output: output}}
	}
	for _, tc := range []struct {
		reason         string
		looks          [][]cost.Counters
		prompt, output int64
	}{
		{"the first look counts from the engine's start", [][]cost.Counters{counters("a", 10, 5)}, 10, 5},
		{"growth", [][]cost.Counters{counters("a", 10, 5), counters("a", 25, 6)}, 25, 6},
		{"the same look twice", [][]cost.Counters{counters("a", 10, 5), counters("a", 10, 5)}, 10, 5},
		{"another process begins at 0", [][]cost.Counters{counters("a", 10, 5), counters("b", 25, 6)}, 35, 11},
		{"a counter that fell was reset", [][]cost.Counters{counters("a", 10, 5), counters("a", 3, 1)}, 13, 6},
		{"an engine that does not answer for a while", [][]cost.Counters{counters("a", 10, 5), nil, counters("a", 12, 6)}, 12, 6},
		{
			"one of two processes does not answer for a while",
			[][]cost.Counters{append(counters("a", 10, 5), counters("b", 1, 1)...), counters("b", 2, 2), append(counters("a", 11, 6), counters("b", 2, 2)...)},
			13, 8,
		},
		{"nonsense", [][]cost.Counters{counters("a", -10, -5), counters("a", 1<<62, 0)}, 1 << 40, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := cost.New()
			for _, seen := range tc.looks {
				l.Count(noon, cost.Engine{Name: name, Key: chat(), Plan: "1.5", Counters: seen})
				l = again(t, l)
			}
			var sum cost.Cells
			for _, charge := range l.Charges(time.Time{}) {
				sum.Add(&charge.Cells)
			}
			if sum.Prompt != tc.prompt || sum.Output != tc.output {
				t.Errorf("%d and %d tokens, want %d and %d", sum.Prompt, sum.Output, tc.prompt, tc.output)
			}
			if diff := cmp.Diff(map[cost.Name]string{name: "1.5"}, l.Plans()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSumsStayInRange: false counters of an engine must not damage other ledgers.
func TestSumsStayInRange(t *testing.T) {
	l := cost.New()
	for n := range 10_000 {
		seen := cost.Counters{Incarnation: fmt.Sprint(n), Prompt: 1 << 50, Output: 1 << 50}
		l.Count(noon, cost.Engine{Name: cost.Name{Namespace: "n", Workspace: "w"}, Key: chat(), Counters: []cost.Counters{seen}})
	}
	charges := again(t, l).Charges(time.Time{})
	if got, want := charges[0].Cells.Output, int64(10_000<<40); got != want {
		t.Errorf("%d tokens, want %d", got, want)
	}
	const most = math.MaxInt64
	full := cost.Cells{
		Starting: cost.Amount{Millis: most, Nanos: most - 1}, Serving: cost.Amount{Millis: 1, Nanos: 1}, Unsure: most, Prompt: most - 1, Output: 1,
	}
	if got, want := full.Total(), (cost.Amount{Millis: most, Nanos: most}); got != want {
		t.Errorf("the total is %+v, want %+v", got, want)
	}
	full.Add(&full)
	want := cost.Cells{
		Starting: cost.Amount{Millis: most, Nanos: most}, Serving: cost.Amount{Millis: 2, Nanos: 2}, Unsure: most, Prompt: most, Output: 2,
	}
	if diff := cmp.Diff(want, full); diff != "" {
		t.Error(diff)
	}
}

// TestCountChanges: Count reports whether there is anything to store.
func TestCountChanges(t *testing.T) {
	l := cost.New()
	seen := cost.Engine{Name: cost.Name{Namespace: "n", Workspace: "w"}, Counters: []cost.Counters{{Incarnation: "a", Output: 5}}}
	if !l.Count(noon, seen) || l.Count(noon, seen) {
		t.Error("the first look changes the ledger, and the same again does not")
	}
	l.Keep(func(cost.Name) bool { return false })
	if !l.Count(noon, seen) {
		t.Error("the engine of a deleted Workspace is kept")
	}
}

// again returns the ledger after a restart.
func again(t testing.TB, l *cost.Ledger) *cost.Ledger {
	t.Helper()
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cost.Decode(data)
	if err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return out
}
