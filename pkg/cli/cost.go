// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/pkg/cost"
)

// Output formats of costs besides table and JSON.
const (
	formatCSV   = "csv"
	formatFOCUS = "focus"
)

// costCommand is kubectl berth cost.
type costCommand struct {
	connection
	ledgerSource

	format, by, since string
}

func newCost(w World) *cobra.Command {
	c := &costCommand{}
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Show the cost of Workspaces' machines by state, and their tokens",
		Long: `Show the cost of Workspaces' machines, by state: starting, serving, idle (served before), wasted (never served)
or leaked (the Workspace is gone). Prices are those on the day of purchase, without discounts. The administrator
turns the ledger on with the chart's value cost.enabled. Monthly budgets of namespaces are shown with
their use, if you may read the namespaces.

Without -A, the command reads the copy of the ledger that the controller keeps in your namespace (the chart's
cost.publish); you need permission to read ConfigMaps there. With -A, it reads the ledger of all namespaces from the
controller's namespace. Name that namespace with --ledger-namespace; you need permission to list ConfigMaps there.
Without --ledger-namespace, you need that permission in all namespaces, and the command fails if it finds more than
one ledger. Anyone with permission to write ConfigMaps can put a false ledger into a namespace: if the figures
matter, name the namespace.`,
		Example: `  kubectl berth cost
  kubectl berth cost -n team-a --since 7d
  kubectl berth cost -A --by namespace -o csv
  kubectl berth cost -A --by label=team
  kubectl berth cost -A --since 90d -o focus > modelberth.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), w) },
	}
	f := cmd.Flags()
	formats := []string{formatTable, formatJSON, formatCSV, formatFOCUS}
	f.StringVarP(&c.format, "output", "o", formatTable, "output format: "+strings.Join(formats, ", ")+" (FOCUS 1.3, CSV)")
	f.StringVar(&c.by, "by", "workspace", "grouping: workspace, namespace, instance-type or label=KEY")
	f.StringVar(&c.since, "since", "", "start of the period, as a duration such as 24h or 7d, or a date such as 2026-11-01; default: the beginning of the month (UTC)")
	c.ledgerSource.bind(cmd)
	c.connection.bind(cmd, w)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	complete(cmd, "output", func() []string { return formats })
	complete(cmd, "by", func() []string { return []string{"workspace", "namespace", "instance-type", "label="} })
	cmd.PreRunE = func(*cobra.Command, []string) error { return oneOf("--output", c.format, formats) }
	return cmd
}

func (c *costCommand) run(ctx context.Context, w World) error {
	by, err := c.grouping()
	if err != nil {
		return err
	}
	since, err := sinceOf(c.since, w.Clock.Now())
	if err != nil {
		return err
	}
	if err := c.ledgerSource.check(); err != nil {
		return err
	}
	cluster, err := c.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ledger, err := c.read(ctx, cluster)
	if err != nil {
		return err
	}
	charges := ledger.Charges(since)
	if c.format == formatFOCUS {
		omitted, err := cost.WriteFOCUS(w.Out, charges)
		if omitted > 0 {
			fmt.Fprintln(w.Err, "Costs from more than 24 months ago are left out: the ledger keeps only their sum, and FOCUS needs the period of each row.")
		}
		return err
	}
	report := costReportOf(ledger, since, charges, by)
	if report.Budgets, report.unknownBudgets, err = c.budgets(ctx, cluster, ledger, w.Clock.Now()); err != nil {
		return err
	}
	return c.show(w, report)
}

// grouping returns a function from a charge to the name of its line.
func (c *costCommand) grouping() (func(*cost.Charge) string, error) {
	label, isLabel := strings.CutPrefix(c.by, "label=")
	switch {
	case c.by == "workspace" && c.all:
		return func(charge *cost.Charge) string { return charge.Namespace + "/" + charge.Workspace }, nil
	case c.by == "workspace":
		return func(charge *cost.Charge) string { return charge.Workspace }, nil
	case c.by == "namespace":
		return func(charge *cost.Charge) string { return charge.Namespace }, nil
	case c.by == "instance-type":
		return func(charge *cost.Charge) string { return charge.InstanceType }, nil
	case isLabel && label != "":
		return func(charge *cost.Charge) string { return charge.Label(label) }, nil
	default:
		return nil, usageError("--by: %q is not supported: use workspace, namespace, instance-type or label=KEY", c.by)
	}
}

// sinceOf reads a duration with days, or a date.
func sinceOf(text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	if text == "" {
		return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC), nil
	}
	if date, err := time.Parse(time.DateOnly, text); err == nil {
		return date, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if span, err := time.ParseDuration(text); err == nil && span > 0 {
		return now.Add(-span), nil
	}
	return time.Time{}, usageError("--since: %q is neither a duration such as 24h or 7d nor a date such as 2026-11-01", text)
}

// costReport is the command's answer for programs.
type costReport struct {
	Since time.Time  `json:"since"`
	AsOf  time.Time  `json:"asOf"`
	Lines []costLine `json:"lines"`
	Total costLine   `json:"total"`
	// UnpricedHours are machine hours without a known price. They count as 0 USD.
	UnpricedHours float64 `json:"unpricedMachineHours,omitempty"`
	// Budgets are for the current month, regardless of the period of the costs.
	Budgets        []costBudget `json:"budgets,omitempty"`
	unknownBudgets string
}

type costLine struct {
	Name  string  `json:"name,omitempty"`
	USD   float64 `json:"usd"`
	Hours float64 `json:"machineHours"`
	// States has only states with machine time.
	States map[string]costState `json:"states,omitempty"`
	// UnsureHours is the part of Hours that no controller observed before machines were found gone: at most a quarter of
	// an hour for each machine.
	UnsureHours  float64 `json:"unsureHours,omitempty"`
	PromptTokens int64   `json:"promptTokens"`
	OutputTokens int64   `json:"outputTokens"`
	// PerMillion is the cost of a million output tokens, in USD over all states; absent without tokens. Planned is the
	// plan's figure.
	PerMillion *float64 `json:"usdPerMillionOutputTokens,omitempty"`
	Planned    string   `json:"plannedUSDPerMillionOutputTokens,omitempty"`
}

type costState struct {
	USD   float64 `json:"usd"`
	Hours float64 `json:"machineHours"`
}

func costReportOf(ledger *cost.Ledger, since time.Time, charges []cost.Charge, by func(*cost.Charge) string) *costReport {
	out := &costReport{Since: since, AsOf: ledger.Seen.UTC(), Lines: []costLine{}}
	plans := ledger.Plans()
	planned := map[string][]string{}
	for i := range charges {
		charge := &charges[i]
		name, plan := by(charge), plans[cost.Name{Namespace: charge.Namespace, Workspace: charge.Workspace}]
		if plan != "" && !slices.Contains(planned[name], plan) {
			planned[name] = append(planned[name], plan)
		}
	}
	var sum, unpriced cost.Cells
	for i := range charges {
		if charges[i].Price == cost.Unpriced {
			unpriced.Add(&charges[i].Cells)
		}
	}
	out.UnpricedHours = unpriced.Total().Hours()
	for _, group := range cost.Group(charges, by) {
		sum.Add(&group.Cells)
		line := costLineOf(group.Name, &group.Cells)
		if of := planned[group.Name]; len(of) == 1 { // several plans have no common figure
			line.Planned = of[0]
		}
		out.Lines = append(out.Lines, line)
	}
	out.Total = costLineOf("", &sum)
	return out
}

func costLineOf(name string, cells *cost.Cells) costLine {
	total := cells.Total()
	out := costLine{
		Name: name, USD: total.USD(), Hours: total.Hours(), States: map[string]costState{},
		UnsureHours: cost.Amount{Millis: cells.Unsure}.Hours(), PromptTokens: cells.Prompt, OutputTokens: cells.Output,
	}
	for _, state := range cost.States() {
		if amount := cells.Of(state); amount.Millis > 0 {
			out.States[state.String()] = costState{USD: amount.USD(), Hours: amount.Hours()}
		}
	}
	if price := cost.PerMillion(cells); price >= 0 {
		out.PerMillion = &price
	}
	return out
}

func (c *costCommand) show(w World, r *costReport) error {
	switch c.format {
	case formatJSON:
		encoder := json.NewEncoder(w.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case formatCSV:
		return r.csv(w.Out)
	}
	if len(r.Lines) == 0 {
		_, err := fmt.Fprintf(w.Err, "No machine has cost money since %s.\n", minute(r.Since))
		return errors.Join(err, showBudgets(w.Out, r.Budgets))
	}
	rows := [][]string{{"NAME", "COST", "SERVING", "STARTING", "IDLE", "WASTED", "LEAKED", "HOURS", "OUTPUT TOKENS", "$/M", "PLANNED"}}
	for i := range r.Lines {
		rows = append(rows, r.Lines[i].row(text(r.Lines[i].Name)))
	}
	if len(r.Lines) > 1 {
		rows = append(rows, r.Total.row("(all)"))
	}
	if err := errors.Join(table(w.Out, "", rows), showBudgets(w.Out, r.Budgets)); err != nil {
		return err
	}
	notes := fmt.Sprintf("In USD, from %s to %s.", minute(r.Since), minute(r.AsOf))
	if r.Total.UnsureHours > 0 {
		notes += fmt.Sprintf(" Machines ended while no controller was watching them, so %s of the machine time is uncertain.", hours(r.Total.UnsureHours))
	}
	if r.UnpricedHours > 0 {
		notes += fmt.Sprintf(" %s of machine time has no known price, and counts as $0.", hours(r.UnpricedHours))
	}
	if r.unknownBudgets != "" {
		notes += " Budgets are not shown: " + r.unknownBudgets + "."
	}
	_, err := fmt.Fprintln(w.Err, notes)
	return err
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" }

func hours(n float64) string { return strconv.FormatFloat(n, 'f', 2, 64) + " h" }

func (l *costLine) row(name string) []string {
	out := []string{name, inCents(l.USD)}
	for _, state := range []cost.State{cost.Serving, cost.Starting, cost.Idle, cost.Wasted, cost.Leaked} {
		amount, ok := l.States[state.String()]
		if !ok {
			out = append(out, none)
			continue
		}
		out = append(out, inCents(amount.USD))
	}
	tokens, perMillion, planned := none, none, none
	if l.OutputTokens > 0 {
		tokens = strconv.FormatInt(l.OutputTokens, 10)
	}
	if l.PerMillion != nil {
		perMillion = inCents(*l.PerMillion)
	}
	if l.Planned != "" {
		planned = l.Planned
	}
	return append(out, strconv.FormatFloat(l.Hours, 'f', 2, 64), tokens, perMillion, planned)
}

func inCents(amount float64) string { return strconv.FormatFloat(amount, 'f', 2, 64) }

// csv writes a line for each name. Spreadsheets can read the numbers.
func (r *costReport) csv(w io.Writer) error {
	out := csv.NewWriter(w)
	head := []string{"name", "since", "as_of", "usd", "machine_hours"}
	for _, state := range cost.States() {
		head = append(head, state.String()+"_usd", state.String()+"_hours")
	}
	head = append(head, "unsure_hours", "prompt_tokens", "output_tokens", "usd_per_million_output_tokens",
		"planned_usd_per_million_output_tokens")
	err := out.Write(head)
	number := func(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }
	for i := range r.Lines {
		l := &r.Lines[i]
		row := []string{l.Name, r.Since.Format(time.RFC3339), r.AsOf.Format(time.RFC3339), number(l.USD), number(l.Hours)}
		for _, state := range cost.States() {
			row = append(row, number(l.States[state.String()].USD), number(l.States[state.String()].Hours))
		}
		perMillion := ""
		if l.PerMillion != nil {
			perMillion = number(*l.PerMillion)
		}
		row = append(row, number(l.UnsureHours), strconv.FormatInt(l.PromptTokens, 10), strconv.FormatInt(l.OutputTokens, 10),
			perMillion, l.Planned)
		err = errors.Join(err, out.Write(row))
	}
	out.Flush()
	return errors.Join(err, out.Error())
}
