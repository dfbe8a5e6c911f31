// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
)

// planCommand is kubectl berth plan.
type planCommand struct {
	planOptions
	ask
	output

	file    string
	nodes   string
	explain bool
}

func newPlan(w World) *cobra.Command {
	p := &planCommand{}
	cmd := &cobra.Command{
		Use:   "plan (-f FILE | --model MODEL)",
		Short: "Choose the machines for a model, and explain the choice",
		Long: `Choose the machines for a model, and explain the choice.

The request comes from a manifest, or from flags for its fields. The command uses the controller's planner,
which considers every engine of the catalogue and any number of machines. The JSON output has the fields of a
Workspace's status.plan.`,
		Example: `  kubectl berth plan --model Qwen/Qwen2.5-7B-Instruct
  kubectl berth plan --model meta-llama/Llama-3.3-70B-Instruct --cloud azure --region eastus --explain
  kubectl berth plan --model phi-4 --concurrency 32 --max-model-len 16384 --optimize-for latency
  kubectl berth plan -f workspace.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd, w) },
	}
	cmd.Flags().StringVarP(&p.file, "filename", "f", "", "manifest with Workspaces and their ConfigMaps; - is the standard input")
	cmd.Flags().BoolVar(&p.explain, "explain", false, "list every rejected option with its reason")
	cmd.Flags().IntVar(&p.mostNodes, "max-nodes", 0, "maximum number of machines; 0 means no limit")
	cmd.Flags().StringVar(&p.nodes, "nodes", "", "existing nodes and their pods, to use before buying: the output of "+howToList)
	p.ask.bind(cmd)
	p.planOptions.bind(cmd, w)
	p.output.bind(cmd, true)
	// The only error is that a flag does not exist.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("nodes", "yaml", "yml", "json")
	complete(cmd, "model", p.modelNames)
	complete(cmd, "instance-type", p.skuNames)
	return cmd
}

func (p *planCommand) run(ctx context.Context, cmd *cobra.Command, w World) error {
	m, err := p.manifest(cmd, w)
	if err != nil {
		return err
	}
	p.settings.AllowRemoteCode = true // affects only pods
	if err := p.open(); err != nil {
		return err
	}
	if err := p.openNodes(p.nodes, w.In); err != nil {
		return err
	}
	var answers []answer
	var problems []error
	for _, ws := range m.workspaces {
		got, err := p.plan(ctx, m, ws)
		if err != nil {
			problems = append(problems, err)
			if turnedDown := rejected(err); p.explain && !p.forPrograms() && len(turnedDown) > 0 {
				explain(page{w.Out, newStyle(w)}, turnedDown)
			}
			continue
		}
		answers = append(answers, got)
	}
	if err := p.show(w, answers); err != nil {
		return err
	}
	return gathered(problems)
}

// manifest returns the request from a file or from the flags.
func (p *planCommand) manifest(cmd *cobra.Command, w World) (*manifest, error) {
	switch {
	case p.file == "" && p.ask.model == "" && p.modelResolver.config == "":
		return nil, usageError("no model: name one with --model, or a manifest with -f; see %s --help", cmd.CommandPath())
	case p.file != "":
		if err := p.beside(cmd); err != nil {
			return nil, err
		}
		return readManifest(p.file, w.In)
	}
	if p.mostNodes < 0 {
		return nil, usageError("--max-nodes is %d: it must be at least 1, or 0 for no limit", p.mostNodes)
	}
	ws, err := p.workspace()
	if err != nil {
		return nil, err
	}
	return &manifest{workspaces: []*v1beta1.Workspace{ws}}, nil
}

// show writes the plans.
func (p *planCommand) show(w World, answers []answer) error {
	if p.forPrograms() {
		return p.showData(w, answers)
	}
	out := page{w.Out, newStyle(w)}
	for i := range answers {
		if i > 0 {
			out.line("")
		}
		if err := p.describe(out, &answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// namedPlan is one plan of several.
type namedPlan struct {
	Namespace string              `json:"namespace,omitempty"`
	Name      string              `json:"name"`
	Plan      *v1beta1.PlanStatus `json:"plan"`
}

// showData writes a plan in the form of status.plan. For several Workspaces, it writes a list with their names.
func (p *planCommand) showData(w World, answers []answer) error {
	if len(answers) == 1 {
		return p.data(w.Out, request.Status(&answers[0].plan, ""))
	}
	if len(answers) == 0 {
		return nil
	}
	list := make([]namedPlan, 0, len(answers))
	for i := range answers {
		ws := answers[i].workspace
		list = append(list, namedPlan{ws.Namespace, ws.Name, request.Status(&answers[i].plan, "")})
	}
	return p.data(w.Out, list)
}

// gathered joins errors. The first one sets the exit code.
func gathered(problems []error) error {
	if len(problems) < 2 {
		return errors.Join(problems...)
	}
	joined := problems[0]
	for _, problem := range problems[1:] {
		joined = fmt.Errorf("%w; %w", joined, problem)
	}
	return &exitError{code: codeOf(problems[0]), err: joined}
}

// modelNames and skuNames complete flags.
func (p *planCommand) modelNames() []string {
	c, err := p.load()
	if err != nil {
		return nil
	}
	var names []string
	for _, m := range c.Models() {
		names = append(names, m.Name)
	}
	return names
}

func (p *planCommand) skuNames() []string {
	c, err := p.load()
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range c.SKUs() {
		if s.Unusable == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// plan plans for a Workspace. It exists because other embedded fields hide the method of planOptions.
func (p *planCommand) plan(ctx context.Context, m *manifest, ws *v1beta1.Workspace) (answer, error) {
	return p.planOptions.plan(ctx, m, ws)
}
