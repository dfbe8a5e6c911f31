// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
)

// hubDeadline bounds the wait for the ranks of adapters. A plan assumes a rank if it is unknown.
const hubDeadline = 10 * time.Second

// Demand is the input of a plan: all facts for the decision, but no decision.
type Demand struct {
	Workspace *v1beta1.Workspace
	Inputs    render.Inputs
	Request   planner.Request
	// NodeClass is the node class of the Workspace; nil if the Workspace names none.
	NodeClass *v1beta1.NodeClassReference
	// Model and Config are set for a preset only. Notes are the assumptions about the model.
	Model  model.Model
	Config engine.Config
	Notes  []string

	credentials Credentials
	replaces    *planner.Plan
}

// Models finds models.
type Models interface {
	// Model returns a Workspace's model, and the assumptions about it. commit is a commit of the model's repository;
	// empty means the newest.
	Model(ctx context.Context, ws *v1beta1.Workspace, commit string) (model.Model, []string, error)
}

// Supply checks whether the files of a model can be read, and returns the credentials for them.
type Supply interface {
	Check(ctx context.Context, ws *v1beta1.Workspace, m model.Model) (Credentials, error)
}

// Credentials are the Workspace's credentials.
type Credentials struct {
	// Token is the token for the hub.
	Token string
	// Registries is a .dockerconfigjson for the registry of the weights.
	Registries []byte
}

// Resolver reads the inputs of a plan.
type Resolver struct {
	Catalog Catalog
	Models  Models
	// Supply checks the objects that the Workspace names; nil checks nothing.
	Supply Supply
	// AdapterRanks reads the ranks of adapters from their repositories on the hub; nil reads none.
	AdapterRanks func(ctx context.Context, repositories []string) ([]int, error)
	// Starts returns the memory and the speed of engines that already run a Workspace's model; nil returns none.
	Starts func(ctx context.Context, ws *v1beta1.Workspace) ([]catalog.Measurement, error)
	// NodeClasses are the node classes that Workspaces may name; AnyNodeClass allows all.
	NodeClasses  []v1beta1.NodeClassReference
	AnyNodeClass bool
}

// Resolve reads all inputs of a plan.
func (r *Resolver) Resolve(ctx context.Context, ask Ask) (*Demand, error) {
	ws := ask.Workspace
	out := &Demand{Workspace: ws, Inputs: ask.Inputs, replaces: ask.Replaces}
	var err error
	if out.NodeClass, err = r.NodeClass(ws); err != nil {
		return nil, err
	}
	if ws.Inference.Template != nil {
		out.Request = request.ForTemplate(ws)
		return out, nil
	}
	commit := ""
	if from := ask.Replaces; from != nil && from.Artifact != nil && from.Artifact.Repo == ws.Inference.Preset.Name {
		commit = from.Artifact.Revision
	}
	if out.Model, out.Notes, err = r.Models.Model(ctx, ws, commit); err != nil {
		return nil, err
	}
	if r.Supply != nil {
		if out.credentials, err = r.Supply.Check(ctx, ws, out.Model); err != nil {
			return nil, err
		}
	}
	if out.Config, err = engine.ParseConfig([]byte(ask.Inputs.Config)); err != nil {
		return nil, &progress.StalledError{
			Reason:  v1beta1.ReasonConfigInvalid,
			Message: fmt.Sprintf("ConfigMap %q: %v", ws.Inference.Config, err),
		}
	}
	if out.Request, err = request.ForModel(ws, &out.Model, out.Config, r.Catalog); err != nil {
		return nil, Classify(err)
	}
	if r.Starts != nil {
		if out.Request.Starts, err = r.Starts(ctx, ws); err != nil {
			return nil, err
		}
	}
	out.Request.Adapters.Ranks, err = r.adapterRanks(ctx, ws)
	return out, err
}

// NodeClass returns the Workspace's node class; nil if it names none, or if all are allowed. The error is a
// *progress.StalledError if the administrator does not allow the node class.
func (r *Resolver) NodeClass(ws *v1beta1.Workspace) (*v1beta1.NodeClassReference, error) {
	isNamed := func(class v1beta1.NodeClassReference) bool {
		return class.Name == ws.Annotations[v1beta1.AnnotationNodeClassName]
	}
	field, name := "annotation "+v1beta1.AnnotationNodeClassName, ws.Annotations[v1beta1.AnnotationNodeClassName]
	if placement := ws.Resource.Placement; placement != nil && placement.NodeClassRef != nil {
		field, name = "resource.placement.nodeClassRef", placement.NodeClassRef.Name
		isNamed = func(class v1beta1.NodeClassReference) bool { return class == *placement.NodeClassRef }
	}
	if name == "" || r.AnyNodeClass {
		return nil, nil
	}
	if i := slices.IndexFunc(r.NodeClasses, isNamed); i >= 0 {
		return &r.NodeClasses[i], nil
	}
	allowed := make([]string, 0, len(r.NodeClasses))
	for _, class := range r.NodeClasses {
		allowed = append(allowed, class.Group+"/"+class.Kind+"/"+class.Name)
	}
	instead := "leave it out"
	if len(allowed) > 0 {
		instead = "name " + strings.Join(allowed, " or ") + ", or " + instead
	}
	return nil, progress.Invalid(fmt.Sprintf("%s names NodeClass %q, which the administrator does not allow: %s", field, name, instead))
}

// adapterRanks returns the ranks of the Workspace's adapters on the hub.
func (r *Resolver) adapterRanks(ctx context.Context, ws *v1beta1.Workspace) ([]int, error) {
	var repositories []string
	for _, adapter := range ws.Inference.Adapters {
		if adapter.Source.Repository != "" {
			repositories = append(repositories, adapter.Source.Repository)
		}
	}
	if len(repositories) == 0 || r.AdapterRanks == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, hubDeadline)
	defer cancel()
	ranks, err := r.AdapterRanks(ctx, repositories)
	if err != nil {
		return nil, &progress.StalledError{
			Reason:     v1beta1.ReasonSpecInvalid,
			Message:    fmt.Sprintf("inference.adapters: %v: correct source.repository, or leave the adapter out", err),
			RetryAfter: retryAdapter,
		}
	}
	return ranks, nil
}
