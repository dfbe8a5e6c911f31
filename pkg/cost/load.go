// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"math"
	"time"
)

// The least data for advice: the time in which a model answers, in total and in hourly details, and the tokens.
const (
	leastServing = 3 * 24 * time.Hour
	leastHourly  = 24 * time.Hour
	leastTokens  = 100_000
)

// shortest is the shortest time that a rate is computed for, because tokens are counted only every few minutes.
const shortest = 15 * time.Minute

// Rate is a rate in tokens per second.
type Rate struct{ Prompt, Output float64 }

func (r Rate) max(other Rate) Rate {
	return Rate{max(r.Prompt, other.Prompt), max(r.Output, other.Output)}
}

func (r Rate) times(factor Rate) Rate {
	return Rate{r.Prompt * factor.Prompt, r.Output * factor.Output}
}

// Load is the work of a Workspace's engine on one type of machine. Times are wall time.
type Load struct {
	// Serving is the time in which a model answered, and Hourly the part of it with hourly details.
	Serving, Hourly time.Duration
	Prompt, Output  int64
	// Busiest is the rate of the busiest hour. For days without hourly details, it is the mean rate of the day, times the
	// ratio of the busiest hour to the mean of the hours with details.
	Busiest Rate
}

// Mean returns the mean rate while a model answered.
func (l *Load) Mean() Rate { return rateOf(l.Prompt, l.Output, l.Serving) }

// Problem returns why the load is too little for advice; empty if it is enough.
func (l *Load) Problem() string {
	// Rounded down, so that too short a time does not look like enough.
	days := func(d time.Duration) string { return fmt.Sprintf("%.1f", math.Floor(d.Hours()/24*10)/10) }
	switch {
	case l.Serving < leastServing:
		return fmt.Sprintf("the model answered for only %s days of the period on the present machine type, and advice requires %s", days(l.Serving), days(leastServing))
	case l.Hourly < leastHourly:
		return fmt.Sprintf("the model answered for only %.0f of the last 48 hours, and advice requires %.0f", math.Floor(l.Hourly.Hours()), leastHourly.Hours())
	case l.Output == 0:
		return "no tokens were counted: if nobody uses the model, suspend the Workspace; otherwise check the chart's value cost.countTokens"
	case l.Output < leastTokens:
		return fmt.Sprintf("only %d output tokens were counted, and advice requires %d", l.Output, leastTokens)
	default:
		return ""
	}
}

// LoadOf returns the load of a Workspace on some machines of one type. The charges must have hours for the last two
// days.
func LoadOf(charges []Charge, of Name, instanceType string, machines int) Load {
	periods := map[string]*Cells{}
	for i := range charges {
		charge := &charges[i]
		if charge.Namespace != of.Namespace || charge.Workspace != of.Workspace || charge.InstanceType != instanceType {
			continue
		}
		if periods[charge.Period] == nil {
			periods[charge.Period] = &Cells{}
		}
		periods[charge.Period].Add(&charge.Cells)
	}
	var out Load
	var days, hours Rate
	var hourly Cells
	for label, cells := range periods {
		wall := time.Duration(cells.Serving.Millis/int64(max(machines, 1))) * time.Millisecond
		out.Serving += wall
		out.Prompt, out.Output = sum(out.Prompt, cells.Prompt), sum(out.Output, cells.Output)
		rate := rateOf(cells.Prompt, cells.Output, max(wall, shortest))
		if len(label) < len(hourLabel) {
			days = days.max(rate)
			continue
		}
		hours = hours.max(rate)
		hourly.Add(cells)
		out.Hourly += wall
	}
	mean := rateOf(hourly.Prompt, hourly.Output, max(out.Hourly, shortest))
	out.Busiest = hours.max(days.times(Rate{ratio(hours.Prompt, mean.Prompt), ratio(hours.Output, mean.Output)}))
	return out
}

func rateOf(prompt, output int64, over time.Duration) Rate {
	if over <= 0 {
		return Rate{}
	}
	return Rate{float64(prompt) / over.Seconds(), float64(output) / over.Seconds()}
}

// ratio returns the ratio of a highest rate to its mean; at least 1.
func ratio(highest, mean float64) float64 {
	if mean <= 0 {
		return 1
	}
	return max(highest/mean, 1)
}
