// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// usersBand returns a pod with only the user's fields.
func usersBand(users *v1beta1.PodSpec) corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	template.Labels, template.Annotations = usersOwn(users.Labels), usersOwn(users.Annotations)
	template.Spec = corev1.PodSpec{
		Tolerations:               users.Tolerations,
		TopologySpreadConstraints: users.TopologySpreadConstraints,
		PriorityClassName:         users.PriorityClassName,
		SchedulerName:             users.SchedulerName,
		RuntimeClassName:          users.RuntimeClassName,
		ServiceAccountName:        users.ServiceAccountName,
	}
	if users.NodeAffinity != nil {
		template.Spec.Affinity = &corev1.Affinity{NodeAffinity: users.NodeAffinity}
	}
	return template
}

// usersOwn drops labels or annotations that only the controller sets. Admission refuses them, but a Workspace may be
// older than that rule.
func usersOwn(users map[string]string) map[string]string {
	out := maps.Clone(users)
	maps.DeleteFunc(out, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "modelberth.dev" || domain == "workspace.kaito.io"
	})
	return out
}
