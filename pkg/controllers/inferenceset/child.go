// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// inherited returns the annotations that a set passes on to its Workspaces.
func inherited() []string {
	return []string{v1beta1.AnnotationRuntime, v1beta1.AnnotationDisableBenchmark}
}

// template describes the Workspaces of a set. A ControllerRevision holds it as JSON.
type template struct {
	Labels      map[string]string      `json:"labels,omitempty"`
	Annotations map[string]string      `json:"annotations,omitempty"`
	Resource    v1beta1.ResourceSpec   `json:"resource,omitzero"`
	Inference   *v1beta1.InferenceSpec `json:"inference,omitempty"`
	// hash identifies the template; empty without a rollback policy.
	hash string
	// tried has the zones that the set chose for a replica one after the other; empty if it chose none.
	tried string
}

// templateOf reads the template of a set's spec.
func templateOf(set *v1beta1.InferenceSet) (template, error) {
	spec := set.Spec.Template.DeepCopy()
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, spec.Metadata.Labels)
	maps.Copy(annotations, spec.Metadata.Annotations)
	labels[v1beta1.LabelInferenceSet] = set.Name
	for _, key := range inherited() {
		if value, isSet := set.Annotations[key]; isSet && annotations[key] == "" {
			annotations[key] = value
		}
	}
	hash, err := metadataHash(labels, annotations)
	if err != nil {
		return template{}, fmt.Errorf("hashing the template's metadata: %w", err)
	}
	annotations[v1beta1.AnnotationTemplateMetadata] = hash
	return template{
		Labels: labels, Annotations: annotations, Inference: spec.Inference,
		Resource: v1beta1.ResourceSpec{
			InstanceType: spec.Resource.InstanceType, Partition: spec.Resource.Partition,
			Placement: spec.Resource.Placement, LabelSelector: set.Spec.Selector.DeepCopy(),
		},
	}, nil
}

// steady returns the template without spot machines, and whether that makes a difference.
func (t template) steady() (template, bool) {
	if !allowsSpot(t.Resource.Placement) {
		return t, false
	}
	t.Resource.Placement = t.Resource.Placement.DeepCopy()
	rest := slices.DeleteFunc(t.Resource.Placement.CapacityTypes, func(kind v1beta1.CapacityType) bool {
		return kind == v1beta1.CapacitySpot
	})
	if len(rest) == 0 {
		rest = []v1beta1.CapacityType{v1beta1.CapacityReserved, v1beta1.CapacityOnDemand}
	}
	t.Resource.Placement.CapacityTypes = rest
	return t, true
}

// child returns the Workspace of that name in a set.
func (t template) child(set *v1beta1.InferenceSet, name string) *v1beta1.Workspace {
	labels, annotations := maps.Clone(t.Labels), maps.Clone(t.Annotations)
	if t.hash != "" {
		labels[v1beta1.LabelTemplateHash] = t.hash
	}
	if t.tried != "" {
		annotations[v1beta1.AnnotationZoneSpread] = t.tried
	}
	return &v1beta1.Workspace{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion().String(), Kind: v1beta1.WorkspaceKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind)),
			},
		},
		Resource: *t.Resource.DeepCopy(), Inference: t.Inference.DeepCopy(),
	}
}

// metadataHash returns the hash of the labels and annotations from the template. A Workspace records it, so that labels
// and annotations removed from the template are also removed from the Workspace.
func metadataHash(labels, annotations map[string]string) (string, error) {
	encoded, err := json.Marshal([]map[string]string{labels, annotations})
	if err != nil {
		return "", err
	}
	return digest(encoded), nil
}

// digest is short enough for names.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// isCurrent reports whether a Workspace is as desired. It compares the specs themselves, so a Workspace from another
// version of this controller, or from KAITO, may be current: an upgrade alone restarts no model.
func isCurrent(ws, desired *v1beta1.Workspace) bool {
	return equality.Semantic.DeepEqual(ws.Inference, desired.Inference) &&
		equality.Semantic.DeepEqual(machinesOf(ws.Resource), machinesOf(desired.Resource)) &&
		hasMetadata(ws, desired)
}

func hasMetadata(ws, desired *v1beta1.Workspace) bool {
	if ws.Labels[v1beta1.LabelInferenceSet] != desired.Labels[v1beta1.LabelInferenceSet] {
		return false
	}
	if hash, isOurs := ws.Annotations[v1beta1.AnnotationTemplateMetadata]; isOurs {
		return hash == desired.Annotations[v1beta1.AnnotationTemplateMetadata]
	}
	want := maps.Clone(desired.Annotations)
	delete(want, v1beta1.AnnotationTemplateMetadata)
	return contains(ws.Labels, desired.Labels) && contains(ws.Annotations, want)
}

func contains(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}

// machinesOf drops the fields that the template does not have.
func machinesOf(resource v1beta1.ResourceSpec) v1beta1.ResourceSpec {
	resource.Count, resource.PreferredNodes = nil, nil
	return resource
}

// canUpdate reports whether the API server would admit the desired fields as an update of a Workspace. It follows the
// rules about changes in api/v1beta1/rules.yaml. If it is stricter than these rules, Workspaces are replaced without
// need.
func canUpdate(ws, desired *v1beta1.Workspace) bool {
	before, after := ws.Inference, desired.Inference
	if before == nil || after == nil || ws.Tuning != nil || (before.Template == nil) != (after.Template == nil) {
		return false
	}
	if (before.Preset == nil) != (after.Preset == nil) || before.Preset != nil && !canKeepPreset(before.Preset, after.Preset) {
		return false
	}
	was, is := ws.Resource, desired.Resource
	return (is.InstanceType == "" || was.InstanceType == "" || was.InstanceType == is.InstanceType) &&
		equality.Semantic.DeepEqual(was.LabelSelector, is.LabelSelector) &&
		equality.Semantic.DeepEqual(was.Partition, is.Partition)
}

func canKeepPreset(before, after *v1beta1.PresetSpec) bool {
	was := before.PresetOptions.ModelAccessSecret
	return before.Name == after.Name && (was == "" || was == after.PresetOptions.ModelAccessSecret)
}

// unreadable explains why a template cannot be copied without loss; empty if it can.
func unreadable(set *v1beta1.InferenceSet) string {
	inference := set.Spec.Template.Inference
	if inference == nil {
		return "spec.template.inference is not set: describe the model to serve there"
	}
	if inference.TemplateError != "" {
		return "spec.template.inference.template cannot be read: " + inference.TemplateError
	}
	for _, adapter := range inference.Adapters {
		if adapter.Source != nil && adapter.Source.VolumeError != "" {
			return fmt.Sprintf("spec.template.inference.adapters: the volumeSource of %s cannot be read: %s",
				adapter.Source.Name, adapter.Source.VolumeError)
		}
	}
	return ""
}
