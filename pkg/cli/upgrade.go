// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/upgrade"
)

// upgradeCommand is kubectl berth preflight-upgrade.
type upgradeCommand struct {
	installedPlans
	connection
	output
}

// preflight is the command's answer for programs.
type preflight struct {
	// Version of this command: the one to upgrade to.
	Version string `json:"version"`
	// Objects is the number of checked objects.
	Objects  int               `json:"objects"`
	Findings []upgrade.Finding `json:"findings"`
	Plans    []planChange      `json:"plans"`
	// Notes name what could not be checked.
	Notes []string `json:"notes,omitempty"`
}

func newPreflightUpgrade(w World) *cobra.Command {
	u := &upgradeCommand{}
	cmd := &cobra.Command{
		Use:   "preflight-upgrade",
		Short: "Check the stored objects and pinned plans of a cluster before an upgrade",
		Long: `Check the stored objects and pinned plans of a cluster before an upgrade to the version of this command.

The command reads with your permissions and writes nothing. On your machine, it validates every stored Workspace and
InferenceSet as an API server would, under the CustomResourceDefinitions and admission policies of the new version:
once as an unchanged update, and once as a new object. Then it plans every Workspace again with the new catalogue and
compares the result with its pinned plan. An upgrade restarts nothing: pinned plans stay until the Workspace
changes.

The plans use the settings of the installed controller: its clouds, region, limits and catalogue files. Flags
override them. With -f, CustomResourceDefinitions, policies and settings come from the output of helm template
for the new chart with your values. Without -f, policies that depend on values are not checked.

Exit codes: 0 without findings, 1 with a finding about an object, 2 if the cluster cannot be checked. A plan
that would change is not a finding.`,
		Example: `  kubectl berth preflight-upgrade
  helm template modelberth CHART --namespace modelberth-system --values values.yaml | kubectl berth preflight-upgrade -f -
  kubectl berth preflight-upgrade -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return u.run(cmd.Context(), cmd, w) },
	}
	cmd.Flags().StringVarP(&u.file, "filename", "f", "", "manifests of the new chart, from helm template; - is the standard input")
	u.connection.bind(cmd, w)
	u.installedPlans.bind(cmd, w)
	u.output.bind(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (u *upgradeCommand) run(ctx context.Context, cmd *cobra.Command, w World) error {
	cluster, err := u.connection.open()
	if err != nil {
		return err
	}
	rendered, rules, err := u.rules(w)
	if err != nil {
		return err
	}
	out, workspaces, err := u.check(ctx, cluster, rules)
	if err != nil {
		return unchecked(err)
	}
	if len(workspaces) > 0 {
		remove, err := u.settle(ctx, cmd, cluster, rendered, &out.Notes)
		if err != nil {
			return unchecked(err)
		}
		defer remove()
		u.comparePlans(ctx, cluster, workspaces, &out)
	}
	upgrade.Sort(out.Findings)
	if u.forPrograms() {
		err = u.data(w.Out, out)
	} else {
		err = showPreflight(w, &out)
	}
	if err == nil && len(out.Findings) > 0 {
		err = sick()
	}
	return err
}

// unchecked is an error about a cluster that cannot be checked.
func unchecked(err error) error {
	if _, ok := errors.AsType[*exitError](err); ok && codeOf(err) == codeUsage {
		return err
	}
	return &exitError{code: codeUnchecked, err: err}
}

// rules returns the objects of the rendered chart, nil without -f, and the rules of the new version.
func (u *upgradeCommand) rules(w World) ([]unstructured.Unstructured, *upgrade.Rules, error) {
	if u.file == "" {
		objects, err := upgrade.Objects(w.Chart)
		if err != nil {
			return nil, nil, err
		}
		rules, err := upgrade.Read(objects)
		return nil, rules, err
	}
	data, err := readFile(u.file, w.In)
	if err != nil {
		return nil, nil, usageError("-f: %w", err)
	}
	objects, err := upgrade.Parse(data)
	if err != nil {
		return nil, nil, usageError("-f %s: %w", u.file, err)
	}
	rules, err := upgrade.Read(objects)
	if err != nil {
		return nil, nil, usageError("-f %s: %w; render the whole chart with helm template", u.file, err)
	}
	return objects, rules, nil
}

// check checks all stored objects, and returns the findings and the Workspaces to plan for.
func (u *upgradeCommand) check(ctx context.Context, cluster *Cluster, rules *upgrade.Rules) (preflight, []*v1beta1.Workspace, error) {
	out := preflight{Version: version(), Findings: []upgrade.Finding{}, Plans: []planChange{}}
	if err := u.checkDefinitions(ctx, cluster, rules, &out); err != nil {
		return out, nil, err
	}
	var workspaces []*v1beta1.Workspace
	for _, of := range rules.Kinds() {
		objects, err := cluster.readAll(ctx, source{GroupVersionKind: of, namespace: *u.flags.Namespace})
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err): // the installed version lacks the kind
			continue
		case err != nil:
			return out, nil, worded(err, of.Kind)
		}
		out.Objects += len(objects)
		for i := range objects {
			out.Findings = append(out.Findings, rules.Check(ctx, &objects[i])...)
			if of.Kind != v1beta1.WorkspaceKind {
				continue
			}
			ws := &v1beta1.Workspace{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, ws); err != nil {
				out.Findings = append(out.Findings, upgrade.Finding{
					Problem: upgrade.NotReadable, Kind: of.Kind, Namespace: objects[i].GetNamespace(), Name: objects[i].GetName(),
					Rule: "type", Message: err.Error(),
				})
				continue
			}
			workspaces = append(workspaces, ws)
		}
	}
	return out, workspaces, nil
}

// checkDefinitions checks the installed CustomResourceDefinitions of the new version's kinds.
func (*upgradeCommand) checkDefinitions(ctx context.Context, cluster *Cluster, rules *upgrade.Rules, out *preflight) error {
	installed, err := cluster.readAll(ctx, source{
		GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		names:            []string{"workspaces.kaito.sh", "inferencesets.kaito.sh"},
	})
	switch {
	case apierrors.IsForbidden(err):
		out.Notes = append(out.Notes, "CustomResourceDefinitions cannot be read: "+err.Error())
		return nil
	case err != nil:
		return worded(err, "CustomResourceDefinitions")
	}
	for i := range installed {
		out.Findings = append(out.Findings, rules.CheckDefinition(&installed[i])...)
	}
	return nil
}

// comparePlans plans for all Workspaces, in the order of namespace and name.
func (u *upgradeCommand) comparePlans(ctx context.Context, cluster *Cluster, workspaces []*v1beta1.Workspace, out *preflight) {
	slices.SortFunc(workspaces, compareKeys)
	for _, ws := range workspaces {
		change, problem := u.planChange(ctx, cluster, ws)
		if problem != nil {
			out.Findings = append(out.Findings, *problem)
		}
		if change != nil {
			out.Plans = append(out.Plans, *change)
		}
	}
}
