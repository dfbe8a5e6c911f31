// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/workload"
)

// renderCommand is kubectl berth render.
type renderCommand struct {
	planOptions
	connection

	file, nodes  string
	format       string
	agentImage   string
	engineImages map[string]string
	registry     string
	remoteCode   bool
	kvEvents     workload.Consumer
}

func newRender(w World) *cobra.Command {
	r := &renderCommand{}
	cmd := &cobra.Command{
		Use:   "render (-f FILE | NAME)",
		Short: "Print the objects that serve a Workspace, with the plan as a comment",
		Long: `Print the objects that serve a Workspace, with the plan as a comment.

With -f, no cluster is needed: the flags replace the controller's settings, and the output has the objects that
a controller of this version would apply. Their owner references have no UID, because the Workspace has none
yet. With NAME, the objects come from the accepted revision of the Workspace in the cluster. A revision does not
record the consumer of KV cache events: name it with --kv-events-consumer.`,
		Example: `  kubectl berth render -f workspace.yaml --agent-image registry.example/modelberth-agent:v1
  kubectl berth render my-model
  kubectl berth render my-model | kubectl diff -f -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), cmd, w, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&r.file, "filename", "f", "", "manifest with Workspaces and their ConfigMaps; - is the standard input")
	f.StringVar(&r.nodes, "nodes", "", "existing nodes and their pods, to use before buying: the output of "+howToList)
	f.StringVarP(&r.format, "output", "o", formatYAML, "output format: yaml, json")
	f.StringVar(&r.agentImage, "agent-image", "modelberth-agent", "image of modelberth-agent, as the chart sets it")
	f.StringToStringVar(&r.engineImages, "engine-image", nil, "image of an engine, as name=reference; repeatable")
	f.StringVar(&r.registry, "engine-registry", "", "registry that mirrors the engines' images")
	f.BoolVar(&r.remoteCode, "allow-remote-code", false, "allow models that run code from their repository, as with the chart's value allowRemoteCode")
	f.Var(&r.kvEvents, "kv-events-consumer", "pods that may read KV cache events, as NAMESPACE/LABEL=VALUE (the chart's kvEvents.consumer)")
	r.connection.bind(cmd, w)
	r.planOptions.bind(cmd, w)
	complete(cmd, "output", func() []string { return []string{formatYAML, formatJSON} })
	// The only error is that a flag does not exist.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (r *renderCommand) run(ctx context.Context, cmd *cobra.Command, w World, names []string) error {
	if err := oneOf("--output", r.format, []string{formatYAML, formatJSON}); err != nil {
		return err
	}
	switch {
	case (r.file == "") == (len(names) == 0):
		return usageError("give either a manifest with -f or the name of a Workspace in the cluster")
	case r.file != "":
		return r.fromFile(ctx, w)
	}
	cluster, err := r.connection.open()
	if err != nil {
		return err
	}
	if err := r.onlyForFiles(cmd); err != nil {
		return err
	}
	ws, revisions, err := cluster.history(ctx, names[0])
	if err != nil {
		return err
	}
	current := accepted(revisions)
	if current == nil {
		return clusterError("Workspace %s has no accepted plan yet: kubectl berth status %s shows why", key(ws), ws.Name)
	}
	leader, err := cluster.leader(ctx, ws)
	if err != nil {
		return err
	}
	return r.print(w, []rendering{{ws, current.name, &current.Revision, leader, r.kvEvents}})
}

// onlyForFiles refuses flags that replace the controller's settings: they work only with a file.
func (r *renderCommand) onlyForFiles(cmd *cobra.Command) error {
	for _, flag := range []string{
		"agent-image", "engine-image", "engine-registry", "allow-remote-code", "nodes", "catalog", "cloud", "region", "config",
		"provisioner", "hub-endpoint", "rdma",
	} {
		if cmd.Flags().Changed(flag) {
			return usageError("--%s works only with -f: without -f, the command prints what the controller rendered", flag)
		}
	}
	return nil
}

// rendering is one Workspace with its objects.
type rendering struct {
	ws       *v1beta1.Workspace
	name     string
	revision *render.Revision
	// leader is the serving StatefulSet, or nil. It records the state of a group and of a switch to other machines.
	leader *appsv1.StatefulSet
	// kvEvents is the consumer of KV cache events. No revision pins it.
	kvEvents workload.Consumer
}

// fromFile plans and renders as the controller would.
func (r *renderCommand) fromFile(ctx context.Context, w World) error {
	m, err := readManifest(r.file, w.In)
	if err != nil {
		return err
	}
	r.planOptions.settings = render.Settings{
		Workload:     workload.Settings{AgentImage: r.agentImage, KVEvents: r.kvEvents},
		EngineImages: r.engineImages, EngineRegistry: r.registry, AllowRemoteCode: r.remoteCode,
	}
	if err := r.planOptions.open(); err != nil {
		return err
	}
	if err := r.openNodes(r.nodes, w.In); err != nil {
		return err
	}
	var out []rendering
	for _, ws := range m.workspaces {
		if problem := workload.NameProblem(ws.Name); problem != "" {
			return usageError("%s: %s", m.file, problem)
		}
		answer, err := r.planOptions.plan(ctx, m, ws)
		if err != nil {
			return err
		}
		out = append(out, rendering{ws: ws, revision: &answer.revision.Revision, kvEvents: r.kvEvents})
	}
	return r.print(w, out)
}

// objects returns the objects of a Workspace, in the order of their application.
func (r *rendering) objects() []render.Object {
	pods := r.revision.Pods(r.ws, r.name, workload.GroupOf(r.leader))
	for _, object := range pods {
		if set, ok := object.(*appsv1.StatefulSet); ok && workload.PinnedAttempt(r.leader) > 0 {
			workload.PinToAttempt(set, workload.PinnedAttempt(r.leader))
		}
	}
	return append(r.revision.Network(r.ws, workload.Settings{KVEvents: r.kvEvents}, nil), pods...)
}

func (r *renderCommand) print(w World, all []rendering) error {
	if r.format == formatJSON {
		list := corev1.List{}
		list.APIVersion, list.Kind = "v1", "List"
		for i := range all {
			for _, object := range all[i].objects() {
				text, err := applied(object)
				if err != nil {
					return err
				}
				list.Items = append(list.Items, runtime.RawExtension{Raw: text})
			}
		}
		return (&output{format: formatJSON}).data(w.Out, list)
	}
	for i := range all {
		if _, err := fmt.Fprint(w.Out, comment(&all[i])); err != nil {
			return err
		}
		for _, object := range all[i].objects() {
			text, err := applied(object)
			if err != nil {
				return err
			}
			if text, err = yaml.JSONToYAML(text); err != nil {
				return fmt.Errorf("writing YAML: %w", err)
			}
			if _, err := fmt.Fprintf(w.Out, "---\n%s", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// applied returns an object as JSON, without its status.
func applied(object render.Object) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", object.GetName(), err)
	}
	delete(fields, "status")
	return json.Marshal(fields)
}

// comment returns the comment with the plan, to print above the objects.
func comment(r *rendering) string {
	plan := &r.revision.Plan
	var out strings.Builder
	line := func(text string) {
		for _, part := range folded(text, pageWidth-2) {
			out.WriteString("# " + part + "\n")
		}
	}
	line(fmt.Sprintf("Workspace %s: %s, %s", key(r.ws), plan.Summary(), hourly(plan.HourlyPrice)))
	if plan.Engine != "" {
		line(fmt.Sprintf("%s; %s; %s", plan.Engine, layout(plan), sequences(plan)))
	}
	if r.name != "" {
		line("revision " + r.name)
	}
	for _, warning := range plan.Warnings {
		line("! " + warning)
	}
	return out.String()
}

func sequences(plan *planner.Plan) string {
	return fmt.Sprintf("%s of %d tokens each at once", count(plan.Concurrency, "sequence"), plan.MaxModelLen)
}
