// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestBringYourOwnIsNeverPlanned tries every combination of KAITO's fields beside a labelSelector
// without an instanceType: none of them gets as far as the planner, so nothing is bought.
func TestBringYourOwnIsNeverPlanned(t *testing.T) {
	count := 3
	fields := []func(*v1beta1.Workspace){
		func(ws *v1beta1.Workspace) { ws.Resource.Count = &count },
		func(ws *v1beta1.Workspace) { ws.Resource.PreferredNodes = []string{"node-1"} },
		func(ws *v1beta1.Workspace) {
			ws.Resource.Partition = &v1beta1.PartitionSpec{Mode: v1beta1.PartitionAccelerator, Count: &count}
		},
		func(ws *v1beta1.Workspace) {
			ws.Inference.Preset = nil
			ws.Inference.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		},
		func(ws *v1beta1.Workspace) { ws.Inference.Config = "config" },
		func(ws *v1beta1.Workspace) { ws.Inference.Adapters = []v1beta1.AdapterSpec{{}} },
		func(ws *v1beta1.Workspace) {
			ws.Annotations = map[string]string{
				v1beta1.AnnotationNodeClassName: "gpu", v1beta1.AnnotationBypassResourceChecks: "",
				v1beta1.AnnotationEnableLoadBalancer: "True", v1beta1.AnnotationRuntime: "transformers",
			}
		},
		func(ws *v1beta1.Workspace) { ws.Labels = map[string]string{v1beta1.LabelInferenceSet: "set"} },
	}
	for set := range 1 << len(fields) {
		ws := workspaceObject()
		ws.Resource.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}}
		for i, field := range fields {
			if set&(1<<i) != 0 {
				field(ws)
			}
		}
		stalled, ok := errors.AsType[*stalledError](checkSpec(ws))
		if !ok || stalled.reason != v1beta1.ReasonNotSupported {
			t.Errorf("fields %b: %v, want it stalled as %s", set, checkSpec(ws), v1beta1.ReasonNotSupported)
		}
	}
}
