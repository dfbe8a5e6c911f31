// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is KAITO's API group. This project serves KAITO's manifests unchanged.
const Group = "kaito.sh"

// WorkspaceKind is the kind of a Workspace.
const WorkspaceKind = "Workspace"

// GroupVersion returns kaito.sh/v1beta1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1beta1"}
}

// AddToScheme registers the types of this package with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Workspace{}, &WorkspaceList{}, &InferenceSet{}, &InferenceSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
