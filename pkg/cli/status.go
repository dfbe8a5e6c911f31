// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// statusCommand is kubectl berth status.
type statusCommand struct {
	connection
	output

	watch, all bool
	timeout    time.Duration
}

func newStatus(w World) *cobra.Command {
	s := &statusCommand{}
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the state of a Workspace: plan, machines, pods, weights, endpoint",
		Long: `Show the state of a Workspace: its plan, refused and present machines, pods, progress of the weights,
duration of each startup stage, and endpoint. Without a name, list the Workspaces.

With --watch, the command redraws the output after each change, or prints a line for each if the output is not a
terminal. It ends when the Workspace is ready, or with exit code 1 if it is stalled.`,
		Example: `  kubectl berth status
  kubectl berth status my-model --watch
  kubectl berth status my-model --watch --timeout 30m
  kubectl berth status my-model -n team-a -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), w, args) },
	}
	f := cmd.Flags()
	f.BoolVarP(&s.watch, "watch", "w", false, "watch until the Workspace is ready or stalled")
	f.BoolVarP(&s.all, "all-namespaces", "A", false, "list the Workspaces of all namespaces")
	f.DurationVar(&s.timeout, "timeout", 0, "longest time to watch, such as 30m; 0 means no limit")
	s.connection.bind(cmd, w)
	s.output.bind(cmd, true)
	return cmd
}

func (s *statusCommand) run(ctx context.Context, w World, names []string) error {
	switch {
	case len(names) == 1 && s.all:
		return usageError("-A lists the Workspaces of all namespaces: remove the name, or use -n with its namespace")
	case s.watch && len(names) == 0:
		return usageError("--watch follows one Workspace: name it")
	case s.watch && s.forPrograms():
		return usageError("--watch draws a tree: remove -o %s or --watch", s.format)
	case s.timeout != 0 && !s.watch:
		return usageError("--timeout needs --watch")
	case s.timeout < 0:
		return usageError("--timeout is %s: it must be above zero, or 0 for none", s.timeout)
	}
	cluster, err := s.open()
	if err != nil {
		return err
	}
	switch {
	case len(names) == 0:
		return s.list(ctx, w, cluster)
	case s.watch:
		return s.follow(ctx, w, cluster, names[0])
	}
	seen, err := cluster.observe(ctx, names[0])
	if err != nil {
		return err
	}
	cluster.askAgents(ctx, seen)
	if s.forPrograms() {
		return s.data(w.Out, seen.report)
	}
	_, err = fmt.Fprintln(w.Out, strings.Join(s.lines(w, seen), "\n"))
	return err
}

// lines returns the tree, folded to the width of the terminal.
func (s *statusCommand) lines(w World, seen *snapshot) []string {
	width, _ := w.size()
	return newStyle(w).draw(seen.tree(w.Clock.Now(), s.wide()), width)
}

// size returns the size of the terminal, or of an endless page.
func (w World) size() (int, int) {
	if w.Terminal && w.Size != nil {
		if width, height := w.Size(); width > 0 {
			return width, height
		}
	}
	return pageWidth, 0
}

// list shows all Workspaces in a table.
func (s *statusCommand) list(ctx context.Context, w World, cluster *Cluster) error {
	namespace := cluster.Namespace
	if s.all {
		namespace = ""
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	list := &v1beta1.WorkspaceList{}
	if err := cluster.Objects.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return worded(err, "Workspaces")
	}
	slices.SortFunc(list.Items, func(a, b v1beta1.Workspace) int { return strings.Compare(key(&a), key(&b)) })
	reports := make([]*report, 0, len(list.Items))
	for i := range list.Items {
		reports = append(reports, summary(&list.Items[i]))
	}
	if s.forPrograms() {
		return s.data(w.Out, reports)
	}
	if len(reports) == 0 {
		where := "in namespace " + namespace
		if s.all {
			where = "in this cluster"
		}
		_, err := fmt.Fprintf(w.Err, "There is no Workspace %s.\n", where)
		return err
	}
	return table(w.Out, "", s.rows(reports, w.Clock.Now()))
}

func (s *statusCommand) rows(reports []*report, now time.Time) [][]string {
	rows := [][]string{{"NAME", "MODEL", "STATE", "PLAN", "$/H", "AGE"}}
	if s.all {
		rows[0] = slices.Insert(rows[0], 0, "NAMESPACE")
	}
	if s.wide() {
		rows[0] = append(rows[0], "ENDPOINT", "MESSAGE")
	}
	for _, r := range reports {
		state := string(r.State)
		if r.Stalled {
			state = "Stalled"
		}
		row := []string{r.Name, r.Model, text(state), none, none, age(r.Created, now)}
		if r.Plan != nil {
			row[3], row[4] = r.Plan.Summary, priced(r.Plan.HourlyPrice)
		}
		if s.all {
			row = slices.Insert(row, 0, r.Namespace)
		}
		if s.wide() {
			url := ""
			if r.Endpoint != nil {
				url = r.Endpoint.URL
			}
			row = append(row, text(url), text(r.Message))
		}
		rows = append(rows, row)
	}
	return rows
}

// errTimeout is the context's cause after the time limit of --timeout.
var errTimeout = errors.New("the time limit has passed")

// follow prints changes until the Workspace is ready or stalled.
func (s *statusCommand) follow(ctx context.Context, w World, cluster *Cluster, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, errTimeout)
		defer cancel()
	}
	show := s.progressPrinter(w)
	if w.Terminal {
		show = s.screen(w)
	}
	ws, err := cluster.workspace(ctx, name)
	if err != nil {
		return err
	}
	changed := cluster.changes(ctx, w.Clock, ws)
	ticker := w.Clock.NewTicker(time.Second)
	defer ticker.Stop()
	seen, err := cluster.observe(ctx, name)
	for {
		if err != nil {
			return s.ended(ctx, cluster, name, err)
		}
		show(seen)
		switch {
		case seen.Ready:
			return nil
		case seen.Stalled:
			return stalledError(seen.report)
		}
		select {
		case <-ctx.Done():
			return s.ended(ctx, cluster, name, ctx.Err())
		case <-changed:
			former := seen
			if seen, err = cluster.observe(ctx, name); err == nil {
				seen.keepWeights(former)
			}
		case <-ticker.C():
			cluster.askAgents(ctx, seen)
		}
	}
}

// stalledError returns an error with the reason why waiting does not help.
func stalledError(r *report) error {
	text := fmt.Sprintf("Workspace %s/%s is stalled: %s: %s", r.Namespace, r.Name, r.Reason, r.Message)
	return &exitError{code: codeStalled, err: errors.New(text)}
}

// keepWeights copies the agents' last progress, because the command polls agents less often than it reads objects.
func (seen *snapshot) keepWeights(former *snapshot) {
	for i := range seen.Pods {
		entry := &seen.Pods[i]
		at := slices.IndexFunc(former.Pods, func(p podReport) bool { return p.Name == entry.Name })
		if at >= 0 && entry.Stage == podFetching {
			entry.Weights = former.Pods[at].Weights
		}
	}
}

// ended returns the error that explains why the command stops watching a Workspace.
func (s *statusCommand) ended(ctx context.Context, cluster *Cluster, name string, err error) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return clusterError("Workspace %s/%s is not ready after %s: kubectl berth status %s -n %s shows what it waits for",
			cluster.Namespace, name, s.timeout, name, cluster.Namespace)
	}
	return err
}

// screen returns a function that redraws the tree in place.
func (s *statusCommand) screen(w World) func(*snapshot) {
	drawn := 0
	return func(seen *snapshot) {
		lines := s.lines(w, seen)
		if _, height := w.size(); height > 2 && len(lines) > height-1 {
			lines = append(lines[:height-2:height-2], "…")
		}
		var out strings.Builder
		if drawn > 0 {
			out.WriteString("\x1b[" + strconv.Itoa(drawn) + "A")
		}
		out.WriteString("\r\x1b[J")
		for _, line := range lines {
			out.WriteString(line + "\n")
		}
		drawn = len(lines)
		fmt.Fprint(w.Out, out.String())
	}
}
