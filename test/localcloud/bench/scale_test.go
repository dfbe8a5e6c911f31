// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelberth/modelberth/test/localcloud/internal/golden"
)

func TestScaleFigures(t *testing.T) {
	good := ScaleFigures{
		Figures: Figures{
			Workspaces: 1000, MachinesTake: 30 * time.Second, Load: course(1, 20, 21), Peak: 149e6, Held: 110e6,
			Requests: Tally{Writes: 12000, Reads: 3000, Events: 5000, Kinds: map[string]int{"create nodeclaims": 1000}},
			Restart:  Tally{Reads: 7, Kinds: map[string]int{"list workspaces": 7}},
			LoadWork: Work{"etcd": 9 * time.Second, "kube-apiserver": 90 * time.Second, release: 20 * time.Second},
		},
		Scale: Scale{Nodes: 5000, Rest: time.Minute}, RestMemory: 120e6, RestCPU: 290 * time.Millisecond,
		RestartCPU: 4 * time.Second, Settled: 29 * time.Second,
		Killed:     Handover{Led: 16 * time.Second, Worked: 17 * time.Second},
		Terminated: Handover{Led: time.Second, Worked: 1900 * time.Millisecond},
	}
	bad := good
	bad.Peak, bad.RestMemory, bad.Held = 151e6, 152e6, 153e6
	bad.RestCPU, bad.Settled = 310*time.Millisecond, 31*time.Second
	bad.Resting = Tally{Writes: 1, Kinds: map[string]int{"patch workspaces/status": 1}}
	bad.Restart.Writes = 1
	bad.Killed.Worked, bad.Terminated.Worked = 21*time.Second, 3*time.Second
	many := good
	many.Workspaces, many.Peak, many.RestCPU = 10000, 511e6, 2900*time.Millisecond
	for name, test := range map[string]struct {
		figures ScaleFigures
		missed  int
	}{
		"scale.txt":      {good, 0},
		"scale-over.txt": {bad, 9},
		"scale-many.txt": {many, 0}, // ten times the Workspaces may take ten times the processor, and more memory
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := test.figures.Print(&out); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, out.String(), *update)
			if got := test.figures.Missed(); got != test.missed {
				t.Errorf("%d figures exceed their budgets, want %d", got, test.missed)
			}
		})
	}
}

func TestLastWork(t *testing.T) {
	request := func(second float64, verb, resource string) Request {
		r := Request{Verb: verb, Done: at(second)}
		r.Object.Resource = resource
		return r
	}
	for _, test := range []struct {
		reason   string
		requests []Request
		want     time.Time
	}{
		{"a leader without requests has not worked", nil, at(10)},
		{"requests of the former leader do not count", []Request{request(9, "patch", "services")}, at(10)},
		{"the last request counts", []Request{request(11, "list", "nodes"), request(12, "patch", "services")}, at(12)},
		{
			"renewals of the Lease and watches are no work",
			[]Request{request(11, "get", "nodes"), request(12, "update", "leases"), request(13, "watch", "pods")},
			at(11),
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := lastWork(test.requests, at(10)); !got.Equal(test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestProcessorTime(t *testing.T) {
	const stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 %s %s 0 0 20 0 9 0 100 0 0"
	for _, test := range []struct {
		reason, user, system string
		want                 time.Duration
		isWrong              bool
	}{
		{"user and system time are added", "120", "30", 1500 * time.Millisecond, false},
		{"a text that is no number is refused", "x", "30", 0, true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			got, err := processorTime(fmt.Appendf(nil, stat, test.user, test.system))
			if got != test.want || (err != nil) != test.isWrong {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	if _, err := processorTime([]byte("7 (a) S 1")); err == nil {
		t.Error("a text that is cut off is accepted")
	}
}
