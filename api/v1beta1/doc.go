// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 is the kaito.sh/v1beta1 API: the types of users' objects, and the names (labels, annotations,
// condition types and reasons, ports) that existing manifests, dashboards and clusters rely on.
//
// It decides the form of the API. It has no logic beyond accessors, and must not know how a Workspace is planned,
// provisioned or served.
//
// +kubebuilder:object:generate=true
// +groupName=kaito.sh
package v1beta1
