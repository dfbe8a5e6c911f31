// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/wording"
)

// diffCommand is kubectl berth diff.
type diffCommand struct {
	planOptions
	output
}

func newDiff(w World) *cobra.Command {
	d := &diffCommand{}
	cmd := &cobra.Command{
		Use:   "diff OLD.yaml NEW.yaml",
		Short: "Show the effect of a changed manifest on machines, price and restarts",
		Long: `Show the effect of a changed manifest on machines, price and restarts.

The command plans both manifests as if they were new. A running Workspace keeps its plan until its manifest
changes, so its old machines may differ from those shown here. Exit codes: 0 for no change in the cluster, 1 for
a change, 3 if the new manifest cannot be served. Other codes are errors.`,
		Example: `  kubectl berth diff main.yaml changed.yaml
  git show main:workspace.yaml | kubectl berth diff - workspace.yaml -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), w, args[0], args[1]) },
	}
	d.planOptions.bind(cmd, w)
	d.output.bind(cmd, false)
	return cmd
}

// effect is the effect of a change on running pods and machines.
type effect string

// The effects, smallest first.
const (
	effectNothing  effect = "nothing"
	effectRestart  effect = "restart"
	effectMachines effect = "machines"
	effectBuy      effect = "buy"
	effectRelease  effect = "release"
	effectRecreate effect = "recreate"
	effectRefused  effect = "refused"
)

// difference is the change of one Workspace.
type difference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Effect    effect `json:"effect"`
	// Summary describes the effect in a sentence.
	Summary string        `json:"summary"`
	Fields  []fieldChange `json:"fields,omitempty"`
	Old     *side         `json:"old,omitempty"`
	New     *side         `json:"new,omitempty"`
}

// side is a short form of one of the two plans.
type side struct {
	Machines    string   `json:"machines,omitempty"`
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
	// Problem says why there is no plan.
	Problem  string   `json:"problem,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	plan planner.Plan
	// buys reports whether the Workspace needs machines: it has a plan and is not suspended.
	buys bool
	err  error
}

func (d *diffCommand) run(ctx context.Context, w World, oldName, newName string) error {
	if oldName == "-" && newName == "-" {
		return usageError("only one of the manifests can be the standard input: name a file for the other")
	}
	old, err := readManifest(oldName, w.In)
	if err != nil {
		return err
	}
	updated, err := readManifest(newName, w.In)
	if err != nil {
		return err
	}
	d.settings.AllowRemoteCode = true // affects only pods
	if err := d.open(); err != nil {
		return err
	}
	found, err := d.differences(ctx, old, updated)
	if err != nil {
		return err
	}
	if d.forPrograms() {
		err = d.data(w.Out, found)
	} else {
		describeDifferences(page{w.Out, newStyle(w)}, found)
	}
	if err != nil {
		return err
	}
	return resultOf(found)
}

// resultOf returns the error with the exit code for pipelines.
func resultOf(found []difference) error {
	for i := range found {
		if now := found[i].New; now != nil && now.err != nil {
			return &exitError{code: codeOf(now.err), err: now.err}
		}
	}
	if slices.ContainsFunc(found, func(d difference) bool { return d.Effect != effectNothing }) {
		return differs()
	}
	return nil
}

// differences compares the Workspaces of two manifests, in the order of the new one. Deleted ones come last.
func (d *diffCommand) differences(ctx context.Context, old, updated *manifest) ([]difference, error) {
	out := []difference{}
	for _, ws := range updated.workspaces {
		next, err := d.difference(ctx, old, updated, key(ws))
		if err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	for _, ws := range old.workspaces {
		if updated.workspace(key(ws)) != nil {
			continue
		}
		next, err := d.difference(ctx, old, updated, key(ws))
		if err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	return out, nil
}

// workspace returns the Workspace with a name, or nil.
func (m *manifest) workspace(name string) *v1beta1.Workspace {
	for _, ws := range m.workspaces {
		if key(ws) == name {
			return ws
		}
	}
	return nil
}

// configText returns the text of a Workspace's ConfigMap; empty if the file does not have the ConfigMap.
func (m *manifest) configText(ws *v1beta1.Workspace) string {
	if ws.Inference == nil || ws.Inference.Config == "" {
		return ""
	}
	return m.configs[inNamespace(ws, ws.Inference.Config)][v1beta1.InferenceConfigKey]
}

func (d *diffCommand) difference(ctx context.Context, old, updated *manifest, name string) (difference, error) {
	was, is := old.workspace(name), updated.workspace(name)
	out := difference{Old: d.side(ctx, old, was), New: d.side(ctx, updated, is)}
	either := is
	if is == nil {
		either = was
	}
	out.Namespace, out.Name = either.Namespace, either.Name
	for _, s := range []*side{out.Old, out.New} {
		if s != nil && s.err != nil && codeOf(s.err) == codeHub {
			return difference{}, s.err
		}
	}
	if was != nil && is != nil {
		var err error
		if out.Fields, err = changesOf(was, is, old.configText(was), updated.configText(is)); err != nil {
			return difference{}, err
		}
	}
	out.Effect, out.Summary = effectOf(&out)
	return out, nil
}

// side plans for a Workspace of one manifest; nil for a nil Workspace.
func (d *diffCommand) side(ctx context.Context, m *manifest, ws *v1beta1.Workspace) *side {
	if ws == nil {
		return nil
	}
	got, err := d.plan(ctx, m, ws)
	if err != nil {
		return &side{Problem: wording.OneLine(err.Error()), err: err}
	}
	out := &side{Machines: got.plan.Summary(), Warnings: got.plan.Warnings, plan: got.plan, buys: !ws.Suspend}
	if got.plan.HourlyPrice >= 0 {
		out.HourlyPrice = &got.plan.HourlyPrice
	}
	return out
}

// effectOf explains the effect of a change.
func effectOf(d *difference) (effect, string) {
	switch old, updated := d.Old, d.New; {
	case updated != nil && updated.err != nil:
		return effectRefused, "the new manifest cannot be served: " + sentenceOf(updated.err)
	case updated == nil && old.buys:
		return effectRelease, "deleting the Workspace releases its machines"
	case updated == nil:
		return effectNothing, "the Workspace is deleted; it has no machines"
	case old == nil && updated.buys:
		return effectBuy, "a new Workspace: the controller buys its machines"
	case old == nil:
		return effectNothing, "a new, suspended Workspace: the controller plans it and buys nothing"
	case slices.ContainsFunc(d.Fields, func(c fieldChange) bool { return isFixed(&c) }):
		i := slices.IndexFunc(d.Fields, func(c fieldChange) bool { return isFixed(&c) })
		return effectRecreate, fmt.Sprintf("%s is immutable: delete the Workspace and create it again, or create it under another name",
			d.Fields[i].Field)
	default:
		return effectOfUpdate(d)
	}
}

// effectOfUpdate explains the effect of a change that needs no new object.
func effectOfUpdate(d *difference) (effect, string) {
	old, updated := d.Old, d.New
	switch {
	case !old.buys && !updated.buys:
		return effectNothing, "the Workspace has no machines, so only its plan can change"
	case !old.buys:
		return effectBuy, "the controller buys machines and starts the model"
	case !updated.buys:
		return effectRelease, "suspending releases the machines; the Service stays, without a model"
	case !sameMachines(d):
		return effectMachines, "the controller acquires the new machines, moves the pods to them and releases the old machines: the model does not answer during the move. If a price limit or the back end does not allow both at once, the old machines are released first"
	case slices.ContainsFunc(d.Fields, func(c fieldChange) bool { return isRendered(&c) }), !sameLayout(&old.plan, &updated.plan):
		return effectRestart, "the controller replaces the pods on the same machines: the model does not answer until it has loaded again"
	case len(d.Fields) > 0:
		return effectNothing, "nothing restarts: machines, layout and pods stay as they are"
	default:
		return effectNothing, "nothing changes"
	}
}

// sameMachines reports whether machines bought for one plan can serve the other.
func sameMachines(d *difference) bool {
	old, updated := &d.Old.plan, &d.New.plan
	class := func(c fieldChange) bool {
		return under(c.Field, "resource.placement.nodeClassRef") || c.Field == "metadata.annotations."+v1beta1.AnnotationNodeClassName
	}
	return old.InstanceType == updated.InstanceType && old.Nodes == updated.Nodes && old.CapacityType == updated.CapacityType &&
		slices.Equal(old.Zones, updated.Zones) && !slices.ContainsFunc(d.Fields, class)
}

// sameLayout reports whether two plans for the same machines render the same pods.
func sameLayout(a, b *planner.Plan) bool {
	return reflect.DeepEqual(rendered(a), rendered(b))
}

// rendered returns the part of a plan that shows in pods.
func rendered(p *planner.Plan) planner.Plan {
	out := *p
	out.Memory, out.Performance, out.HourlyPrice = nil, nil, 0
	out.Alternatives, out.Rejected, out.Warnings, out.Advice = nil, nil, nil, nil
	return out
}

// sentenceOf returns the message of an error without file and object.
func sentenceOf(err error) string {
	if text, ok := errors.AsType[*sentence](err); ok {
		return text.text
	}
	return wording.OneLine(err.Error())
}
