// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

func workspaceKind() schema.GroupVersionKind {
	return v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind)
}

// ensurePlan finds the revision that was pinned for the current spec, or has a plan made and pins
// it. If the current spec cannot be planned, what was accepted before goes on.
func (r *Reconciler) ensurePlan(ctx context.Context, s *scope) error {
	err := r.findOrMakePlan(ctx, s)
	var stalled *stalledError
	if !errors.As(err, &stalled) {
		return err
	}
	s.planErr = stalled
	if s.revision = newestRevision(s.revisions); s.revision == nil {
		return stalled
	}
	return nil
}

func (r *Reconciler) findOrMakePlan(ctx context.Context, s *scope) error {
	if err := checkSpec(s.ws); err != nil {
		return err
	}
	in := inputs{
		Resource:    s.ws.Resource,
		Inference:   s.ws.Inference,
		Annotations: renderingAnnotations(s.ws),
	}
	var err error
	if in.Config, err = r.config(ctx, s.ws); err != nil {
		return err
	}
	hash, err := in.hash()
	if err != nil {
		return err
	}
	if s.revision, err = findRevision(s.revisions, hash); err != nil || s.revision != nil {
		return err
	}
	accepted, err := r.makePlan(ctx, s.ws, in)
	if err != nil {
		return err
	}
	s.revision, err = r.createRevision(ctx, s, hash, accepted)
	return err
}

// checkSpec refuses what admission refuses as well, for objects that were stored without it, and
// what this version cannot do.
func checkSpec(ws *v1beta1.Workspace) error {
	switch {
	case ws.Tuning != nil && ws.Inference != nil, ws.Tuning == nil && ws.Inference == nil:
		return specInvalid("exactly one of inference and tuning must be set")
	case ws.Tuning != nil:
		return &stalledError{
			reason: v1beta1.ReasonTuningNotAvailable,
			message: "tuning is not available in this version; nothing is bought. " +
				"Delete this Workspace, or keep it until a version with tuning is installed",
		}
	case (ws.Inference.Preset == nil) == (ws.Inference.Template == nil):
		return specInvalid("exactly one of inference.preset and inference.template must be set")
	}
	if problem := workload.NameProblem(ws.Name); problem != "" {
		return specInvalid(problem)
	}
	if problem := ws.Inference.TemplateError; problem != "" {
		return specInvalid("inference.template cannot be read: " + problem)
	}
	if template := ws.Inference.Template; template != nil && len(template.Spec.Containers) == 0 {
		return specInvalid("inference.template.spec.containers is empty: name at least one container")
	}
	if ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting {
		return &stalledError{
			reason: v1beta1.ReasonNotSupported,
			message: "this Workspace asks for existing nodes (a labelSelector without an instanceType, or " +
				"resource.placement.nodeSource Existing), which this version cannot use; nothing is bought. " +
				"Make it again with resource.instanceType, or with resource.placement.nodeSource Provisioned",
		}
	}
	if ws.Resource.Partition != nil {
		return &stalledError{
			reason: v1beta1.ReasonNotSupported,
			message: "resource.partition shares the GPUs of existing nodes, which this version cannot use; " +
				"nothing is bought. Make the Workspace again without resource.partition",
		}
	}
	return nil
}

func specInvalid(message string) error {
	return &stalledError{reason: v1beta1.ReasonSpecInvalid, message: message}
}

// config returns the text of the user's ConfigMap, or nothing if there is none.
func (r *Reconciler) config(ctx context.Context, ws *v1beta1.Workspace) (string, error) {
	name := ws.Inference.Config
	if name == "" {
		return "", nil
	}
	object := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return "", &stalledError{
			reason: v1beta1.ReasonConfigNotFound,
			message: fmt.Sprintf("inference.config names ConfigMap %q, which does not exist in namespace %q: "+
				"create it with the key %s", name, ws.Namespace, v1beta1.InferenceConfigKey),
		}
	}
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	text, ok := object.Data[v1beta1.InferenceConfigKey]
	if !ok {
		return "", &stalledError{
			reason: v1beta1.ReasonConfigInvalid,
			message: fmt.Sprintf("ConfigMap %q has no key %s: add it, or remove inference.config",
				name, v1beta1.InferenceConfigKey),
		}
	}
	return text, nil
}

// checkSecret says before anything is bought that the token for the hub is missing.
func (r *Reconciler) checkSecret(ctx context.Context, ws *v1beta1.Workspace, m model.Model) error {
	name := ws.Inference.Preset.PresetOptions.ModelAccessSecret
	if name == "" {
		if !m.Gated {
			return nil
		}
		return &stalledError{
			reason: v1beta1.ReasonSecretNotFound,
			message: fmt.Sprintf("model %s is gated: accept its licence on the hub, put a token into a Secret under the "+
				"key %s, and name it in inference.preset.presetOptions.modelAccessSecret", m.HubID, v1beta1.HubTokenKey),
		}
	}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: ws.Namespace, Name: name}, secret)
	if client := apierrors.IsNotFound(err); client || (err == nil && len(secret.Data[v1beta1.HubTokenKey]) == 0) {
		return &stalledError{
			reason: v1beta1.ReasonSecretNotFound,
			message: fmt.Sprintf("modelAccessSecret names Secret %q, which must exist in namespace %q with the key %s",
				name, ws.Namespace, v1beta1.HubTokenKey),
			retryAfter: retrySecret,
		}
	}
	if err != nil {
		return fmt.Errorf("reading Secret %q: %w", name, err)
	}
	return nil
}

// makePlan has the planner decide and renders the pods.
func (r *Reconciler) makePlan(ctx context.Context, ws *v1beta1.Workspace, in inputs) (*revision, error) {
	class, err := r.nodeClass(ws)
	if err != nil {
		return nil, err
	}
	out := &revision{NodeClass: class, NodeLabels: nodeLabels(ws)}
	request := planner.Request{Constraints: constraintsOf(ws)}
	if ws.Inference.Template != nil {
		request.Template = templateDemand(ws)
		if out.Plan, err = r.Planner.Plan(request); err != nil {
			return nil, planError(err)
		}
		out.Template = workload.TemplatePod(ws)
		return out, nil
	}
	m, err := r.Catalog.ResolveModel(ws.Inference.Preset.Name)
	if err != nil {
		return nil, planError(err)
	}
	if err := r.checkSecret(ctx, ws, m); err != nil {
		return nil, err
	}
	request.Model = &m
	request.Objectives = objectivesOf(ws)
	if ws.Inference.Engine != nil {
		request.Engine = ws.Inference.Engine.Name
	}
	if out.Plan, err = r.Planner.Plan(request); err != nil {
		return nil, planError(err)
	}
	return out, r.render(ws, m, in.Config, out)
}

// render fills in the pods of a preset.
func (r *Reconciler) render(ws *v1beta1.Workspace, m model.Model, configText string, out *revision) error {
	data, ok := r.Catalog.Engine(out.Plan.Engine)
	command := r.Commands[out.Plan.Engine]
	if !ok || command == nil {
		return &stalledError{
			reason:  v1beta1.ReasonEngineUnknown,
			message: fmt.Sprintf("engine %q is not one that this version can run", out.Plan.Engine),
		}
	}
	config, err := engine.ParseConfig([]byte(configText))
	if err != nil {
		return &stalledError{
			reason:  v1beta1.ReasonConfigInvalid,
			message: fmt.Sprintf("ConfigMap %q: %v", ws.Inference.Config, err),
		}
	}
	out.ServedNames = engine.ServedNames(m, ws.Labels[v1beta1.LabelInferenceSet])
	rendered, err := command(engine.Input{
		Data: data, Plan: out.Plan, ModelDir: workload.ModelDir, ServedNames: out.ServedNames,
		Config: config, Args: engineArgs(ws), Env: engineEnv(ws), Port: v1beta1.EnginePort,
	})
	if err != nil {
		return specInvalid(err.Error())
	}
	out.Plan.Warnings = append(out.Plan.Warnings, rendered.Warnings...)
	out.KVEventsPort = rendered.KVEventsPort
	image := data.ImageFor(out.Plan.GPUsPerNode)
	if replaced := r.EngineImages[data.Name]; replaced != "" {
		image = replaced
	}
	if spec := ws.Inference.Engine; spec != nil && spec.Image != "" {
		image = spec.Image
	}
	template, warnings := workload.PodTemplate(workload.Input{
		Workspace: ws, Plan: out.Plan, Engine: rendered, Image: image, UserID: data.UserID, Settings: r.Workload,
	})
	out.Template = template
	out.Plan.Warnings = append(out.Plan.Warnings, warnings...)
	return nil
}

// planError turns what the planner or the catalogue refuses into the condition that says so.
func planError(err error) error {
	var infeasible *planner.InfeasibleError
	var unknown *catalog.UnknownError
	switch {
	case errors.As(err, &infeasible):
		return &stalledError{reason: infeasible.Reason, message: infeasible.Message}
	case errors.As(err, &unknown):
		return &stalledError{reason: v1beta1.ReasonUnknownPreset, message: unknown.Error()}
	default:
		return err
	}
}

// nodeClass returns the NodeClass that the Workspace asks for, if it is allowed, or nil.
func (r *Reconciler) nodeClass(ws *v1beta1.Workspace) (*v1beta1.NodeClassReference, error) {
	wants := func(class v1beta1.NodeClassReference) bool {
		return class.Name == ws.Annotations[v1beta1.AnnotationNodeClassName]
	}
	field, name := "annotation "+v1beta1.AnnotationNodeClassName, ws.Annotations[v1beta1.AnnotationNodeClassName]
	if placement := ws.Resource.Placement; placement != nil && placement.NodeClassRef != nil {
		field, name = "resource.placement.nodeClassRef", placement.NodeClassRef.Name
		wants = func(class v1beta1.NodeClassReference) bool { return class == *placement.NodeClassRef }
	}
	if name == "" {
		return nil, nil
	}
	if i := slices.IndexFunc(r.NodeClasses, wants); i >= 0 {
		return &r.NodeClasses[i], nil
	}
	allowed := make([]string, 0, len(r.NodeClasses))
	for _, class := range r.NodeClasses {
		allowed = append(allowed, class.Group+"/"+class.Kind+"/"+class.Name)
	}
	return nil, specInvalid(fmt.Sprintf("%s names NodeClass %q, which the administrator does not allow; allowed: %s",
		field, name, strings.Join(append(allowed, "none by leaving it out"), ", ")))
}

func constraintsOf(ws *v1beta1.Workspace) planner.Constraints {
	out := planner.Constraints{InstanceType: ws.Resource.InstanceType}
	if count := ws.Resource.Count; count != nil && *count > 1 {
		out.MaxNodes = *count
	}
	if ws.Inference.Engine != nil {
		out.AllowedQuantizations = ws.Inference.Engine.AllowedQuantizations
	}
	placement := ws.Resource.Placement
	if placement == nil {
		return out
	}
	out.InstanceTypes = placement.InstanceTypes
	out.Accelerators = placement.Accelerators
	out.Zones = placement.Zones
	out.CapacityTypes = placement.CapacityTypes
	// The schema admits decimals only; an object stored without it has no limit that we could read.
	out.MaxHourlyPrice, _ = strconv.ParseFloat(placement.MaxHourlyPrice, 64)
	return out
}

func objectivesOf(ws *v1beta1.Workspace) planner.Objectives {
	out := planner.Objectives{}
	objectives := ws.Inference.Objectives
	if objectives == nil {
		return out
	}
	if objectives.MaxModelLen != nil {
		out.MaxModelLen = int(*objectives.MaxModelLen)
	}
	if objectives.Concurrency != nil {
		out.Concurrency = int(*objectives.Concurrency)
	}
	return out
}

// templateDemand reads what the user's pod asks of each machine.
func templateDemand(ws *v1beta1.Workspace) *planner.TemplateDemand {
	out := &planner.TemplateDemand{Nodes: 1}
	if count := ws.Resource.Count; count != nil && *count > 1 {
		out.Nodes = *count
	}
	for _, container := range ws.Inference.Template.Spec.Containers {
		quantity := container.Resources.Limits["nvidia.com/gpu"]
		out.GPUs += int(quantity.Value())
	}
	return out
}

func engineArgs(ws *v1beta1.Workspace) map[string]string {
	out := map[string]string{}
	if ws.Inference.Engine != nil {
		for key, value := range ws.Inference.Engine.Args {
			out[key] = string(value)
		}
	}
	return out
}

func engineEnv(ws *v1beta1.Workspace) []engine.EnvVar {
	var out []engine.EnvVar
	if ws.Inference.Engine != nil {
		for _, variable := range ws.Inference.Engine.Env {
			out = append(out, engine.EnvVar{Name: variable.Name, Value: variable.Value})
		}
	}
	return out
}

// nodeLabels are the user's labels for machines, without the keys that only the controller sets.
func nodeLabels(ws *v1beta1.Workspace) map[string]string {
	out := map[string]string{}
	if ws.Resource.LabelSelector == nil {
		return out
	}
	maps.Copy(out, ws.Resource.LabelSelector.MatchLabels)
	for _, expression := range ws.Resource.LabelSelector.MatchExpressions {
		if len(expression.Values) == 1 {
			out[expression.Key] = expression.Values[0]
		}
	}
	for _, key := range append(v1beta1.ReservedSelectorKeys(), corev1.LabelInstanceTypeStable) {
		delete(out, key) // on a claim, the instance type would mask the real one
	}
	return out
}
