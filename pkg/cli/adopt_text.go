// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/takeover"
)

// servesNone says that KAITO's controller serves no Workspace in a namespace; empty means in all of them.
func servesNone(namespace string) string {
	if namespace == "" {
		return "KAITO's controller serves no Workspace in this cluster."
	}
	return "KAITO's controller serves no Workspace in namespace " + namespace + "."
}

// showTakeover writes a report for people on the Workspaces of a namespace; empty means all namespaces.
func showTakeover(out page, report *takeover.Report, namespace string) error {
	if len(report.Workspaces) == 0 {
		out.line("%s", servesNone(namespace))
	} else {
		if err := table(out.w, "", takeoverRows(report.Workspaces)); err != nil {
			return err
		}
		out.line("%s, %s%s. A takeover changes no pod, Service, machine or label.",
			count(len(report.Workspaces), "Workspace"), hourly(report.HourlyPrice), unpriced(report.Workspaces))
		showEdits(out, report.Workspaces)
	}
	if len(report.Obstacles) > 0 {
		out.heading("Obstacles to a takeover")
		for i := range report.Obstacles {
			o := &report.Obstacles[i]
			out.point(out.paint(red, "!"), fmt.Sprintf("%s %s: %s", o.ID, o.Object, o.Problem))
			out.line("      %s", o.Fix)
		}
	}
	if len(report.Uninstall) > 0 {
		out.heading("Remove KAITO's controller with these commands, never with helm uninstall")
		for _, step := range report.Uninstall {
			out.line("  # %s", step.Why)
			out.line("  %s", step.Command)
		}
	}
	return nil
}

func takeoverRows(entries []takeover.Entry) [][]string {
	rows := [][]string{{"WORKSPACE", "SET", "WORKLOAD", "MODE", "MACHINES", "USD/H", "STATE"}}
	for i := range entries {
		e := &entries[i]
		price := none
		if e.HourlyPrice > 0 {
			price = dollars(e.HourlyPrice)
		}
		state := string(e.State)
		if e.State == takeover.Unadopted {
			state = "KAITO's"
		}
		rows = append(rows, []string{
			e.Namespace + "/" + e.Name, text(e.InferenceSet), text(e.Workload), string(e.Mode), machinesText(e.Machines), price, state,
		})
	}
	return rows
}

// machinesText returns the number of machines of each type, as text.
func machinesText(machines []takeover.Machine) string {
	var types []string
	numbers := map[string]int{}
	for i := range machines {
		name := text(machines[i].InstanceType)
		numbers[name]++
		if numbers[name] == 1 {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	for i, name := range types {
		types[i] = fmt.Sprintf("%d x %s", numbers[name], name)
	}
	return text(strings.Join(types, ", "))
}

// showEdits describes the effect of the first edit of each Workspace.
func showEdits(out page, entries []takeover.Entry) {
	out.heading("At the first edit of resource or inference")
	for i := range entries {
		e := &entries[i]
		change := "acquires new machines"
		if len(e.Replaced) > 0 {
			change += "; replaces " + strings.Join(e.Replaced, ", ") + " once they are usable"
		}
		if len(e.Changed) > 0 {
			change += "; changes " + strings.Join(e.Changed, ", ") + ", whose address stays"
		}
		if len(e.Deleted) > 0 {
			change += "; deletes " + strings.Join(e.Deleted, ", ") + " once the new pods answer"
		}
		out.point("-", e.Namespace+"/"+e.Name+" "+change)
	}
}

// unpriced returns the number of machines without a known price, as text; empty if all have one.
func unpriced(entries []takeover.Entry) string {
	number := 0
	for i := range entries {
		for j := range entries[i].Machines {
			if entries[i].Machines[j].HourlyPrice == nil {
				number++
			}
		}
	}
	if number == 0 {
		return ""
	}
	return ", not counting " + count(number, "machine") + " of unknown price"
}
