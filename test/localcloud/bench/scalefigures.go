// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"time"
)

// The budgets of a large cluster: see docs/benchmarks.md.
const (
	settledMost    = 30 * time.Second
	killedMost     = 20 * time.Second
	terminatedMost = 2 * time.Second
	// millicoresMost is for each thousand Workspaces, and manyMemoryMost for more than a thousand.
	millicoresMost = 5
	manyMemoryMost = 512e6
	// restReads are the controller's reads for any number of Workspaces: the API server's kinds, the settings, and the
	// region.
	restReads = 10
)

// Rows compares the figures with the budgets.
func (f ScaleFigures) Rows() []Row {
	each := func(n int) float64 { return float64(n) / float64(max(f.Workspaces, 1)) }
	memory := float64(memoryMost)
	if f.Workspaces > 1000 {
		memory = manyMemoryMost
	}
	inMemory := func(what string, seen int64) Row {
		return Row{what, megabytes(int64(memory)), megabytes(seen), float64(seen) > memory}
	}
	load := f.Load
	rows := []Row{
		{What: "other nodes", Seen: fmt.Sprint(f.Nodes)},
		timed("a machine takes", f.MachinesTake),
		timed("first → last Workspace created", load.Applied.span()),
		staged("created → NodeClaim", load.Applied, load.Claimed),
		staged("NodeClaim → pod ready", load.Claimed, load.Serving),
		staged("pod ready → Ready", load.Serving, load.Ready),
		staged("created → Ready", load.Applied, load.Ready),
		counted("writes for a Workspace", each(f.Requests.Writes), writesEach),
		counted("reads for a Workspace", each(f.Requests.Reads), readsEach),
		counted("Events for a Workspace", each(f.Requests.Events), eventsEach),
		{What: "controller's processor time for a Workspace", Seen: fmt.Sprintf("%.1f ms", f.LoadWork[release].Seconds()*1000/float64(max(f.Workspaces, 1)))},
		inMemory("controller's memory, peak", f.Peak),
		inMemory("controller's memory, at rest", f.RestMemory),
		f.rest(),
		counted("writes a minute at rest", perMinute(f.Resting.Writes+f.Resting.Events, f.Rest), 0),
		counted("reads a minute at rest", perMinute(f.Resting.Reads, f.Rest), restReads),
		counted("writes after a restart", float64(f.Restart.Writes), 0),
		{What: "reads after a restart", Seen: fmt.Sprint(f.Restart.Reads)},
		within("new leader → settled", f.Settled, settledMost),
		{What: "controller's processor time after a restart", Seen: seconds(f.RestartCPU)},
		inMemory("controller's memory after a restart", f.Held),
		timed("SIGKILL of the leader → Lease", f.Killed.Led),
		within("SIGKILL of the leader → NodeClaim", f.Killed.Worked, killedMost),
		timed("SIGTERM of the leader → Lease", f.Terminated.Led),
		within("SIGTERM of the leader → NodeClaim", f.Terminated.Worked, terminatedMost),
	}
	return append(rows, f.LoadWork.rows()...)
}

func (f ScaleFigures) rest() Row {
	budget := millicoresMost * max(float64(f.Workspaces)/1000, 1)
	seen := f.RestCPU.Seconds() / max(f.Rest, time.Second).Seconds() * 1000
	return Row{"controller's processor time at rest", fmt.Sprintf("%g millicores", budget), fmt.Sprintf("%.1f millicores", seen), seen > budget}
}

func perMinute(count int, over time.Duration) float64 {
	return float64(count) / max(over, time.Second).Minutes()
}

// staged returns a row with the median and the 99th percentile of a stage, and its end.
func staged(what string, from, to Times) Row {
	delays := Delays(from, to)
	return Row{What: what + ", 50 %, 99 %, last", Seen: fmt.Sprintf("%s, %s, %s",
		seconds(Percentile(delays, 50)), seconds(Percentile(delays, 99)), seconds(Percentile(delays, 100)))}
}

// Missed counts the missed budgets.
func (f ScaleFigures) Missed() int { return missed(f.Rows()) }

// Print writes the table, and below it the kinds of requests.
func (f ScaleFigures) Print(out io.Writer) error {
	return printAll(out, fmt.Sprintf("%d WORKSPACES", f.Workspaces), f.Rows(),
		part{"for a Workspace", f.Requests, max(f.Workspaces, 1)}, part{"at rest, in all", f.Resting, 1}, part{"after a restart, in all", f.Restart, 1})
}
