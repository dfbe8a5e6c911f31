// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbour

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// budget is how much longer than without a GPU machine the neighbour's pod may wait.
const budget = 5 * time.Second

// Times of one round, from the neighbour's pod on.
type Times struct {
	// Claimed is when Karpenter asked for a node, and Running when the pod ran on it.
	Claimed, Running time.Duration
	// Removed is when it gave an empty node up; 0 if the round did not wait for it.
	Removed time.Duration
}

func (t Times) String() string {
	text := fmt.Sprintf("NodeClaim after %s, running after %s", seconds(t.Claimed), seconds(t.Running))
	if t.Removed > 0 {
		text += ", empty node given up after " + seconds(t.Removed)
	}
	return text
}

// Course is how the rounds of one shape went.
type Course struct {
	Shape  string
	Rounds []Times
}

// Figures are the measurements; the first course has no GPU machine.
type Figures struct {
	Courses []Course
}

// each returns one of the times of all rounds with it, in order.
func (c Course) each(take func(Times) time.Duration) []time.Duration {
	var out []time.Duration
	for _, times := range c.Rounds {
		if t := take(times); t > 0 {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

func claimed(t Times) time.Duration { return t.Claimed }
func running(t Times) time.Duration { return t.Running }
func removed(t Times) time.Duration { return t.Removed }

// over is how much longer the pod waits than without a GPU machine.
func (f Figures) over(c Course) time.Duration {
	return median(c.each(running)) - median(f.Courses[0].each(running))
}

// Missed counts the shapes with too long a wait for the neighbour.
func (f Figures) Missed() int {
	n := 0
	for _, course := range f.Courses {
		if f.over(course) > budget {
			n++
		}
	}
	return n
}

// Print writes the table.
func (f Figures) Print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BESIDE\tPOD → NODECLAIM\tPOD → RUNNING\tMORE THAN WITHOUT\tEMPTY NODE GIVEN UP")
	for i, course := range f.Courses {
		more := "-"
		if i > 0 && len(course.Rounds) > 0 {
			more = seconds(f.over(course))
			if f.over(course) > budget {
				more += "  over"
			}
		}
		gone := "-"
		if times := course.each(removed); len(times) > 0 {
			gone = seconds(median(times))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", course.Shape, spread(course.each(claimed)), spread(course.each(running)), more, gone)
	}
	return table.Flush()
}

// median of sorted times; 0 of none.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[len(times)/2]
}

// spread renders the median and the range of all.
func spread(times []time.Duration) string {
	if len(times) < 2 {
		return seconds(median(times))
	}
	return fmt.Sprintf("%s (%.1f–%.1f)", seconds(median(times)), times[0].Seconds(), times[len(times)-1].Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
