// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MostSchedule is the longest duration of a schedule.
const MostSchedule = 7 * 24 * time.Hour

// Schedule has different limits for a recurring time.
type Schedule struct {
	Name string
	Cron Cron
	// Location is the time zone of the cron expression; nil means UTC.
	Location *time.Location
	// Duration is how long the schedule applies after each start.
	Duration time.Duration
	// Min and Max replace the policy's bounds; nil leaves them unchanged.
	Min, Max *int
}

// isActive reports whether the schedule applies at a moment.
func (s *Schedule) isActive(at time.Time) bool {
	location := s.Location
	if location == nil {
		location = time.UTC
	}
	duration := min(s.Duration, MostSchedule)
	for minute := at.Truncate(time.Minute); at.Sub(minute) < duration; minute = minute.Add(-time.Minute) {
		if s.Cron.matches(minute.In(location)) {
			return true
		}
	}
	return false
}

// Cron is a cron expression: sets of minutes, hours, days, months and weekdays.
type Cron struct {
	minutes, hours, days, months, weekdays uint64
	// anyDay and anyWeekday: the field begins with *. If neither does, a match of either field is enough.
	anyDay, anyWeekday bool
}

// ParseCron parses an expression of five fields: minute, hour, day of the month, the month itself, and weekday (0 and 7 are Sunday).
// Each field is *, a number, a range, or a list of these, and may have a step such as */5.
func ParseCron(text string) (Cron, error) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return Cron{}, fmt.Errorf("%q has %d fields: it must have five: minute, hour, day, month, weekday", text, len(fields))
	}
	var out Cron
	for i, field := range []struct {
		name        string
		least, most int
		into        *uint64
	}{
		{"minute", 0, 59, &out.minutes},
		{"hour", 0, 23, &out.hours},
		{"day", 1, 31, &out.days},
		{"month", 1, 12, &out.months},
		{"weekday", 0, 7, &out.weekdays},
	} {
		set, err := parseField(fields[i], field.least, field.most)
		if err != nil {
			return Cron{}, fmt.Errorf("%q: %s: %w", text, field.name, err)
		}
		*field.into = set
	}
	if out.weekdays&(1<<7) != 0 {
		out.weekdays |= 1
	}
	out.anyDay, out.anyWeekday = strings.HasPrefix(fields[2], "*"), strings.HasPrefix(fields[4], "*")
	return out, nil
}

func parseField(text string, least, most int) (uint64, error) {
	var set uint64
	for part := range strings.SplitSeq(text, ",") {
		bounds, stepText, hasStep := strings.Cut(part, "/")
		step := 1
		if hasStep {
			var err error
			if step, err = number(stepText, 1, most); err != nil {
				return 0, err
			}
		}
		first, last := least, most
		if bounds != "*" {
			low, high, isRange := strings.Cut(bounds, "-")
			var err error
			if first, err = number(low, least, most); err != nil {
				return 0, err
			}
			switch {
			case isRange:
				if last, err = number(high, first, most); err != nil {
					return 0, err
				}
			case !hasStep:
				last = first
			}
		}
		for i := first; i <= last; i += step {
			set |= 1 << i
		}
	}
	return set, nil
}

func number(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most || text[0] == '+' {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, least, most)
	}
	return n, nil
}

func (c *Cron) matches(at time.Time) bool {
	has := func(set uint64, value int) bool { return set&(1<<value) != 0 }
	if !has(c.minutes, at.Minute()) || !has(c.hours, at.Hour()) || !has(c.months, int(at.Month())) {
		return false
	}
	day, weekday := has(c.days, at.Day()), has(c.weekdays, int(at.Weekday()))
	if c.anyDay || c.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// bounds are the limits of the number of replicas at a moment.
type bounds struct {
	min, max int
	// schedule is the name of the last schedule that sets min or max; empty if none does.
	schedule string
}

// boundsAt returns the limits at a moment. A higher minimum applies a lead time early, so that its replicas are ready
// in time.
func (p *Policy) boundsAt(now time.Time, lead time.Duration) bounds {
	out := p.scheduled(now)
	if ahead := p.scheduled(now.Add(lead)); ahead.min > out.min {
		out.min, out.schedule = ahead.min, ahead.schedule
		out.max = max(out.max, ahead.min)
	}
	return out
}

// scheduled returns the limits that the schedules set for a moment. If several apply, the last one in
// the list that sets a bound wins.
func (p *Policy) scheduled(at time.Time) bounds {
	out := bounds{min: p.Min, max: p.Max}
	for i := range p.Schedules {
		s := &p.Schedules[i]
		if !s.isActive(at) {
			continue
		}
		if s.Max != nil {
			out.max, out.schedule = max(0, *s.Max), s.Name
		}
		if s.Min != nil {
			out.min, out.schedule = max(0, *s.Min), s.Name
		}
	}
	out.min = min(out.min, out.max)
	return out
}
