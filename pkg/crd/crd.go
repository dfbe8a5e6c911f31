// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd finds the fields that the API server prunes because the served CustomResourceDefinition of Workspaces
// lacks them: it may be KAITO's, which has the same name.
//
// It decides from one object and keeps only the result. It must not know the purpose of the fields.
package crd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// name of the CustomResourceDefinition of Workspaces.
const name = "workspaces.kaito.sh"

// annotationMissing is on the cached object in place of its schemas.
const annotationMissing = "modelberth.dev/missing-fields"

// required are fields whose absence causes unwanted or double purchases.
func required() []string {
	return []string{"suspend", "resource.placement", "status.observedGeneration", "status.plan", "status.attempts"}
}

// Object is the CustomResourceDefinition, empty.
func Object() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return out
}

// Cache keeps only the missing fields of the one CustomResourceDefinition: its schemas are half a megabyte.
func Cache() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name), Transform: keep}
}

func keep(object any) (any, error) {
	definition, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	if _, isKept := definition.GetAnnotations()[annotationMissing]; isKept {
		return object, nil
	}
	out := Object()
	out.SetName(definition.GetName())
	out.SetUID(definition.GetUID())
	out.SetResourceVersion(definition.GetResourceVersion())
	out.SetAnnotations(map[string]string{annotationMissing: strings.Join(Missing(definition), ",")})
	return out, nil
}

// Missing are the sorted required fields that a served or stored version lacks.
func Missing(definition *unstructured.Unstructured) []string {
	var out []string
	versions, _ := at(definition.Object, "spec", "versions").([]any)
	for _, field := range required() {
		isMissing := slices.ContainsFunc(versions, func(item any) bool {
			version, _ := item.(map[string]any)
			served, _ := version["served"].(bool)
			storage, _ := version["storage"].(bool)
			return (served || storage) && !has(at(version, "schema", "openAPIV3Schema"), strings.Split(field, "."))
		})
		if isMissing || len(versions) == 0 {
			out = append(out, field)
		}
	}
	slices.Sort(out)
	return out
}

// has reports whether a schema keeps the field of a path.
func has(node any, path []string) bool {
	schema, isThere := node.(map[string]any)
	if keeps, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); keeps || len(path) == 0 {
		return isThere
	}
	return isThere && has(at(schema, "properties", path[0]), path[1:])
}

// at is an object's value at a path, without a copy: schemas are large.
func at(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}

// Reader reads the missing fields from a cache.
type Reader struct{ Client client.Reader }

// Missing are the missing fields of the served CustomResourceDefinition. If it is gone, so are all Workspaces.
func (r Reader) Missing(ctx context.Context) ([]string, error) {
	definition := Object()
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, definition)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
	}
	return MissingOf(definition), nil
}

// MissingOf reads the missing fields of a cached object.
func MissingOf(cached client.Object) []string {
	if text := cached.GetAnnotations()[annotationMissing]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}
