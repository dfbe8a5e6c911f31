// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Figures are the measurements.
type Figures struct {
	Workspaces int
	// MachinesTake is how long the cloud took to sell a machine.
	MachinesTake time.Duration
	// First is the course of the Workspaces in a new cluster. Load is the course of the timed ones, and Floor of their
	// stand-ins. In Script, a script writes the objects.
	First, Load, Floor, Script *Course
	// LoadWork, FloorWork and ScriptWork are the processor times of all programs until the last Workspace of each was ready.
	LoadWork, FloorWork, ScriptWork Work
	// Requests are the controller's requests from the first Workspace until all was quiet. Restart has the requests of
	// a later start.
	Requests, Restart Tally
	// Waiting are its requests during Waited, its wait for machines.
	Waiting Tally
	Waited  time.Duration
	// Peak is the controller's greatest memory, and Held its memory after a later start, in bytes.
	Peak, Held int64
}

// The budgets: see docs/benchmarks.md.
const (
	overScript = 1.5
	overFloor  = 1.15
	writesEach = 12
	readsEach  = 3
	eventsEach = 5
	memoryMost = 150e6
)

// Row is one line of the table.
type Row struct {
	What, Budget, Seen string
	Missed             bool
}

// Rows compares the figures with the budgets.
func (f Figures) Rows() []Row {
	rows := slices.Concat(f.times(), f.work(), f.costs())
	if f.MachinesTake > 0 {
		rows = slices.Insert(rows, 0, Row{What: "a machine takes", Seen: seconds(f.MachinesTake)})
	}
	return append(rows,
		Row{What: "controller's memory, peak", Seen: megabytes(f.Peak)},
		Row{"controller's memory, holding them", megabytes(memoryMost), megabytes(f.Held), f.Held > memoryMost},
	)
}

func (f Figures) times() []Row {
	claimed := Delays(f.Load.Applied, f.Load.Claimed)
	ready := Delays(f.Load.Applied, f.Load.Ready)
	serving := Delays(f.Load.Applied, f.Load.Serving)
	floor := Delays(f.Floor.Applied, f.Floor.Serving)
	script, scripted := Delays(f.Script.Applied, f.Script.Claimed), Delays(f.Script.Applied, f.Script.Serving)
	return []Row{
		timed("in a new cluster: apply → Ready, median", Percentile(Delays(f.First.Applied, f.First.Ready), 50)),
		timed("first → last Workspace applied", f.Load.Applied.span()),
		timed("  the same for the script", f.Script.Applied.span()),
		timed("script: apply → NodeClaim, median", Percentile(script, 50)),
		timed("script: apply → NodeClaim, 99 %", Percentile(script, 99)),
		compared("apply → first NodeClaim, median", Percentile(claimed, 50), Percentile(script, 50), "script", overScript),
		compared("apply → first NodeClaim, 99 %", Percentile(claimed, 99), Percentile(script, 99), "script", overScript),
		timed("apply → first NodeClaim, last", Percentile(claimed, 100)),
		timed("floor, median", Percentile(floor, 50)),
		timed("floor, last", Percentile(floor, 100)),
		timed("script: apply → pod ready, median", Percentile(scripted, 50)),
		timed("script: apply → pod ready, last", Percentile(scripted, 100)),
		compared("apply → pod ready, median", Percentile(serving, 50), Percentile(floor, 50), "floor", 0),
		compared("apply → pod ready, last", Percentile(serving, 100), Percentile(floor, 100), "floor", 0),
		compared("apply → Ready, median", Percentile(ready, 50), Percentile(floor, 50), "floor", overFloor),
		compared("  the same against the script", Percentile(ready, 50), Percentile(scripted, 50), "script", 0),
		compared("apply → Ready, last", Percentile(ready, 100), Percentile(floor, 100), "floor", overFloor),
		compared("  the same against the script", Percentile(ready, 100), Percentile(scripted, 100), "script", 0),
	}
}

// work returns the processor times until all were ready.
func (f Figures) work() []Row {
	row := func(what string, of func(Work) time.Duration) Row {
		return Row{What: what, Seen: fmt.Sprintf("%s, %s, %s", seconds(of(f.LoadWork)), seconds(of(f.FloorWork)), seconds(of(f.ScriptWork)))}
	}
	rows := []Row{row("processor time, the same of the floor, of the script", Work.all)}
	for _, name := range f.LoadWork.programs(f.FloorWork, f.ScriptWork) {
		rows = append(rows, row("  "+name, func(w Work) time.Duration { return w[name] }))
	}
	return rows
}

func (f Figures) costs() []Row {
	each := func(n int) float64 { return float64(n) / float64(max(f.Workspaces, 1)) }
	return []Row{
		counted("writes for a Workspace", each(f.Requests.Writes), writesEach),
		counted("reads for a Workspace", each(f.Requests.Reads), readsEach),
		counted("Events for a Workspace", each(f.Requests.Events), eventsEach),
		{What: "Leases and watches meanwhile", Seen: fmt.Sprintf("%d, %d", f.Requests.Leases, f.Requests.Watches)},
		counted("requests a minute while waiting", perMinute(f.Waiting.Writes+f.Waiting.Reads+f.Waiting.Events, f.Waited), 0),
		counted("writes after a restart", float64(f.Restart.Writes), 0),
	}
}

func timed(what string, seen time.Duration) Row { return Row{What: what, Seen: seconds(seen)} }

// compared returns a row with a time, and its ratio to that of the floor or of the script, if there is one; a budget of 0
// is none.
func compared(what string, seen, reference time.Duration, name string, budget float64) Row {
	if reference == 0 {
		return Row{What: what, Seen: seconds(seen)}
	}
	ratio := seen.Seconds() / reference.Seconds()
	row := Row{What: what, Seen: fmt.Sprintf("%s, %.2f × %s", seconds(seen), ratio, name)}
	if budget > 0 {
		row.Budget, row.Missed = fmt.Sprintf("%.2f × %s", budget, name), ratio > budget
	}
	return row
}

// within returns a row with a time that has a budget.
func within(what string, seen, budget time.Duration) Row {
	return Row{what, seconds(budget), seconds(seen), seen > budget}
}

func counted(what string, seen, budget float64) Row {
	return Row{what, fmt.Sprintf("%g", budget), fmt.Sprintf("%.4g", seen), seen > budget}
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.0f MB", float64(bytes)/1e6) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Missed counts the missed budgets.
func (f Figures) Missed() int { return missed(f.Rows()) }

func missed(rows []Row) int {
	n := 0
	for _, row := range rows {
		if row.Missed {
			n++
		}
	}
	return n
}

// part are requests, to be divided by a number.
type part struct {
	what  string
	tally Tally
	each  int
}

// Print writes the table, and below it the kinds of requests.
func (f Figures) Print(out io.Writer) error {
	return printAll(out, fmt.Sprintf("%d WORKSPACES AT ONCE", f.Workspaces), f.Rows(),
		part{"for a Workspace", f.Requests, max(f.Workspaces, 1)}, part{"while waiting, in all", f.Waiting, 1}, part{"after a restart, in all", f.Restart, 1})
}

func printAll(out io.Writer, title string, rows []Row, parts ...part) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tBUDGET\tSEEN\n", title)
	for _, row := range rows {
		mark := ""
		if row.Missed {
			mark = "  over"
		}
		fmt.Fprintf(table, "%s\t%s\t%s%s\n", row.What, row.Budget, row.Seen, mark)
	}
	for _, part := range parts {
		fmt.Fprintf(table, "\nREQUESTS %s\t\t\n", part.what)
		for _, kind := range slices.Sorted(maps.Keys(part.tally.Kinds)) {
			fmt.Fprintf(table, "%s\t\t%.4g\n", kind, float64(part.tally.Kinds[kind])/float64(part.each))
		}
	}
	return table.Flush()
}
