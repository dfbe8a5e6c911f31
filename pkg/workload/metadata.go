// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// objectMeta returns the metadata of an object of the Workspace. Callers may change its maps.
func objectMeta(ws *v1beta1.Workspace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       ws.Namespace,
		Labels:          labels(ws),
		OwnerReferences: []metav1.OwnerReference{ownerReference(ws)},
	}
}

// labels returns the labels of all objects of the Workspace and of its pods.
func labels(ws *v1beta1.Workspace) map[string]string {
	set := podSelector(ws)
	set[v1beta1.LabelManagedBy] = v1beta1.ManagedBy
	if owner := ws.Labels[v1beta1.LabelInferenceSet]; owner != "" {
		set[v1beta1.LabelInferenceSet] = owner
	}
	return set
}

// podSelector selects the Workspace's pods. A StatefulSet's selector is immutable, so it depends only on the name.
func podSelector(ws *v1beta1.Workspace) map[string]string {
	return map[string]string{v1beta1.LabelWorkspace: ws.Name}
}

func ownerReference(ws *v1beta1.Workspace) metav1.OwnerReference {
	return *metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind("Workspace"))
}

// over returns the user's map, with our entries taking precedence; nil if both are empty.
func over(users, ours map[string]string) map[string]string {
	if len(users)+len(ours) == 0 {
		return nil
	}
	merged := make(map[string]string, len(users)+len(ours))
	maps.Copy(merged, users)
	maps.Copy(merged, ours)
	return merged
}
