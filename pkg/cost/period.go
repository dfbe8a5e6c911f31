// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import "time"

// Details are kept by the hour for two days, by the day for two months, and by the month for two years. All periods are
// in UTC, as are those of the clouds' costs.
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

// labels lists the layouts, the finest first.
func labels() []string { return []string{hourLabel, dayLabel, monthLabel} }

// horizon has the beginnings of the hours, days and months to keep.
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

// floor is the beginning of a period.
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

// next is the beginning of the period after that of t.
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

// period returns the label of the period of t, and the end of the label's time.
func (h *horizon) period(t time.Time) (string, time.Time) {
	t = t.UTC()
	switch {
	case !t.Before(h.end): // a clock that was ahead
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

// spread splits some time from a moment on into the periods.
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

// Period is the time of a label; the zero time begins everything older than the kept periods.
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

// compact merges the periods of an account beyond the age of details.
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
