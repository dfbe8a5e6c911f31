// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale_test

import (
	"testing"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

func TestSchedules(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	five, two := 5, 2
	at := func(text string) time.Time {
		t.Helper()
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, c := range map[string]struct {
		reason   string
		cron     string
		location *time.Location
		duration time.Duration
		now      time.Time
		want     int
	}{
		"inside":           {"Monday, 12:00, within ten hours from 8", "0 8 * * 1-5", nil, 10 * time.Hour, at("2026-03-02T12:00:00Z"), 5},
		"ahead":            {"replicas are requested a lead time (5 min) earlier", "0 8 * * 1-5", nil, 10 * time.Hour, at("2026-03-02T07:56:00Z"), 5},
		"before":           {"not an hour earlier", "0 8 * * 1-5", nil, 10 * time.Hour, at("2026-03-02T07:00:00Z"), 2},
		"after":            {"over", "0 8 * * 1-5", nil, 10 * time.Hour, at("2026-03-02T18:00:00Z"), 2},
		"weekend":          {"Sunday", "0 8 * * 1-5", nil, 10 * time.Hour, at("2026-03-01T12:00:00Z"), 2},
		"past midnight":    {"from Friday, 22:00, for twelve hours", "0 22 * * 5", nil, 12 * time.Hour, at("2026-03-07T09:59:00Z"), 5},
		"time zone":        {"7:00 UTC is 8:00 in Berlin", "0 8 * * *", berlin, time.Hour, at("2026-03-02T07:30:00Z"), 5},
		"Sunday as 7":      {"7 is Sunday", "30 12 * * 7", nil, time.Hour, at("2026-03-01T13:00:00Z"), 5},
		"either day field": {"the second of the month, or a Friday", "0 0 2 * 5", nil, 24 * time.Hour, at("2026-03-02T10:00:00Z"), 5},
		"steps":            {"every 20 minutes, for five", "*/20 * * * *", nil, 5 * time.Minute, at("2026-03-02T12:43:00Z"), 5},
	} {
		t.Run(name, func(t *testing.T) {
			cron, err := autoscale.ParseCron(c.cron)
			if err != nil {
				t.Fatal(err)
			}
			p := policy(two, 9)
			p.Schedules = []autoscale.Schedule{{Name: "rush", Cron: cron, Location: c.location, Duration: c.duration, Min: &five}}
			got, _ := autoscale.Decide(p, autoscale.Signals{
				Now: c.now, Desired: 2, Engines: engines(2, 5), StartUps: []time.Duration{5 * time.Minute},
			}, autoscale.State{})
			if got.Replicas != c.want {
				t.Errorf("%s: got %d replicas, want %d", c.reason, got.Replicas, c.want)
			}
		})
	}
}

// TestLaterScheduleBeatsEarlier: five replicas every day from 8:00, but none on Saturdays.
func TestLaterScheduleBeatsEarlier(t *testing.T) {
	var schedules []autoscale.Schedule
	for i, least := range []int{5, 0} {
		cron, err := autoscale.ParseCron([]string{"0 8 * * *", "0 0 * * 6"}[i])
		if err != nil {
			t.Fatal(err)
		}
		schedules = append(schedules, autoscale.Schedule{Name: "s", Cron: cron, Duration: []time.Duration{10 * time.Hour, 24 * time.Hour}[i], Min: &least})
	}
	for _, c := range []struct {
		reason, now string
		want        int
	}{
		{"Friday", "2026-03-06T12:00:00Z", 5},
		{"Saturday: the later schedule counts", "2026-03-07T12:00:00Z", 2},
		{"Saturday, a lead time before the earlier one begins", "2026-03-07T07:58:00Z", 2},
		{"Sunday, a lead time before it begins", "2026-03-08T07:58:00Z", 5},
	} {
		p := policy(2, 9)
		p.Schedules = schedules
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := autoscale.Decide(p, autoscale.Signals{
			Now: now, Desired: 2, Engines: engines(2, 5), StartUps: []time.Duration{5 * time.Minute},
		}, autoscale.State{})
		if got.Replicas != c.want {
			t.Errorf("%s: %d replicas, want %d: %s", c.reason, got.Replicas, c.want, got.Message)
		}
	}
}

func TestParseCronRefuses(t *testing.T) {
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
		"5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", "a * * * *", "+1 * * * *", "-1 * * * *", "1-99 * * * *", "@daily",
	} {
		if _, err := autoscale.ParseCron(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzParseCron(f *testing.F) {
	f.Add("0 8 * * 1-5")
	f.Add("*/5,7-9/2 * 1 * 7")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = autoscale.ParseCron(text) // no panic, and no endless loop
	})
}
