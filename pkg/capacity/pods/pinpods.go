// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// PinPods makes pods wait for the machines of a request, and records the request on them. The pods' own node
// requirements stay.
func (*Provisioner) PinPods(req capacity.Request, template *corev1.PodTemplateSpec) error {
	what := asked{Attempt: req.Attempt, InstanceType: req.InstanceType, CapacityType: req.CapacityType}
	if req.HourlyPrice >= 0 {
		what.HourlyPrice = &req.HourlyPrice
	}
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	template.Labels = with(template.Labels, map[string]string{v1beta1.LabelWorkspaceUID: string(req.Owner.UID)})
	template.Annotations = with(template.Annotations, map[string]string{
		v1beta1.AnnotationMachine: string(text),
		// The program that adds nodes also removes them. It must not do so while a model is served there.
		v1beta1.AnnotationDoNotDisrupt: "true", v1beta1.AnnotationSafeToEvict: "false",
	})
	pod := &template.Spec
	// No node has the label of machines bought for a Workspace.
	pod.NodeSelector = maps.Clone(pod.NodeSelector)
	delete(pod.NodeSelector, v1beta1.LabelWorkspaceUID)
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	aimAtNodes(pod.Affinity, req)
	stayTogether(pod.Affinity, req)
	return nil
}

func with(users, ours map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, users)
	maps.Copy(out, ours)
	return out
}

// aimAtNodes adds our requirements to each of the pod's node selector terms, because one matching term suffices.
func aimAtNodes(affinity *corev1.Affinity, req capacity.Request) {
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	users := []corev1.NodeSelectorTerm{{}}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required != nil && len(required.NodeSelectorTerms) > 0 {
		users = required.NodeSelectorTerms
	}
	aimed := &corev1.NodeSelector{}
	for i := range users {
		for _, ours := range alternatives(req) {
			term := users[i].DeepCopy()
			term.MatchExpressions = append(term.MatchExpressions, ours...)
			aimed.NodeSelectorTerms = append(aimed.NodeSelectorTerms, *term)
		}
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = aimed
}

// alternatives returns the requirements for a node, any of which suffices. For spot machines there is one for each
// cloud's label.
func alternatives(req capacity.Request) [][]corev1.NodeSelectorRequirement {
	base := []corev1.NodeSelectorRequirement{in(corev1.LabelInstanceTypeStable, req.InstanceType)}
	if len(req.Zones) > 0 {
		base = append(base, in(corev1.LabelTopologyZone, slices.Sorted(slices.Values(req.Zones))...))
	}
	var out [][]corev1.NodeSelectorRequirement
	for _, label := range capacity.SpotLabels() {
		spot := in(label.Key, label.Value)
		if req.CapacityType != v1beta1.CapacitySpot {
			spot.Operator = corev1.NodeSelectorOpNotIn
			base = append(base, spot)
			continue
		}
		out = append(out, append(slices.Clone(base), spot))
	}
	if req.CapacityType != v1beta1.CapacitySpot {
		out = append(out, base)
	}
	return out
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// stayTogether puts all members of a group into the zone of the first member with a node.
func stayTogether(affinity *corev1.Affinity, req capacity.Request) {
	if !req.OneZone || req.Count < 2 {
		return
	}
	together := corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1.LabelWorkspaceUID: string(req.Owner.UID)}},
		TopologyKey:   corev1.LabelTopologyZone,
	}
	if affinity.PodAffinity == nil {
		affinity.PodAffinity = &corev1.PodAffinity{}
	}
	required := &affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*required = append(*required, together)
}
