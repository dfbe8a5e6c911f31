// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// preferredWeight of a node that resource.preferredNodes names; 100 is the most a user can give.
const preferredWeight = 50

// place puts the pod on the Workspace's machines: it adds to what the pod asks for itself, and takes
// nothing away except another value of our own label.
func place(ws *v1beta1.Workspace, pod *corev1.PodSpec) {
	selector, required := machines(ws)
	pod.NodeSelector = over(pod.NodeSelector, selector)
	pod.Tolerations = tolerations(pod.Tolerations)
	requireNodes(pod, required)
	preferNodes(pod, ws.Resource.PreferredNodes)
}

// machines says by which labels the Workspace's machines are known: those that were bought for it by
// a label that no other machine carries, so that no dynamic NodePool buys more for the pending pod;
// those that exist already by the user's selector.
func machines(ws *v1beta1.Workspace) (map[string]string, []corev1.NodeSelectorRequirement) {
	if ws.Resource.EffectiveNodeSource() != v1beta1.NodeSourceExisting {
		return map[string]string{v1beta1.LabelWorkspaceUID: string(ws.UID)}, nil
	}
	selector := ws.Resource.LabelSelector
	if selector == nil {
		return nil, nil
	}
	reserved := v1beta1.ReservedSelectorKeys()
	labels := map[string]string{}
	for key, value := range selector.MatchLabels {
		if !slices.Contains(reserved, key) {
			labels[key] = value
		}
	}
	var required []corev1.NodeSelectorRequirement
	for _, expression := range selector.MatchExpressions {
		if !slices.Contains(reserved, expression.Key) {
			required = append(required, requirement(expression))
		}
	}
	return labels, required
}

func requirement(expression metav1.LabelSelectorRequirement) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{
		Key:      expression.Key,
		Operator: corev1.NodeSelectorOperator(expression.Operator),
		Values:   expression.Values,
	}
}

// requireNodes adds to every alternative that the pod has already, because one of them suffices.
func requireNodes(pod *corev1.PodSpec, required []corev1.NodeSelectorRequirement) {
	if len(required) == 0 {
		return
	}
	affinity := nodeAffinity(pod)
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	selector := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(selector.NodeSelectorTerms) == 0 {
		selector.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range selector.NodeSelectorTerms {
		term := &selector.NodeSelectorTerms[i]
		for _, each := range required {
			term.MatchExpressions = append(term.MatchExpressions, *each.DeepCopy())
		}
	}
}

func preferNodes(pod *corev1.PodSpec, names []string) {
	if len(names) == 0 {
		return
	}
	affinity := nodeAffinity(pod)
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.PreferredSchedulingTerm{
			Weight: preferredWeight,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: slices.Clone(names),
			}}},
		})
}

func nodeAffinity(pod *corev1.PodSpec) *corev1.NodeAffinity {
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return pod.Affinity.NodeAffinity
}

// tolerations returns the user's and those for the taints on GPU machines: ours, NVIDIA's usual one,
// and the one that AKS puts on spot machines.
func tolerations(users []corev1.Toleration) []corev1.Toleration {
	all := slices.Clone(users)
	for _, ours := range []corev1.Toleration{
		{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpEqual, Value: v1beta1.TaintValue},
		{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists},
		{Key: "kubernetes.azure.com/scalesetpriority", Operator: corev1.TolerationOpEqual, Value: "spot"},
	} {
		ours.Effect = corev1.TaintEffectNoSchedule
		if !slices.Contains(all, ours) {
			all = append(all, ours)
		}
	}
	return all
}
