// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
)

// tunedData is the output for programs; its JSON is stable.
type tunedData struct {
	Goal      string `json:"goal"`
	IsReached bool   `json:"goalReached"`
	// IsJudged: the found targets also reach the goal on all requests that the search has not used. It is unset if there
	// are no such requests.
	IsJudged    *bool           `json:"goalReachedOnOtherRequests,omitempty"`
	Autoscaling tunedTargets    `json:"autoscaling"`
	Present     tunedTargets    `json:"presentAutoscaling"`
	Requests    []tunedRequests `json:"requests"`
	Remedies    []string        `json:"remedies,omitempty"`
}

// tunedTargets is a part of spec.autoscaling.
type tunedTargets struct {
	Targets []v1beta1.AutoscalingTarget `json:"targets"`
}

// tunedRequests has the results on some of the requests.
type tunedRequests struct {
	Name  string       `json:"name"`
	Use   string       `json:"use"`
	Count int          `json:"count"`
	Rules []ruleResult `json:"rules"`
}

// The uses of requests.
const (
	useSearch = "search"
	useJudge  = "judge"
)

func (t *tuned) data() tunedData {
	out := tunedData{
		Goal: goalWords(t.goal), IsReached: t.isReached(), IsJudged: t.isJudged(), Remedies: t.advice,
		Autoscaling: tunedTargets{targetsOf(t.found.Policy.Targets)}, Present: tunedTargets{targetsOf(t.present.Policy.Targets)},
	}
	for i, part := range t.extracts {
		out.Requests = append(out.Requests, tunedRequests{Name: part.name, Use: useOf(i), Count: len(part.trace), Rules: part.rules})
	}
	return out
}

func useOf(index int) string {
	if index == 0 {
		return useSearch
	}
	return useJudge
}

func (t *tuned) isReached() bool { return t.found.Attained >= t.goal.Share }

// isPresent reports whether the search found nothing better than the present targets.
func (t *tuned) isPresent() bool { return t.found.Result == t.present.Result }

// isJudged returns nil if there are no requests to judge by.
func (t *tuned) isJudged() *bool {
	if len(t.extracts) == 1 {
		return nil
	}
	return new(len(t.missed()) == 0)
}

// missed returns the requests outside the search on which the found targets miss the goal.
func (t *tuned) missed() []string {
	var out []string
	for _, part := range t.extracts[1:] {
		if found := part.rule(foundRule); !found.IsReached {
			out = append(out, fmt.Sprintf("%s (%s in time)", part.name, inTime(found.Attained)))
		}
	}
	return out
}

func (s *tuneCommand) show(w World, t *tuned) error {
	for _, part := range t.extracts {
		part.compare()
	}
	if s.forPrograms() {
		return s.data(w.Out, t.data())
	}
	out := page{w.Out, newStyle(w)}
	t.title(out)
	t.facts(out)
	out.fact("present", targetWords(t.present.Policy.Targets))
	out.fact("found", targetWords(t.found.Policy.Targets))
	out.heading("Results")
	if err := table(w.Out, "  ", t.rows()); err != nil {
		return err
	}
	out.line("")
	t.remarks(out)
	return t.snippet(out)
}

func targetWords(targets []autoscale.Target) string {
	var texts []string
	for _, target := range targetsOf(targets) {
		texts = append(texts, fmt.Sprintf("%s %s", target.Metric, target.Value))
	}
	return strings.Join(texts, ", ")
}

func (t *tuned) rows() [][]string {
	rows := [][]string{{"REQUESTS", "USED TO", "TARGETS", "USD", "OF CLAIRVOYANT", "IN TIME", "GOAL"}}
	for i, part := range t.extracts {
		for j := range part.rules {
			rows = append(rows, append([]string{part.name, useOf(i)}, part.rules[j].verdict()...))
		}
	}
	return rows
}

// remarks explains the results.
func (t *tuned) remarks(out page) {
	good, bad := out.paint(green, "✓"), out.paint(yellow, "!")
	switch {
	case !t.isReached():
		out.point(bad, fmt.Sprintf("No targets reach the goal. The closest ones answer %s of the requests in time.", inTime(t.found.Attained)))
		for _, advice := range t.advice {
			out.point(" ", advice)
		}
		return
	case t.isPresent():
		out.point(good, "The search found no cheaper targets than the present ones.")
	}
	switch missed := t.missed(); {
	case len(t.extracts) == 1:
		out.point(bad, "The trace is too short to test the targets on other requests, so they may fit only this trace.")
	case len(missed) > 0:
		out.point(bad, fmt.Sprintf("The found targets miss the goal on %s: they fit the requests of the search too closely. Raise --percentile for the search, or give it a longer trace.",
			strings.Join(missed, " and ")))
	default:
		out.point(good, "The found targets also reach the goal on requests that the search has not used.")
	}
}

// snippet writes the targets as a part of a set.
func (t *tuned) snippet(out page) error {
	if t.isPresent() {
		return nil
	}
	text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"autoscaling": tunedTargets{targetsOf(t.found.Policy.Targets)}}})
	if err != nil {
		return fmt.Errorf("writing the targets: %w", err)
	}
	out.heading("To write into the set")
	out.line("%s", strings.TrimSuffix(string(text), "\n"))
	return nil
}
