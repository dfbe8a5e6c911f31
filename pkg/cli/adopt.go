// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// adoptCommand is kubectl berth adopt.
type adoptCommand struct {
	connection
	output

	catalog                         catalogFlags
	plan, undo, all, everyNamespace bool
}

func newAdopt(w World) *cobra.Command {
	a := &adoptCommand{}
	cmd := &cobra.Command{
		Use:   "adopt [NAME...]",
		Short: "Take over Workspaces from KAITO's controller without a restart",
		Long: `Take over Workspaces from KAITO's controller without a restart.

Without names, the command lists KAITO's objects and costs for each Workspace, the obstacles to a takeover, and
the commands that remove KAITO's controller without stopping a model. It writes nothing.

With names, or --all, it writes your consent into an annotation of each Workspace. Pods, Services, NodePools and
NodeClaims stay as they are, and nothing is bought. Deleting the Workspace releases its machines. At the first
edit of resource or inference, Modelberth makes a plan, acquires new machines, replaces the pods once the
machines are usable, and deletes KAITO's machines once the new pods answer.

--undo withdraws the consent, unless the Workspace was edited.`,
		Example: `  kubectl berth adopt -A
  kubectl berth adopt my-model
  kubectl berth adopt --all -A
  kubectl berth adopt my-model --undo`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), w, args) },
	}
	f := cmd.Flags()
	f.BoolVar(&a.plan, "plan", false, "list, but write nothing (default without names and --all)")
	f.BoolVar(&a.undo, "undo", false, "give Workspaces back to KAITO's controller")
	f.BoolVar(&a.all, "all", false, "all Workspaces of KAITO's controller in the namespace")
	f.BoolVarP(&a.everyNamespace, "all-namespaces", "A", false, "all namespaces")
	a.catalog.bind(cmd, w)
	a.connection.bind(cmd, w)
	a.output.bind(cmd, false)
	return cmd
}

// check refuses flags that cannot be combined.
func (a *adoptCommand) check(names []string) error {
	switch {
	case a.all && len(names) > 0:
		return usageError("name Workspaces or pass --all, but not both")
	case a.undo && a.plan:
		return usageError("--undo and --plan cannot be combined: keep one")
	case a.undo && !a.all && len(names) == 0:
		return usageError("--undo needs the names of Workspaces, or --all")
	case a.everyNamespace && len(names) > 0:
		return usageError("-A cannot be used with names: name Workspaces of one namespace, or pass --all -A")
	default:
		return nil
	}
}

func (a *adoptCommand) run(ctx context.Context, w World, names []string) error {
	if err := a.check(names); err != nil {
		return err
	}
	cluster, err := a.open()
	if err != nil {
		return err
	}
	namespace := a.surveyed(cluster)
	found, report, err := a.survey(ctx, cluster, namespace)
	if err != nil {
		return err
	}
	if err := keepNamed(report, names, cluster.Namespace); err != nil {
		return err
	}
	switch {
	case !a.plan && (a.all || len(names) > 0):
		return a.write(ctx, w, cluster, found, report)
	case a.forPrograms():
		return a.data(w.Out, report)
	default:
		return showTakeover(page{w.Out, newStyle(w)}, report, namespace)
	}
}

// surveyed returns the namespace of the survey; empty means all.
func (a *adoptCommand) surveyed(cluster *Cluster) string {
	if a.everyNamespace {
		return ""
	}
	return cluster.Namespace
}

// survey reads the cluster, and returns the Workspaces and the report on them.
func (a *adoptCommand) survey(ctx context.Context, cluster *Cluster, namespace string) (
	map[types.NamespacedName]*v1beta1.Workspace, *takeover.Report, error,
) {
	known, err := a.catalog.load()
	if err != nil {
		return nil, nil, err
	}
	seen, unread, err := cluster.readTakeover(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	report := takeover.Survey(seen, func(instanceType, region string, isSpot bool) (float64, bool) {
		machine, isKnown := known.SKU(instanceType)
		if price, hasPrice := machine.SpotPrices[region]; isSpot && hasPrice {
			return price, true
		}
		if price, hasPrice := machine.Prices[region]; hasPrice {
			return price, true
		}
		price, hasPrice := machine.Prices[known.ReferenceRegion(machine.Cloud)]
		return price, isKnown && hasPrice
	})
	report.Obstacles = append(unread, report.Obstacles...)
	found := map[types.NamespacedName]*v1beta1.Workspace{}
	for i := range seen.Workspaces {
		found[client.ObjectKeyFromObject(&seen.Workspaces[i])] = &seen.Workspaces[i]
	}
	return found, report, nil
}

// keepNamed removes all but the named Workspaces from the report. Without names, it removes none.
func keepNamed(report *takeover.Report, names []string, namespace string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(report.Workspaces, func(e takeover.Entry) bool { return e.Name == name }) {
			return usageError("KAITO's controller does not serve Workspace %s/%s: list its Workspaces with kubectl berth adopt", namespace, name)
		}
	}
	report.HourlyPrice = 0
	report.Workspaces = slices.DeleteFunc(report.Workspaces, func(e takeover.Entry) bool { return !slices.Contains(names, e.Name) })
	report.Obstacles = slices.DeleteFunc(report.Obstacles, func(o takeover.Obstacle) bool {
		return !slices.ContainsFunc(report.Workspaces, func(e takeover.Entry) bool { return o.Blocks(e.Namespace, e.Name) })
	})
	for i := range report.Workspaces {
		report.HourlyPrice += report.Workspaces[i].HourlyPrice
	}
	return nil
}

// write gives the consent for each Workspace, or withdraws it. It skips a Workspace with an obstacle and goes on.
func (a *adoptCommand) write(
	ctx context.Context, w World, cluster *Cluster, found map[types.NamespacedName]*v1beta1.Workspace, report *takeover.Report,
) error {
	change, verb := a.consent, "taken over"
	if a.undo {
		change, verb = withdraw, "given back"
	}
	done, refused := 0, 0
	for i := range report.Workspaces {
		entry := &report.Workspaces[i]
		ws := found[types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}]
		after, why, err := change(ws, entry, report)
		if err == nil && after != nil {
			err = cluster.change(ctx, ws, after)
		}
		switch {
		case err != nil:
			return err
		case after != nil:
			done++
			fmt.Fprintf(w.Out, "Workspace %s is %s unchanged\n", key(ws), verb)
		case why != "":
			refused++
			fmt.Fprintf(w.Err, "Workspace %s is not %s: %s\n", key(ws), verb, why)
		default:
			fmt.Fprintf(w.Out, "Workspace %s: nothing to do\n", key(ws))
		}
	}
	if refused > 0 {
		return clusterError("%d of %s cannot be %s", refused, count(len(report.Workspaces), "Workspace"), verb)
	}
	if done == 0 && len(report.Workspaces) == 0 {
		fmt.Fprintln(w.Out, servesNone(a.surveyed(cluster)))
	}
	return nil
}

// mostChanges is the maximum number of tries of a write that conflicts with other writes.
const mostChanges = 5

// change writes the annotation of a changed Workspace. After a conflict, it tries again if the spec is still the same.
func (c *Cluster) change(ctx context.Context, before, after *v1beta1.Workspace) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	text, isSet := after.Annotations[v1beta1.AnnotationAdopted]
	for tries := 1; ; tries++ {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		err := c.Objects.Patch(ctx, after, patch, fieldOwner)
		if err == nil {
			return nil
		}
		newest := &v1beta1.Workspace{}
		if !apierrors.IsConflict(err) || tries == mostChanges || c.Objects.Get(ctx, client.ObjectKeyFromObject(before), newest) != nil ||
			newest.UID != before.UID || newest.Generation != before.Generation {
			return worded(err, "Workspace "+key(before))
		}
		before, after = newest, newest.DeepCopy()
		delete(after.Annotations, v1beta1.AnnotationAdopted)
		if isSet {
			after.Annotations = labelled(after.Annotations, v1beta1.AnnotationAdopted, text)
		}
	}
}

// consent returns the Workspace with the consent, or the reason against the takeover.
func (a *adoptCommand) consent(
	ws *v1beta1.Workspace, entry *takeover.Entry, report *takeover.Report,
) (after *v1beta1.Workspace, why string, err error) {
	if entry.State != takeover.Unadopted {
		return nil, "", nil
	}
	var reasons []string
	for i := range report.Obstacles {
		if o := &report.Obstacles[i]; o.Blocks(ws.Namespace, ws.Name) {
			reasons = append(reasons, fmt.Sprintf("%s: %s: %s: %s", o.ID, o.Object, o.Problem, o.Fix))
		}
	}
	if len(reasons) > 0 {
		return nil, strings.Join(reasons, "; "), nil
	}
	given, err := takeover.NewConsent(ws, entry.Pods)
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, "", fmt.Errorf("encoding the consent: %w", err)
	}
	after = ws.DeepCopy()
	after.Annotations = labelled(after.Annotations, v1beta1.AnnotationAdopted, string(text))
	return after, "", nil
}

// withdraw returns the Workspace without the consent, or the reason why it is too late.
func withdraw(ws *v1beta1.Workspace, entry *takeover.Entry, _ *takeover.Report) (after *v1beta1.Workspace, why string, err error) {
	switch entry.State {
	case takeover.Edited:
		return nil, "its resource or inference was edited after the takeover: revert the edit first, or leave the Workspace with Modelberth", nil
	case takeover.Replaced:
		return nil, "its pods were replaced after an edit, so there is nothing to give back to KAITO's controller: leave the Workspace with Modelberth", nil
	case takeover.Frozen:
		if entry.Workload == "" {
			return nil, "its StatefulSet is gone, so there is nothing to give back to KAITO's controller: leave the Workspace with Modelberth", nil
		}
		after = ws.DeepCopy()
		delete(after.Annotations, v1beta1.AnnotationAdopted)
		return after, "", nil
	default:
		return nil, "", nil
	}
}
