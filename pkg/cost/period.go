// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import "time"

// The ledger keeps details by the hour for two days, by the day for two months, and by the month for two years. All
// periods are in UTC, as in the clouds' bills.
const (
	keptHours  = 48
	keptDays   = 62
	keptMonths = 24
)

// The labels of periods sort by time. Everything older than the oldest month has the label "".
const (
	hourLabel  = "2006-01-02T15"
	dayLabel   = "2006-01-02"
	monthLabel = "2006-01"
)

// labels returns the layouts, the finest first.
func labels() []string { return []string{hourLabel, dayLabel, monthLabel} }

// horizon has the beginnings of the oldest hour, day and month to keep, and the end of the current hour.
type horizon struct{ hours, days, months, end time.Time }

func horizonAt(now time.Time) horizon {
	now = now.UTC()
	hour := now.Truncate(time.Hour)
	day := floor(now, dayLabel)
	return horizon{
		hours:  hour.Add(-(keptHours - 1) * time.Hour),
		days:   day.AddDate(0, 0, -(keptDays - 1)),
		months: floor(now, monthLabel).AddDate(0, -(keptMonths - 1), 0),
		end:    hour.Add(time.Hour),
	}
}

// floor returns the beginning of the period of t.
func floor(t time.Time, layout string) time.Time {
	t = t.UTC()
	switch layout {
	case hourLabel:
		return t.Truncate(time.Hour)
	case dayLabel:
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
}

// next returns the beginning of the period after that of t.
func next(t time.Time, layout string) time.Time {
	switch begin := floor(t, layout); layout {
	case hourLabel:
		return begin.Add(time.Hour)
	case dayLabel:
		return begin.AddDate(0, 0, 1)
	default:
		return begin.AddDate(0, 1, 0)
	}
}

// period returns the label of the period of t, and the time when the next label begins.
func (h *horizon) period(t time.Time) (string, time.Time) {
	t = t.UTC()
	switch {
	case !t.Before(h.end): // the clock was ahead
		return h.end.Add(-time.Hour).Format(hourLabel), time.Time{}
	case !t.Before(h.hours):
		return t.Format(hourLabel), next(t, hourLabel)
	case !t.Before(h.days):
		return t.Format(dayLabel), earlier(next(t, dayLabel), h.hours)
	case !t.Before(h.months):
		return t.Format(monthLabel), earlier(next(t, monthLabel), h.days)
	default:
		return "", h.months
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// spread divides some time after a moment among the periods.
func (h *horizon) spread(from time.Time, millis int64, yield func(label string, millis int64)) {
	for t := from; millis > 0; {
		label, end := h.period(t)
		part := millis
		if left := end.Sub(t).Milliseconds(); !end.IsZero() {
			part = min(part, max(left, 1))
		}
		yield(label, part)
		millis -= part
		t = t.Add(time.Duration(part) * time.Millisecond)
	}
}

// Period returns the begin and the end of the period that a label names; ok is false for any other text. The empty label
// stands for everything older than the kept periods: its begin and end are zero.
func Period(label string) (begin, end time.Time, ok bool) {
	if label == "" {
		return time.Time{}, time.Time{}, true
	}
	for _, layout := range labels() {
		if begin, err := time.Parse(layout, label); err == nil && begin.Format(layout) == label {
			return begin, next(begin, layout), true
		}
	}
	return time.Time{}, time.Time{}, false
}

// compact merges periods that are too old for their level of detail.
func (p periods) compact(h *horizon) {
	for label := range p {
		begin, _, _ := Period(label)
		switch {
		case label == "":
		case begin.Before(h.months):
			p.move(label, "")
		case len(label) > len(monthLabel) && begin.Before(floor(h.days, dayLabel)):
			p.move(label, begin.Format(monthLabel))
		case len(label) > len(dayLabel) && begin.Before(h.hours):
			p.move(label, begin.Format(dayLabel))
		}
	}
}
