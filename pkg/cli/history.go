// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/request"
)

// historyCommand is kubectl berth history.
type historyCommand struct {
	connection
	output
}

func newHistory(w World) *cobra.Command {
	h := &historyCommand{}
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List the revisions of a Workspace: plan, price and changes",
		Long: `List the revisions of a Workspace, oldest first. Each has its plan, its price, and the changes since the revision
before it: to the spec, to annotations that affect the plan or the pods, and to the ConfigMap that inference.config
names. An asterisk marks the current revision.`,
		Example: `  kubectl berth history my-model
  kubectl berth history my-model -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return h.run(cmd.Context(), w, args[0]) },
	}
	h.connection.bind(cmd, w)
	h.output.bind(cmd, false)
	return cmd
}

// historyEntry is a revision as programs read it.
type historyEntry struct {
	Revision    int64         `json:"revision"`
	Name        string        `json:"name"`
	Created     metav1.Time   `json:"created"`
	Accepted    bool          `json:"accepted"`
	Summary     string        `json:"summary"`
	HourlyPrice string        `json:"hourlyPrice,omitempty"`
	Reason      string        `json:"reason"`
	Changes     []fieldChange `json:"changes,omitempty"`
	// Restorable reports whether rollback can restore it.
	Restorable bool `json:"restorable"`
}

func (h *historyCommand) run(ctx context.Context, w World, name string) error {
	cluster, err := h.open()
	if err != nil {
		return err
	}
	ws, revisions, err := cluster.history(ctx, name)
	if err != nil {
		return err
	}
	entries, err := entriesOf(revisions)
	switch {
	case err != nil:
		return err
	case h.forPrograms():
		return h.data(w.Out, entries)
	case len(entries) == 0:
		_, err := fmt.Fprintf(w.Err, "Workspace %s has no revision yet: kubectl berth status %s shows why.\n", key(ws), ws.Name)
		return err
	}
	rows := [][]string{{"", "REVISION", "AGE", "PLAN", "$/H", "CHANGE"}}
	for i := range entries {
		e := &entries[i]
		mark := ""
		if e.Accepted {
			mark = "*"
		}
		rows = append(rows, []string{
			mark, strconv.FormatInt(e.Revision, 10), age(e.Created, w.Clock.Now()), e.Summary, priced(e.HourlyPrice), e.words(),
		})
	}
	return table(w.Out, "", rows)
}

// entriesOf returns an entry for each revision, with its reason.
func entriesOf(revisions []pinned) ([]historyEntry, error) {
	entries := make([]historyEntry, 0, len(revisions))
	for i := range revisions {
		r := &revisions[i]
		entry := historyEntry{
			Revision: r.number, Name: r.name, Created: r.created, Accepted: r.accepted, Restorable: r.Inputs != nil,
			Summary: r.Plan.Summary(), HourlyPrice: request.Price(r.Plan.HourlyPrice),
		}
		switch {
		case i == 0:
			entry.Reason = "first revision on record"
		case r.Inputs == nil || revisions[i-1].Inputs == nil:
			entry.Reason = "unknown, because an earlier version of Modelberth did not record the spec"
		case reflect.DeepEqual(made(r.Inputs), made(revisions[i-1].Inputs)) && r.Inputs.Config == revisions[i-1].Inputs.Config:
			entry.Reason = "same spec, planned again before a purchase"
		default:
			changes, err := changesBetween(revisions[i-1].Inputs, r.Inputs)
			if err != nil {
				return nil, err
			}
			entry.Reason, entry.Changes = "edited", changes
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// words describes the changes on one line.
func (e *historyEntry) words() string {
	if len(e.Changes) == 0 {
		return e.Reason
	}
	var parts []string
	for i := range e.Changes {
		parts = append(parts, fieldText(&e.Changes[i]))
	}
	return strings.Join(parts, "; ")
}
