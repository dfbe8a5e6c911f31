// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/modelberth/modelberth/pkg/upgrade"
	"github.com/modelberth/modelberth/pkg/usd"
)

// showPreflight writes the report for people.
func showPreflight(w World, out *preflight) error {
	s := newStyle(w)
	width, _ := w.size()
	for i := range out.Findings {
		f := &out.Findings[i]
		color := red
		if f.Problem == upgrade.RefusedIfNew {
			color = yellow
		}
		name := f.Name
		if f.Namespace != "" {
			name = f.Namespace + "/" + name
		}
		fmt.Fprintf(w.Out, "%s %s %s (%s)\n", s.paint(color, string(f.Problem)), f.Kind, name, f.Rule)
		for _, line := range chopped(f.Message, max(width-8, narrowest)) {
			fmt.Fprintln(w.Out, "        "+line)
		}
	}
	if err := showPlans(w, out); err != nil {
		return err
	}
	for _, note := range out.Notes {
		fmt.Fprintln(w.Out, "! "+note)
	}
	result := "no findings"
	if len(out.Findings) > 0 {
		result = count(len(out.Findings), "finding")
	}
	_, err := fmt.Fprintf(w.Out, "%s in %s, under the rules of version %s\n", result, count(out.Objects, "stored object"), out.Version)
	return err
}

// showPlans writes the plans that differ, and the number of all plans.
func showPlans(w World, out *preflight) error {
	rows, compared := [][]string{{"NAMESPACE", "NAME", "CHANGE", "PINNED", "THEN", "NOW", "NEW PLAN", "PRICE"}}, 0
	var notes []string
	for i := range out.Plans {
		p := &out.Plans[i]
		if p.Change != planNotCompared {
			compared++
		}
		if p.Change == planSame {
			continue
		}
		updated, price := "-", "-"
		if p.New != nil {
			updated, price = p.New.Machines, perHour(p.New.HourlyPrice)
		}
		rows = append(rows, []string{
			p.Namespace, p.Name, p.Change, p.Pinned.Machines, perHour(p.Pinned.HourlyPrice), perHour(p.Pinned.PriceNow), updated, price,
		})
		if p.Message != "" {
			notes = append(notes, fmt.Sprintf("%s/%s: %s", p.Namespace, p.Name, p.Message))
		}
	}
	if len(rows) > 1 {
		if err := table(w.Out, "", rows); err != nil {
			return err
		}
	}
	width, _ := w.size()
	for _, note := range notes {
		for _, line := range chopped(note, max(width-2, narrowest)) {
			fmt.Fprintln(w.Out, "  "+line)
		}
	}
	differ := len(rows) - 1 - (len(out.Plans) - compared)
	_, err := fmt.Fprintf(w.Out, "%d of %s would change if made again. The upgrade restarts nothing: a plan stays pinned until its Workspace changes.\n",
		differ, count(compared, "pinned plan"))
	return err
}

// perHour formats a price for a cell of a table.
func perHour(price *float64) string {
	if price == nil {
		return "-"
	}
	return usd.PerHour(*price)
}
