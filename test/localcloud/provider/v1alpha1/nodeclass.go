// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API type of the local cloud's node class: its claims name a LocalNodeClass as their node
// class. It holds no logic.
package v1alpha1

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group of the local cloud's API.
const Group = "local.modelberth.dev"

// GroupVersion of this package's types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(GroupVersion(), &LocalNodeClass{}, &LocalNodeClassList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
}

// LocalNodeClass is the configuration of machines of the local cloud. There is
// nothing to configure yet.
type LocalNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status LocalNodeClassStatus `json:"status,omitzero"`
}

// LocalNodeClassStatus reports whether machines may be bought by the class.
type LocalNodeClassStatus struct {
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// LocalNodeClassList is a list of LocalNodeClasses.
type LocalNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LocalNodeClass `json:"items"`
}

// StatusConditions implements status.Object.
func (in *LocalNodeClass) StatusConditions() status.ConditionSet {
	return status.NewReadyConditions().For(in)
}

// GetConditions implements status.Object.
func (in *LocalNodeClass) GetConditions() []status.Condition { return in.Status.Conditions }

// SetConditions implements status.Object.
func (in *LocalNodeClass) SetConditions(conditions []status.Condition) {
	in.Status.Conditions = conditions
}

// DeepCopyObject implements runtime.Object.
func (in *LocalNodeClass) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopy returns a copy without shared memory.
func (in *LocalNodeClass) DeepCopy() *LocalNodeClass {
	out := &LocalNodeClass{TypeMeta: in.TypeMeta}
	in.DeepCopyInto(&out.ObjectMeta)
	for i := range in.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *in.Status.Conditions[i].DeepCopy())
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *LocalNodeClassList) DeepCopyObject() runtime.Object {
	out := &LocalNodeClassList{TypeMeta: in.TypeMeta}
	in.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].DeepCopy())
	}
	return out
}
