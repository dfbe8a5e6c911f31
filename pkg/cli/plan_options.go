// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// planOptions plan and render for Workspaces as the controller does, with flags instead of the chart's settings.
type planOptions struct {
	catalogFlags
	modelResolver

	provisioner string
	osDiskGiB   int
	localDisk   bool
	rdma        rdmaFlag
	// mostNodes is a limit from a flag; 0 means no limit. Unlike in a manifest, 1 is a limit, too.
	mostNodes int

	// there are the existing nodes; nil without --nodes.
	there *nodesThere
	// settings of pods.
	settings render.Settings

	catalog *catalog.Catalog
	planner *planner.Planner
	// pipeline is the controller's planning pipeline.
	pipeline *planning.Pipeline
}

func (o *planOptions) bind(cmd *cobra.Command, w World) {
	o.catalogFlags.bind(cmd, w)
	o.bindPlaces(cmd)
	o.modelResolver.bind(cmd, w)
	cmd.Flags().StringVar(&o.provisioner, "provisioner", "", "provisioner of the machines: karpenter or gpu-provisioner (default: any)")
	cmd.Flags().BoolVar(&o.localDisk, "local-disk-holds-pods", false, "pods and images are stored on the machines' local disks")
	cmd.Flags().Var(&o.rdma, "rdma", "RDMA resource for pods on machines with RDMA, as NAME or NAME=COUNT (the chart's rdma.resource)")
	cmd.Flags().Lookup("rdma").NoOptDefVal = "true"
	cmd.Flags().IntVar(&o.osDiskGiB, "os-disk-gib", 0, "size of the machines' OS disk in GiB; 0 means large enough")
	complete(cmd, "provisioner", provisioners)
}

const gpuProvisioner = "gpu-provisioner"

func provisioners() []string { return []string{"karpenter", gpuProvisioner} }

// open loads the catalogue and makes the planner.
func (o *planOptions) open() error {
	if o.provisioner != "" {
		if err := oneOf("--provisioner", o.provisioner, provisioners()); err != nil {
			return err
		}
	}
	if o.osDiskGiB < 0 {
		return usageError("--os-disk-gib is %d: it must be a size in GiB, or 0", o.osDiskGiB)
	}
	known, err := o.load()
	if err != nil {
		return err
	}
	where, err := o.place(known)
	if err != nil {
		return err
	}
	o.catalog, o.modelResolver.catalog = known, known
	o.planner = planner.New(known, planner.Settings{
		Clouds: where, Region: o.region, Provisioner: o.provisioner, OSDiskGiB: o.osDiskGiB, LocalDisk: o.localDisk,
		NoRDMA: o.rdma.Resource == "", Engines: render.Engines(),
	})
	o.pipeline = o.newPipeline()
	return nil
}

// newPipeline returns the pipeline of planning and rendering. Without a cluster, all references of a Workspace count as
// valid.
func (o *planOptions) newPipeline() *planning.Pipeline {
	settings := planning.Settings{Render: o.settings}
	settings.Render.Workload.HubEndpoint, settings.Render.Workload.RDMA = o.endpoint, workload.RDMA(o.rdma)
	if o.provisioner == gpuProvisioner {
		settings.NodeClass = v1beta1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass"}
	}
	return &planning.Pipeline{
		Resolver: &planning.Resolver{Catalog: o.catalog, Models: &o.modelResolver, AnyNodeClass: true},
		Builder:  planning.NewBuilder(o.planner, o.catalog, settings),
	}
}

// openNodes reads the existing nodes from a file, after open. It reads none if the name is empty.
func (o *planOptions) openNodes(file string, stdin io.Reader) error {
	if file == "" {
		return nil
	}
	var err error
	if o.there, err = readNodes(file, stdin); err != nil {
		return err
	}
	o.pipeline.Nodes = &planning.Nodes{List: o.there.list, Uses: o.there, Clock: clock.RealClock{}}
	return nil
}

// answer is the result of planning for one Workspace.
type answer struct {
	workspace *v1beta1.Workspace
	// model is nil for a template.
	model *model.Model
	// revision is the revision that the controller would pin, and plan is its plan.
	revision *revision.Revision
	plan     planner.Plan
}

// plan plans for a Workspace of a manifest.
func (o *planOptions) plan(ctx context.Context, m *manifest, ws *v1beta1.Workspace) (answer, error) {
	out := answer{workspace: ws}
	err := o.decide(ctx, m, ws, &out)
	if err == nil {
		return out, nil
	}
	if m.file == "" {
		err = rephrased(err)
	} else {
		err = fmt.Errorf("%s, Workspace %s: %w", m.file, key(ws), err)
	}
	return out, err
}

func (o *planOptions) decide(ctx context.Context, m *manifest, ws *v1beta1.Workspace, out *answer) error {
	if err := request.Check(ws); err != nil {
		return refused(err)
	}
	config, warnings, err := m.config(ws)
	if err != nil {
		return err
	}
	if err := o.missesNodes(ws); err != nil {
		return err
	}
	ask := planning.Ask{Workspace: ws, Inputs: revision.Inputs(ws, config), Limits: planning.Limits{MaxNodes: o.mostNodes}}
	demand, err := o.pipeline.Demand(ctx, ask)
	if err != nil {
		return refused(err)
	}
	made, err := o.pipeline.Decide(ctx, ask, demand)
	if err != nil {
		return refused(err)
	}
	if ws.Inference.Preset != nil {
		out.model = &demand.Model
	}
	made.Plan.Warnings = slices.Concat(made.Plan.Warnings, warnings)
	out.revision, out.plan = made, made.Plan
	return nil
}

// config returns the text of the Workspace's ConfigMap. If the file lacks the ConfigMap, it returns a warning and no
// text.
func (m *manifest) config(ws *v1beta1.Workspace) (string, []string, error) {
	name := ws.Inference.Config
	if name == "" {
		return "", nil, nil
	}
	name = inNamespace(ws, name)
	data, found := m.configs[name]
	if !found {
		return "", []string{fmt.Sprintf("inference.config names ConfigMap %q, which is not in %s: the plan is made without it",
			ws.Inference.Config, m.file)}, nil
	}
	text, found := data[v1beta1.InferenceConfigKey]
	if !found {
		return "", nil, usageError("ConfigMap %q has no key %s: add it, or remove inference.config", name, v1beta1.InferenceConfigKey)
	}
	if _, err := engine.ParseConfig([]byte(text)); err != nil {
		return "", nil, usageError("ConfigMap %q: %w", name, err)
	}
	return text, nil, nil
}

// inNamespace returns the key of an object in the namespace of a Workspace.
func inNamespace(ws *v1beta1.Workspace, name string) string {
	if ws.Namespace == "" {
		return name
	}
	return ws.Namespace + "/" + name
}

// refused turns a refusal of the planner or of the checks before it into an exit code and a message, without a
// condition's reason.
func refused(err error) error {
	if err == nil {
		return nil
	}
	if stalled, ok := errors.AsType[*progress.StalledError](err); ok {
		return &exitError{code: codeFor(stalled.Reason), err: &sentence{stalled.Message, err}}
	}
	if problem, ok := errors.AsType[*request.RefusedError](err); ok {
		return &exitError{code: codeFor(problem.Reason), err: &sentence{problem.Message, err}}
	}
	return err
}

// codeFor returns the exit code for a reason: wrong names and fields differ from infeasible requests.
func codeFor(reason string) int {
	switch reason {
	case v1beta1.ReasonSpecInvalid, v1beta1.ReasonEngineUnknown, v1beta1.ReasonUnknownInstanceType:
		return codeUsage
	default:
		return codeInfeasible
	}
}

// sentence is an error with another text.
type sentence struct {
	text string
	err  error
}

func (s *sentence) Error() string { return s.text }
func (s *sentence) Unwrap() error { return s.err }

// rephrased replaces the names of fields in an error by the names of their flags.
func rephrased(err error) error {
	return &exitError{code: codeOf(err), err: &sentence{flagged(err.Error()), err}}
}

// rejected returns the rejected options in an error of the planner.
func rejected(err error) []planner.Verdict {
	if none, ok := errors.AsType[*planner.InfeasibleError](err); ok {
		return none.Rejected
	}
	return nil
}
