// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planning

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Limits are the current limits for a plan.
type Limits struct {
	// Ceiling is the ceiling on the price.
	Ceiling planner.Ceiling
	// InstanceTypes are the machine types that may be bought, as patterns of path.Match; empty allows all.
	InstanceTypes []string
	// OneMachine explains why no model may spread over several machines; empty if models may.
	OneMachine string
	// Excluded are the offerings that must not be used, for example while they are cooling down.
	Excluded []planner.Exclusion
	// MaxNodes replaces the Workspace's limit on machines; 0 keeps it.
	MaxNodes int
}

// Settings are the installation's settings for revisions.
type Settings struct {
	Render render.Settings
	// NodeClass is the node class for Workspaces that name none.
	NodeClass v1beta1.NodeClassReference
}

// Builder restricts, prices and renders plans, without I/O.
type Builder struct {
	Planner  Planner
	Catalog  Catalog
	Settings Settings

	// skus returns one copy of the catalogue's machine types, because the catalogue copies them on each call. Callers
	// must not change it.
	skus func() []sku.SKU
}

// NewBuilder returns a Builder.
func NewBuilder(plans Planner, known Catalog, settings Settings) *Builder {
	return &Builder{
		Planner: plans, Catalog: known, Settings: settings,
		skus: sync.OnceValue(func() []sku.SKU { return known.SKUs() }),
	}
}

// Restrict adds the limits to the constraints of a Workspace. class is the NodeClass that the Workspace names, or nil.
// The error is a *progress.StalledError if the administrator does not allow the machine type that the Workspace names.
func (b *Builder) Restrict(c *planner.Constraints, class *v1beta1.NodeClassReference, limits Limits) error {
	if class == nil {
		class = &b.Settings.NodeClass
	}
	if buysOnDemandOnly(*class) {
		c.Excluded = append(c.Excluded, b.withoutDiscounts()...)
	}
	c.Ceiling, c.OneMachine = limits.Ceiling, limits.OneMachine
	if limits.MaxNodes > 0 {
		c.MaxNodes = limits.MaxNodes
	}
	if err := b.restrictTypes(c, limits.InstanceTypes); err != nil {
		return err
	}
	c.Excluded = append(c.Excluded, limits.Excluded...)
	return nil
}

// restrictTypes excludes the machine types that no pattern matches. Without patterns, it excludes none.
func (b *Builder) restrictTypes(c *planner.Constraints, patterns []string) error {
	if len(patterns) == 0 {
		return nil
	}
	allowed := strings.Join(patterns, ", ")
	if named, err := b.Catalog.ResolveSKU(c.InstanceType); c.InstanceType != "" && err == nil && !matches(patterns, named.Name) {
		return &progress.StalledError{
			Reason: v1beta1.ReasonNoMachineAllowed,
			Message: fmt.Sprintf("resource.instanceType: the administrator does not allow %s: name one of %s, "+
				"or leave instanceType out", named.Name, allowed),
		}
	}
	for _, known := range b.skus() {
		if !matches(patterns, known.Name) {
			c.Excluded = append(c.Excluded, planner.Exclusion{
				InstanceType: known.Name, Reason: "the administrator allows only " + allowed,
			})
		}
	}
	return nil
}

// matches reports whether a pattern matches a machine type.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		isMatch, err := path.Match(strings.ToLower(pattern), strings.ToLower(name))
		return err == nil && isMatch
	})
}

// buysOnDemandOnly reports whether machines of a NodeClass are always on demand, in a zone that the cloud chooses.
func buysOnDemandOnly(class v1beta1.NodeClassReference) bool {
	return refusal.ProviderOf(class.Group, class.Kind) == refusal.GPUProvisioner
}

// withoutDiscounts returns exclusions of all reserved and spot machines.
func (b *Builder) withoutDiscounts() []planner.Exclusion {
	var out []planner.Exclusion
	for _, known := range b.skus() {
		for _, capacityType := range []v1beta1.CapacityType{v1beta1.CapacityReserved, v1beta1.CapacitySpot} {
			out = append(out, planner.Exclusion{
				InstanceType: known.Name, CapacityType: capacityType, Reason: "gpu-provisioner buys machines on demand only",
			})
		}
	}
	return out
}

// ZoneProblem explains why machines of a NodeClass cannot be bought in the zones of a plan; empty if they can.
func ZoneProblem(plan *planner.Plan, class v1beta1.NodeClassReference) string {
	if !buysOnDemandOnly(class) || len(plan.Zones) == 0 {
		return ""
	}
	return fmt.Sprintf("resource.placement.zones: gpu-provisioner cannot choose a zone (%s): leave zones out",
		strings.Join(plan.Zones, ", "))
}

// Quote returns an accepted revision at the current price, or explains why its machines may not be bought now. If the
// price has not changed, it returns the revision itself. A pinned plan fixes how a model is laid out, but not the
// spending: each purchase must be within the current limits.
func (b *Builder) Quote(accepted *revision.Revision, ws *v1beta1.Workspace, limits Limits) (*revision.Revision, string) {
	constraints := request.Constraints(ws)
	if err := b.Restrict(&constraints, accepted.NodeClass, limits); err != nil {
		return accepted, progress.Message(err)
	}
	plan, refused := b.Planner.Quote(accepted.Plan, constraints)
	if refused != "" || plan.HourlyPrice == accepted.Plan.HourlyPrice {
		return accepted, refused
	}
	quoted := *accepted
	quoted.Plan = plan
	return &quoted, ""
}

// Build renders the pods of a plan. The error is a *progress.StalledError if the engine cannot run what the Workspace
// specifies.
func (b *Builder) Build(d *Demand, plan planner.Plan) (*revision.Revision, error) {
	out := &revision.Revision{Revision: render.Revision{Plan: plan, NodeClass: d.NodeClass}}
	if d.Workspace.Inference.Template != nil {
		out.Rendered = render.Template(d.Workspace, &out.Plan)
	} else if err := b.render(d, out); err != nil {
		return nil, err
	}
	labels, warnings := nodeLabels(d.Workspace)
	out.NodeLabels = labels
	out.Plan.Warnings = append(out.Plan.Warnings, warnings...)
	return out, nil
}

// render fills in the pods of a preset.
func (b *Builder) render(d *Demand, out *revision.Revision) error {
	data, known := b.Catalog.Engine(out.Plan.Engine)
	if !known || !slices.Contains(render.Engines(), data.Name) {
		return &progress.StalledError{
			Reason:  v1beta1.ReasonEngineUnknown,
			Message: fmt.Sprintf("this version cannot run engine %q", out.Plan.Engine),
		}
	}
	hash, err := revision.Hash(d.Inputs)
	if err != nil {
		return err
	}
	rendered, warnings, err := render.Preset(render.Input{
		Workspace: d.Workspace, Model: d.Model, Plan: out.Plan, Config: d.Config, Data: data,
		Commits: workload.CommitsOf(d.Workspace, revision.ShortHash(hash)), Settings: b.Settings.Render,
	})
	if err != nil {
		return progress.Invalid(err.Error())
	}
	out.Rendered = rendered
	out.Plan.Warnings = slices.Concat(out.Plan.Warnings, d.Notes, warnings)
	return nil
}

// foreignDomains returns the label domains of the cluster, the provisioners and Modelberth. The user of a namespace
// must not set such labels on a machine.
func foreignDomains() []string {
	return []string{
		"kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.azure.com", "karpenter.k8s.aws", "kaito.sh", "modelberth.dev",
		"kubernetes.azure.com", "eks.amazonaws.com", "cloud.google.com", "nvidia.com",
	}
}

// nodeLabels returns the user's labels for machines, and a warning that names the omitted labels.
func nodeLabels(ws *v1beta1.Workspace) (map[string]string, []string) {
	out := map[string]string{}
	if ws.Resource.LabelSelector == nil {
		return out, nil
	}
	maps.Copy(out, ws.Resource.LabelSelector.MatchLabels)
	for _, expression := range ws.Resource.LabelSelector.MatchExpressions {
		if len(expression.Values) == 1 {
			out[expression.Key] = expression.Values[0]
		}
	}
	reserved := v1beta1.ReservedSelectorKeys()
	var left []string
	for _, key := range slices.Sorted(maps.Keys(out)) {
		if isForeign(key) {
			delete(out, key)
			if !slices.Contains(reserved, key) { // reserved keys need no warning
				left = append(left, key)
			}
		}
	}
	if len(left) == 0 {
		return out, nil
	}
	return out, []string{fmt.Sprintf("resource.labelSelector: bought machines do not get %s: only the cluster may set such labels",
		strings.Join(left, ", "))}
}

func isForeign(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	return ok && slices.ContainsFunc(foreignDomains(), func(foreign string) bool {
		return domain == foreign || strings.HasSuffix(domain, "."+foreign)
	})
}
