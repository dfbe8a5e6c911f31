// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Placement returns the pods' own requirements for nodes, before the plan adds any.
func Placement(ws *v1beta1.Workspace) corev1.PodSpec {
	out := corev1.PodSpec{}
	switch inference := ws.Inference; {
	case inference == nil:
	case inference.Template != nil:
		users := inference.Template.Spec.DeepCopy()
		out.NodeSelector, out.Affinity, out.Tolerations = users.NodeSelector, users.Affinity, users.Tolerations
	case inference.Pod != nil:
		out = usersBand(inference.Pod.DeepCopy()).Spec
	}
	out.Tolerations = tolerations(out.Tolerations, ws.UID)
	return out
}

// place assigns the pod to the nodes of the plan, or to the machines bought for the Workspace. These machines have a
// unique label, so no dynamic NodePool buys more machines for the pending pod. place adds to the pod's own
// requirements. It replaces only a different value of our own label.
func place(ws *v1beta1.Workspace, nodeNames []string, template *corev1.PodTemplateSpec) {
	pod := &template.Spec
	pod.Tolerations = tolerations(pod.Tolerations, ws.UID)
	if len(nodeNames) == 0 {
		pod.NodeSelector = over(pod.NodeSelector, map[string]string{v1beta1.LabelWorkspaceUID: string(ws.UID)})
		return
	}
	pinTo(pod, nodeNames)
	// The nodes belong to others, who may empty them to save cost. That must not happen while they serve a model.
	template.Annotations = over(template.Annotations, map[string]string{
		v1beta1.AnnotationDoNotDisrupt: "true", v1beta1.AnnotationSafeToEvict: "false",
	})
}

// pinTo adds the nodes to each of the pod's alternatives, because one matching alternative is enough. A term can name
// only one node.
func pinTo(pod *corev1.PodSpec, nodeNames []string) {
	affinity := nodeAffinity(pod)
	users := []corev1.NodeSelectorTerm{{}}
	if selector := affinity.RequiredDuringSchedulingIgnoredDuringExecution; selector != nil && len(selector.NodeSelectorTerms) > 0 {
		users = selector.NodeSelectorTerms
	}
	pinned := &corev1.NodeSelector{}
	for i := range users {
		for _, name := range nodeNames {
			term := users[i].DeepCopy()
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
			})
			pinned.NodeSelectorTerms = append(pinned.NodeSelectorTerms, *term)
		}
	}
	affinity.RequiredDuringSchedulingIgnoredDuringExecution = pinned
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

// DedicatedTaint keeps other pods off a machine bought for a Workspace.
func DedicatedTaint(owner types.UID) corev1.Taint {
	return corev1.Taint{Key: v1beta1.TaintKeyWorkspace, Value: string(owner), Effect: corev1.TaintEffectNoSchedule}
}

// ToleratesDedication reports whether a Workspace's pod may run on machines with its DedicatedTaint. Pods from earlier
// versions may not.
func ToleratesDedication(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == v1beta1.TaintKeyWorkspace || t.Key == "" && t.Operator == corev1.TolerationOpExists
	})
}

// tolerations returns the user's tolerations, except any for the machines of another Workspace. It adds those for the
// taints of GPU machines: ours, NVIDIA's usual one, and AKS's for spot machines.
func tolerations(users []corev1.Toleration, owner types.UID) []corev1.Toleration {
	all := slices.DeleteFunc(slices.Clone(users), func(t corev1.Toleration) bool { return t.Key == v1beta1.TaintKeyWorkspace })
	for _, ours := range []corev1.Toleration{
		{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpEqual, Value: v1beta1.TaintValue},
		{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists},
		{Key: "kubernetes.azure.com/scalesetpriority", Operator: corev1.TolerationOpEqual, Value: "spot"},
		{Key: v1beta1.TaintKeyWorkspace, Operator: corev1.TolerationOpEqual, Value: string(owner)},
	} {
		ours.Effect = corev1.TaintEffectNoSchedule
		if !slices.Contains(all, ours) {
			all = append(all, ours)
		}
	}
	return all
}

// PinToAttempt restricts the pods of a set to the machines of one attempt of their Workspace.
func PinToAttempt(set *appsv1.StatefulSet, attempt int32) {
	pod := &set.Spec.Template.Spec
	pod.NodeSelector = over(pod.NodeSelector, map[string]string{v1beta1.LabelMachineAttempt: strconv.Itoa(int(attempt))})
}

// PinnedAttempt returns the attempt whose machines a set's pods select; 0 for all machines of the Workspace.
func PinnedAttempt(set *appsv1.StatefulSet) int32 {
	if set == nil {
		return 0
	}
	attempt, err := strconv.ParseInt(set.Spec.Template.Spec.NodeSelector[v1beta1.LabelMachineAttempt], 10, 32)
	if err != nil {
		return 0
	}
	return int32(attempt)
}
