// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TemplatePod returns the pod of a Workspace with a template. It is the user's template with the Workspace's labels,
// placed on the Workspace's machines or on the nodes of the plan.
func TemplatePod(ws *v1beta1.Workspace, nodeNames []string) corev1.PodTemplateSpec {
	template := *ws.Inference.Template.DeepCopy()
	template.Labels, template.Annotations = over(usersOwn(template.Labels), labels(ws)), usersOwn(template.Annotations)
	place(ws, nodeNames, &template)
	return template
}
