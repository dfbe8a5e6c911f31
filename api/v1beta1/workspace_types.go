// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workspace names a large language model to serve (or to tune). Its fields sit at the root of the
// object: there is no spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:path=workspaces,scope=Namespaced,categories=workspace,shortName={wk,wks}
// +kubebuilder:printcolumn:name="Instance",type="string",JSONPath=".status.plan.instanceType"
// +kubebuilder:printcolumn:name="ResourceReady",type="string",JSONPath=".status.conditions[?(@.type==\"ResourceReady\")].status"
// +kubebuilder:printcolumn:name="InferenceReady",type="string",JSONPath=".status.conditions[?(@.type==\"InferenceReady\")].status"
// +kubebuilder:printcolumn:name="JobStarted",type="string",JSONPath=".status.conditions[?(@.type==\"JobStarted\")].status"
// +kubebuilder:printcolumn:name="WorkspaceSucceeded",type="string",JSONPath=".status.conditions[?(@.type==\"WorkspaceSucceeded\")].status"
// +kubebuilder:printcolumn:name="TargetNodeCount",type="integer",JSONPath=".status.targetNodeCount"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Plan",type="string",priority=1,JSONPath=".status.plan.summary"
// +kubebuilder:printcolumn:name="USD/h",type="string",priority=1,JSONPath=".status.plan.hourlyPrice"
type Workspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// resource selects the machines.
	// +kubebuilder:default={}
	// +optional
	Resource ResourceSpec `json:"resource,omitempty"`
	// inference describes the model to serve. Exactly one of inference and tuning is set.
	// +optional
	Inference *InferenceSpec `json:"inference,omitempty"`
	// tuning describes a fine-tuning job. Exactly one of inference and tuning is set.
	// +optional
	Tuning *TuningSpec `json:"tuning,omitempty"`
	// suspend makes Modelberth plan and explain without buying. Set on a running Workspace, it
	// releases the machines and keeps the object, its Service name and its plan.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// status is the observed state. Before the controller has written it, observedGeneration is -1, so that tools which
	// compare it with the generation wait.
	// +kubebuilder:default={observedGeneration:-1}
	// +optional
	Status WorkspaceStatus `json:"status,omitempty"`
}

// WorkspaceList is a list of Workspaces.
//
// +kubebuilder:object:root=true
type WorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Workspace `json:"items"`
}
