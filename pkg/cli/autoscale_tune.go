// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
	"github.com/modelberth/modelberth/pkg/catalog"
)

// tuneCommand is kubectl berth autoscale tune.
type tuneCommand struct {
	traceOptions

	quick bool
}

func newTune(w World) *cobra.Command {
	s := &tuneCommand{}
	cmd := &cobra.Command{
		Use:   "tune -f FILE --trace TRACE",
		Short: "Find the cheapest targets of an InferenceSet that answer a trace of requests in time",
		Long: `Find the cheapest targets of an InferenceSet that answer a trace of requests in time.

The command simulates the policy in the file with other targets for RequestsInFlight and KVCacheUse, at most
` + strconv.Itoa(mostTrials) + ` times, and keeps the cheapest ones that reach the goal. All other fields of the policy stay. It prints the
targets to write into the set. See simulate --help for the traces and the simulated engines.

Targets can fit a trace by chance. So the search accepts only four fifths of the late answers that the goal allows,
and the command judges the found targets on requests that the search has not used: for a generated trace, on its next two
seeds; for a file, on the last third of its time. If this part is too short to judge by, the output says so.

If no targets reach the goal, the output has the closest ones, and the changes that would help.`,
		Example: `  kubectl berth autoscale tune -f set.yaml --trace requests.csv --start-up 4m
  kubectl berth autoscale tune -f set.yaml --trace diurnal --percentile 99 --ttft 2s -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context(), w) },
	}
	s.bind(cmd, w)
	cmd.Flags().BoolVar(&s.quick, "quick", false, "skip the comparison with the clairvoyant schedule")
	return cmd
}

// mostTrials is the largest number of simulations of a search.
const mostTrials = 80

// The names of the two policies.
const (
	presentRule = "present"
	foundRule   = "found"
)

// extract is a part of the requests: the one that the search uses, or one to judge by.
type extract struct {
	replay

	name    string
	setting simulation.Setting
	trace   []simulation.Request
}

// tuned is the result of a search.
type tuned struct {
	*scenario

	// extracts are the requests: first for the search, then for the test.
	extracts       []*extract
	present, found simulation.Trial
	advice         []string
}

func (s *tuneCommand) run(ctx context.Context, w World) error {
	found, err := s.read(ctx, w.In)
	if err != nil {
		return err
	}
	out := &tuned{scenario: found}
	if out.shape == nil {
		s.split(out)
	} else if err := s.seeds(out); err != nil {
		return err
	}
	show := s.progress(w)
	s.search(out, show)
	for _, part := range out.extracts {
		if !s.quick {
			show("searching for the clairvoyant schedule of " + part.name)
		}
		s.judge(out, part)
	}
	show("")
	return s.show(w, out)
}

// judgedSeeds is on how many further seeds of a generated trace the found targets are judged.
const judgedSeeds = 2

// seeds adds a generated trace, and others of the same shape.
func (s *tuneCommand) seeds(out *tuned) error {
	s.add(out, fmt.Sprintf("seed %d", s.seed), out.requests, 0)
	for i := range uint64(judgedSeeds) {
		seed := s.seed + 1 + i
		next, err := s.generate(out.deployed, out.shape, seed)
		if err != nil {
			return err
		}
		s.add(out, fmt.Sprintf("seed %d", seed), next, 0)
	}
	return nil
}

// fewestJudged is the smallest number of requests to search or to judge with.
const fewestJudged = 200

// split divides the requests of a file: two thirds of the time for the search, and the rest to judge by, if it is long
// enough.
func (s *tuneCommand) split(out *tuned) {
	all := out.requests
	end := all[len(all)-1].At
	cut := end * 2 / 3
	i, _ := slices.BinarySearchFunc(all, cut, func(r simulation.Request, at float64) int {
		if r.At < at {
			return -1
		}
		return 1
	})
	if min(i, len(all)-i) < fewestJudged || end-cut < 2*s.startUp.Seconds() {
		s.add(out, "all", all, 0)
		return
	}
	rest := slices.Clone(all[i:])
	for j := range rest {
		rest[j].At -= cut
	}
	s.add(out, fmt.Sprintf("first %s h", digits(cut/3600)), all[:i], 0)
	s.add(out, fmt.Sprintf("last %s h", digits((end-cut)/3600)), rest, cut)
}

// add adds requests that begin some seconds after the start of the trace.
func (s *tuneCommand) add(out *tuned, name string, trace []simulation.Request, start float64) {
	setting := s.setting(out.deployed)
	setting.Start = setting.Start.Add(time.Duration(start * float64(time.Second)))
	out.extracts = append(out.extracts, &extract{
		replay: replay{scenario: out.scenario}, name: name, setting: setting, trace: trace,
	})
}

// progress returns a function that replaces the last line on a terminal. Elsewhere, it does nothing.
func (s *tuneCommand) progress(w World) func(string) {
	if !w.Terminal || s.forPrograms() {
		return func(string) {}
	}
	return func(text string) { fmt.Fprint(w.Out, "\r\x1b[J", text) }
}

// search finds the targets.
func (s *tuneCommand) search(out *tuned, show func(string)) {
	first := out.extracts[0]
	tuner := simulation.Tuner{
		Setting: first.setting, Policy: *out.policy, Trace: first.trace, Goal: out.goal,
		Most:     mostTrials,
		HasCache: out.deployed.subject.engine.Split != catalog.SplitLayers,
		Progress: func(done int) { show(fmt.Sprintf("simulation %d of at most %d", done+1, mostTrials)) },
	}
	out.present, out.found = tuner.Tune()
	if out.found.Attained < out.goal.Share {
		show("searching for changes that reach the goal")
		out.advice = remedies(&tuner, &out.found)
	}
}

// remedies returns sentences about other changes that reach the goal with the closest targets.
func remedies(tuner *simulation.Tuner, closest *simulation.Trial) []string {
	var out []string
	if trial, ok := tuner.LeastMin(closest.Policy); ok {
		out = append(out, fmt.Sprintf("With these targets, minReplicas %d reaches the goal, for $%.2f. If you know the busy hours, raise minReplicas only for them, with schedules.",
			trial.Policy.Min, trial.Result.Dollars))
	} else {
		out = append(out, fmt.Sprintf("Even with minReplicas %d, these targets would miss the goal: raise maxReplicas or --ttft.", closest.Policy.Max))
	}
	if startUp, trial, ok := tuner.LongestStartUp(closest.Policy); ok {
		out = append(out, fmt.Sprintf("If a start took %s instead of %s, these targets would reach the goal, for $%.2f.",
			startUp, tuner.Setting.StartUp, trial.Result.Dollars))
	}
	return out
}

// judge simulates both policies, and compares them with the clairvoyant schedule.
func (s *tuneCommand) judge(out *tuned, part *extract) {
	present, found := out.present, out.found
	if part != out.extracts[0] {
		present = simulation.Try(part.setting, part.trace, present.Policy, out.goal)
		found = simulation.Try(part.setting, part.trace, found.Policy, out.goal)
	}
	part.add(presentRule, present.Result)
	part.add(foundRule, found.Result)
	if !s.quick {
		part.addClairvoyant(part.setting, part.trace)
	}
}

// targetsOf returns targets as they are written in a set.
func targetsOf(targets []autoscale.Target) []v1beta1.AutoscalingTarget {
	var out []v1beta1.AutoscalingTarget
	for _, target := range targets {
		value := strconv.FormatFloat(target.Value, 'f', -1, 64)
		switch target.Metric {
		case autoscale.KVCacheUse:
			value = strconv.FormatFloat(rounded(target.Value*100, 1e6), 'f', -1, 64) + "%"
		case autoscale.TimeToFirstToken, autoscale.TimePerOutputToken:
			value = time.Duration(target.Value * float64(time.Second)).String()
		}
		out = append(out, v1beta1.AutoscalingTarget{Metric: v1beta1.AutoscalingMetric(target.Metric), Value: value})
	}
	return out
}
