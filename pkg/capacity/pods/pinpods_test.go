// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

func requestOf(capacityType v1beta1.CapacityType, zones ...string) capacity.Request {
	return capacity.Request{
		Owner: capacity.Owner{Namespace: "team-a", Name: "chat", UID: "uid-1"}, Attempt: 3, Count: 1,
		InstanceType: "Standard_NC24ads_A100_v4", CapacityType: capacityType, Zones: zones, HourlyPrice: 3.673,
	}
}

func TestAim(t *testing.T) {
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"mine": "x"}, Annotations: map[string]string{"mine": "y"}},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"mine": "z", v1beta1.LabelWorkspaceUID: "uid-1"}, Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{in("team", "a")}},
					{MatchExpressions: []corev1.NodeSelectorRequirement{in("team", "b")}},
				},
			}},
		}},
	}
	req := requestOf(v1beta1.CapacityOnDemand, "2", "1")
	req.OneZone, req.Count = true, 2
	if err := New(nil, nil, nil, nil).PinPods(req, template); err != nil {
		t.Fatal(err)
	}
	term := func(team string) corev1.NodeSelectorTerm {
		out := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			in("team", team), in(corev1.LabelInstanceTypeStable, req.InstanceType), in(corev1.LabelTopologyZone, "1", "2"),
		}}
		for _, label := range capacity.SpotLabels() {
			out.MatchExpressions = append(out.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: label.Key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{label.Value},
			})
		}
		return out
	}
	want := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"mine": "x", v1beta1.LabelWorkspaceUID: "uid-1"},
			Annotations: map[string]string{
				"mine": "y", v1beta1.AnnotationDoNotDisrupt: "true", v1beta1.AnnotationSafeToEvict: "false",
				v1beta1.AnnotationMachine: `{"attempt":3,"instanceType":"Standard_NC24ads_A100_v4","capacityType":"on-demand","hourlyPrice":3.673}`,
			},
		},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"mine": "z"}, Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{term("a"), term("b")},
			}},
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1.LabelWorkspaceUID: "uid-1"}},
				TopologyKey:   corev1.LabelTopologyZone,
			}}},
		}},
	}
	if diff := cmp.Diff(want, template); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPinPodsBySpotLabels: a pod runs on the planned capacity type, whichever label marks spot nodes in a cloud.
func TestPinPodsBySpotLabels(t *testing.T) {
	nodes := map[string]map[string]string{"on demand": {}, "Azure's name for on demand": {"kubernetes.azure.com/scalesetpriority": "regular"}}
	for _, label := range capacity.SpotLabels() {
		nodes["spot by "+label.Key] = map[string]string{label.Key: label.Value}
	}
	for reason, labels := range nodes {
		t.Run(reason, func(t *testing.T) {
			isSpot := reason[:4] == "spot"
			labels[corev1.LabelInstanceTypeStable] = "Standard_NC24ads_A100_v4"
			for _, capacityType := range []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacityReserved, v1beta1.CapacitySpot} {
				template := &corev1.PodTemplateSpec{}
				if err := New(nil, nil, nil, nil).PinPods(requestOf(capacityType), template); err != nil {
					t.Fatal(err)
				}
				fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: template.Spec}).Match(
					&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}})
				if err != nil || fits != (isSpot == (capacityType == v1beta1.CapacitySpot)) {
					t.Errorf("%s: fits %v, %v", capacityType, fits, err)
				}
			}
		})
	}
}
