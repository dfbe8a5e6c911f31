// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nodeClassKind is the kind of Azure's Karpenter.
func nodeClassKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "karpenter.azure.com", Version: "v1beta1", Kind: "AKSNodeClass"}
}

// NodeClassCRD stands in for the CRD of a provider's node classes: it takes any fields.
func NodeClassCRD() *apiextensionsv1.CustomResourceDefinition {
	kind := nodeClassKind()
	anything := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "aksnodeclasses." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "aksnodeclasses", Singular: "aksnodeclass", Kind: kind.Kind, ListKind: kind.Kind + "List",
			},
			Scope: apiextensionsv1.ClusterScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		},
	}
	return crd
}

// NodeClass returns a node class with a name and its condition Ready.
func NodeClass(name, ready, message string) *unstructured.Unstructured {
	class := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": ready, "reason": "Test", "message": message},
	}}}}
	class.SetGroupVersionKind(nodeClassKind())
	class.SetName(name)
	return class
}
