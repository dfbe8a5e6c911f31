// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// fieldOwner is this command's field manager.
const fieldOwner = client.FieldOwner("kubectl-berth")

// rollbackCommand is kubectl berth rollback.
type rollbackCommand struct {
	connection

	to                 int64
	dryRun, withConfig bool
}

func newRollback(w World) *cobra.Command {
	r := &rollbackCommand{}
	cmd := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Restore a Workspace's spec from an earlier revision",
		Long: `Restore the spec of an earlier revision: resource, inference and their annotations. The command edits the
Workspace, and the edit rolls out like any other. Without --to-revision, it restores the last revision that
answered, or else the latest one with a different spec.

The command prints the changes first. The ConfigMap in inference.config is not part of the spec. If its text has
changed since, the command reports that, and --with-config also restores the text.`,
		Example: `  kubectl berth rollback my-model --dry-run
  kubectl berth rollback my-model
  kubectl berth rollback my-model --to-revision 3 --with-config`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), w, cmd, args[0]) },
	}
	f := cmd.Flags()
	f.Int64Var(&r.to, "to-revision", 0, "number of the revision, as history lists it (default: the last one that answered, or else the latest with another spec)")
	f.BoolVar(&r.dryRun, "dry-run", false, "print the changes, but write nothing")
	f.BoolVar(&r.withConfig, "with-config", false, "also restore the ConfigMap's text")
	r.connection.bind(cmd, w)
	return cmd
}

// restoration is a return to the inputs of a revision.
type restoration struct {
	ws       *v1beta1.Workspace
	restored *v1beta1.Workspace
	target   *pinned
	// config is the revision's ConfigMap, if its text has changed since; otherwise nil.
	config *corev1.ConfigMap
	// gone reports whether the ConfigMap was deleted and must be created again.
	gone bool
}

func (r *rollbackCommand) run(ctx context.Context, w World, cmd *cobra.Command, name string) error {
	if cmd.Flags().Changed("to-revision") && r.to < 1 {
		return usageError("--to-revision is %d: use a number from kubectl berth history %s", r.to, name)
	}
	cluster, err := r.open()
	if err != nil {
		return err
	}
	ws, revisions, err := cluster.history(ctx, name)
	if err != nil {
		return err
	}
	config, err := cluster.configText(ctx, ws)
	if err != nil {
		return err
	}
	plan := &restoration{ws: ws}
	if plan.target, err = r.target(ws, config, revisions); err != nil {
		return err
	}
	plan.restored = restored(ws, plan.target.Inputs)
	if err := plan.observeConfig(ctx, cluster); err != nil {
		return err
	}
	changes, err := changesOf(ws, plan.restored, "", "")
	if err != nil {
		return err
	}
	if len(changes) == 0 && (plan.config == nil || !r.withConfig) {
		r.explainConfig(page{w.Out, newStyle(w)}, plan)
		return usageError("Workspace %s already has the spec of revision %d: nothing is written", key(ws), plan.target.number)
	}
	r.announce(page{w.Out, newStyle(w)}, plan, changes)
	if r.dryRun {
		return nil
	}
	return r.write(ctx, w, cluster, plan, len(changes) > 0)
}

// configText returns the current text of a Workspace's ConfigMap; empty if there is none.
func (c *Cluster) configText(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	if ws.Inference == nil || ws.Inference.Config == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	config := &corev1.ConfigMap{}
	at := types.NamespacedName{Namespace: ws.Namespace, Name: ws.Inference.Config}
	if err := client.IgnoreNotFound(c.Objects.Get(ctx, at, config)); err != nil {
		return "", worded(err, fmt.Sprintf("ConfigMap %s", at))
	}
	return config.Data[v1beta1.InferenceConfigKey], nil
}

// target returns the revision to restore. config is the current text of the ConfigMap. If the present spec has no plan,
// the target is the revision still in use.
func (r *rollbackCommand) target(ws *v1beta1.Workspace, config string, revisions []pinned) (*pinned, error) {
	history := "kubectl berth history " + ws.Name
	current := accepted(revisions)
	if current == nil {
		return nil, usageError("Workspace %s has no accepted revision to return to: kubectl berth status %s shows why", key(ws), ws.Name)
	}
	if r.to > 0 {
		at := slices.IndexFunc(revisions, func(p pinned) bool { return p.number == r.to })
		switch {
		case at < 0:
			return nil, usageError("--to-revision: Workspace %s has no revision %d: use %s", key(ws), r.to, numbers(revisions))
		case revisions[at].Inputs == nil:
			return nil, usageError("revision %d of Workspace %s comes from a version that did not record the spec: "+
				"edit the Workspace by hand; %s shows the revision's plan", r.to, key(ws), history)
		}
		return &revisions[at], nil
	}
	for _, candidate := range former(ws, revisions, current) {
		changes, err := changesOf(ws, restored(ws, candidate.Inputs), config, candidate.Inputs.Config)
		if err != nil {
			return nil, err
		}
		if len(changes) > 0 {
			return candidate, nil
		}
	}
	return nil, usageError("Workspace %s has no earlier revision with another spec to restore: see %s", key(ws), history)
}

// former returns the restorable revisions in order of preference: the latest ready revision, then the accepted and
// earlier ones, newest first.
func former(ws *v1beta1.Workspace, revisions []pinned, current *pinned) []*pinned {
	var out []*pinned
	for i := len(revisions) - 1; i >= 0; i-- {
		candidate := &revisions[i]
		switch {
		case candidate.Inputs == nil:
		case candidate.name == ws.Status.LatestReadyRevision:
			out = slices.Insert(out, 0, candidate)
		case candidate.number <= current.number:
			out = append(out, candidate)
		}
	}
	return out
}

// restored returns the Workspace with the inputs of a revision.
func restored(ws *v1beta1.Workspace, in *render.Inputs) *v1beta1.Workspace {
	out := ws.DeepCopy()
	out.Resource = *in.Resource.DeepCopy()
	out.Inference = in.Inference.DeepCopy()
	for _, name := range render.ShapingAnnotations() {
		delete(out.Annotations, name)
		if value, found := in.Annotations[name]; found {
			out.Annotations = labelled(out.Annotations, name, value)
		}
	}
	return out
}

func labelled(set map[string]string, name, value string) map[string]string {
	if set == nil {
		set = map[string]string{}
	}
	set[name] = value
	return set
}

// observeConfig reports whether the ConfigMap still has the revision's text.
func (p *restoration) observeConfig(ctx context.Context, cluster *Cluster) error {
	in := p.target.Inputs
	if in.Inference == nil || in.Inference.Config == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	at := types.NamespacedName{Namespace: p.ws.Namespace, Name: in.Inference.Config}
	config := &corev1.ConfigMap{}
	err := cluster.Objects.Get(ctx, at, config)
	switch {
	case apierrors.IsNotFound(err):
		config.Namespace, config.Name = at.Namespace, at.Name
		p.config, p.gone = config, true
	case err != nil:
		return worded(err, fmt.Sprintf("ConfigMap %s", at))
	case config.Data[v1beta1.InferenceConfigKey] != in.Config:
		p.config = config
	}
	return nil
}

// announce prints the changes.
func (r *rollbackCommand) announce(out page, p *restoration, changes []fieldChange) {
	verb := "goes"
	if r.dryRun {
		verb = "would go"
	}
	out.line("Workspace %s %s back to the spec of revision %d:", key(p.ws), verb, p.target.number)
	for i := range changes {
		for _, line := range folded(fieldText(&changes[i]), pageWidth-4) {
			out.line("  %s", line)
		}
	}
	out.line("  plan of revision %d: %s, %s", p.target.number, p.target.Plan.Summary(), hourly(p.target.Plan.HourlyPrice))
	r.explainConfig(out, p)
}

func (r *rollbackCommand) explainConfig(out page, p *restoration) {
	if p.config == nil {
		return
	}
	state := "has changed since"
	if p.gone {
		state = "is gone"
	}
	if r.withConfig {
		out.point(out.paint(yellow, "!"),
			fmt.Sprintf("ConfigMap %s %s: key %s is restored", key(p.config), state, v1beta1.InferenceConfigKey))
		return
	}
	out.point(out.paint(yellow, "!"), fmt.Sprintf("ConfigMap %s %s and stays as it is: --with-config restores key %s",
		key(p.config), state, v1beta1.InferenceConfigKey))
}

// write restores the ConfigMap before it edits the Workspace, because the new spec refers to the old text.
func (r *rollbackCommand) write(ctx context.Context, w World, cluster *Cluster, p *restoration, edited bool) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if p.config != nil && r.withConfig {
		if err := p.writeConfig(ctx, cluster); err != nil {
			return err
		}
	}
	if edited {
		patch := client.MergeFromWithOptions(p.ws, client.MergeFromWithOptimisticLock{})
		if err := cluster.Objects.Patch(ctx, p.restored, patch, fieldOwner); err != nil {
			return worded(err, "Workspace "+key(p.ws))
		}
	}
	_, err := fmt.Fprintf(w.Out, "Done. To watch the rollout: kubectl berth status %s -n %s --watch\n", p.ws.Name, p.ws.Namespace)
	return err
}

func (p *restoration) writeConfig(ctx context.Context, cluster *Cluster) error {
	text := p.target.Inputs.Config
	if p.gone {
		config := p.config.DeepCopy()
		config.Data = map[string]string{v1beta1.InferenceConfigKey: text}
		if err := cluster.Objects.Create(ctx, config, fieldOwner); err != nil {
			return worded(err, "ConfigMap "+key(config))
		}
		return nil
	}
	updated := p.config.DeepCopy()
	updated.Data = labelled(updated.Data, v1beta1.InferenceConfigKey, text)
	patch := client.MergeFromWithOptions(p.config, client.MergeFromWithOptimisticLock{})
	if err := cluster.Objects.Patch(ctx, updated, patch, fieldOwner); err != nil {
		return worded(err, "ConfigMap "+key(p.config))
	}
	return nil
}
