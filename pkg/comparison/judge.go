// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"fmt"
	"math"
	"time"
)

// Margins are how much worse a new template may be.
type Margins struct {
	// Errors is in percentage points.
	Errors int
	// FirstToken and PerToken are in percent; 0 means that the times are not compared.
	FirstToken, PerToken int
	// Requests is how many requests each template needs for a verdict.
	Requests int
}

// Replicas is the number of ready replicas with each template.
type Replicas struct{ New, Previous int }

// State is the result of a comparison.
type State string

// The states.
const (
	// Undecided: the requests are too few, or cannot be compared.
	Undecided State = "Undecided"
	// Passed: the requests suffice, and show no difference above the margins.
	Passed State = "Passed"
	// Worse: the new template is worse by more than a margin.
	Worse State = "Worse"
)

// Verdict is the result of a comparison with its reason. The reason of an undecided one has no figure that changes with
// each request.
type Verdict struct {
	State   State
	Message string
}

// critical is the quantile of the normal distribution for a one-sided test at the level of 0.05%. The level is low,
// because the test is repeated while requests arrive, and one false alarm ends a rollout.
const critical = 3.29

// unfair is how many times more requests a replica with the new template may get than one with the previous template,
// for a comparison of times: a busy engine is slower.
const unfair = 1.25

// Judge compares the templates. Only a difference that is larger than its margin at the level of the test counts.
//
// Errors: the lower bound of the difference of the two shares, by Newcombe's method 10, which combines Wilson's score
// intervals and holds for few errors and for none (Newcombe, Statistics in Medicine 17, 1998, 873-890).
//
// Times: Welch's test of the difference of the mean logarithms, which is the ratio of the geometric means (Welch,
// Biometrika 34, 1947, 28-35). The requests that Margins asks for make the normal distribution a good approximation.
func Judge(pair Pair, margins Margins, replicas Replicas) Verdict {
	least := int64(max(1, margins.Requests))
	switch {
	case pair.New.Requests() < least:
		return undecided("the routers have counted fewer than %d requests to the new template", least)
	case pair.Previous.Requests() < least:
		return undecided("the routers have counted fewer than %d requests to the previous template", least)
	}
	if verdict := failures(pair, margins); verdict.State == Worse {
		return verdict
	}
	out := Verdict{State: Passed}
	for _, each := range []struct {
		name          string
		margin        int
		new, previous Times
	}{
		{"time to the first token", margins.FirstToken, pair.New.FirstToken, pair.Previous.FirstToken},
		{"time per output token", margins.PerToken, pair.New.PerToken, pair.Previous.PerToken},
	} {
		if each.margin <= 0 {
			continue
		}
		var verdict Verdict
		switch {
		case isUnfair(pair, replicas):
			verdict = undecided("each replica with the new template gets more requests than one with the previous template, " +
				"so their times cannot be compared: lower canaryWeight")
		case each.new.Count < least || each.previous.Count < least:
			verdict = undecided("the routers have counted fewer than %d streamed answers of each template", least)
		default:
			verdict = times(each.name, each.new, each.previous, each.margin)
		}
		if verdict.State == Worse {
			return verdict
		}
		if verdict.State == Undecided {
			out = verdict
		}
	}
	return out
}

// Unknown returns the verdict if the counts are unknown.
func Unknown(reason error) Verdict { return Verdict{State: Undecided, Message: reason.Error()} }

func undecided(format string, args ...any) Verdict {
	return Verdict{State: Undecided, Message: fmt.Sprintf(format, args...)}
}

// isUnfair reports whether replicas with the new template get more requests than the others.
func isUnfair(pair Pair, replicas Replicas) bool {
	perNew := float64(pair.New.Requests()) / float64(max(1, replicas.New))
	perPrevious := float64(pair.Previous.Requests()) / float64(max(1, replicas.Previous))
	return perNew > unfair*perPrevious
}

// failures compares the shares of failed requests.
func failures(pair Pair, margins Margins) Verdict {
	share, previous := shareOf(pair.New), shareOf(pair.Previous)
	if leastDifference(critical, pair.New, pair.Previous) <= float64(margins.Errors)/100 {
		return Verdict{State: Passed}
	}
	return Verdict{State: Worse, Message: fmt.Sprintf(
		"%s of %d requests to the new template failed, but only %s of %d to the previous one; at most %d percentage points more are allowed",
		percent(share), pair.New.Requests(), percent(previous), pair.Previous.Requests(), margins.Errors)}
}

// leastDifference returns the lower bound of the difference of the shares of two templates.
func leastDifference(quantile float64, now, previous Counts) float64 {
	a, b := shareOf(now), shareOf(previous)
	low, _ := wilson(quantile, a, now.Requests())
	_, high := wilson(quantile, b, previous.Requests())
	return a - b - math.Hypot(a-low, high-b)
}

func shareOf(c Counts) float64 { return float64(c.Failed) / float64(max(1, c.Requests())) }

// wilson returns Wilson's score interval of a share of n requests.
func wilson(quantile, share float64, n int64) (low, high float64) {
	count := float64(n)
	extra := quantile * quantile / count
	middle := share + extra/2
	width := quantile * math.Sqrt(share*(1-share)/count+extra/(4*count))
	return max(0, (middle-width)/(1+extra)), min(1, (middle+width)/(1+extra))
}

func times(name string, now, previous Times, margin int) Verdict {
	ratio := now.mean() - previous.mean()
	deviation := math.Sqrt(now.variance()/float64(now.Count) + previous.variance()/float64(previous.Count))
	if ratio-critical*deviation <= math.Log1p(float64(margin)/100) {
		return Verdict{State: Passed}
	}
	return Verdict{State: Worse, Message: fmt.Sprintf(
		"the %s is %.0f%% higher with the new template: %s (%d answers) instead of %s (%d answers); at most %d%% more is allowed",
		name, 100*math.Expm1(ratio), now.typical(), now.Count, previous.typical(), previous.Count, margin)}
}

// mean returns the mean of the logarithms.
func (t Times) mean() float64 { return t.Logs / float64(t.Count) }

// variance returns the variance of the logarithms.
func (t Times) variance() float64 {
	return max(0, t.Squares-t.Logs*t.Logs/float64(t.Count)) / float64(max(1, t.Count-1))
}

// typical returns the geometric mean.
func (t Times) typical() time.Duration {
	typical := time.Duration(math.Exp(t.mean()) * float64(time.Second))
	unit := time.Microsecond
	for typical/unit >= 1000 { // three digits say enough
		unit *= 10
	}
	return typical.Round(unit)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
