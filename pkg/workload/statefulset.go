// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// StatefulSet returns the StatefulSet of the pods. Its immutable fields depend only on the Workspace's name.
func StatefulSet(ws *v1beta1.Workspace, replicas int32, template corev1.PodTemplateSpec, revision string) *appsv1.StatefulSet {
	meta := objectMeta(ws, ws.Name)
	meta.Annotations = map[string]string{v1beta1.AnnotationRevision: revision}
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet"},
		ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{
			Replicas:    new(replicas),
			Selector:    &metav1.LabelSelector{MatchLabels: podSelector(ws)},
			ServiceName: HeadlessName(ws),
			// With Parallel, a corrected template can replace a pod that never became ready. Otherwise, the StatefulSet would
			// wait for that pod forever.
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Template:            *template.DeepCopy(),
		},
	}
}
