// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd finds fields that the API server prunes, because the installed CustomResourceDefinition lacks them. The
// definition may be KAITO's, which has the same name.
//
// It compares one object with the Go types, and keeps only the result. It must not know the purpose of the fields.
package crd

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object returns an empty CustomResourceDefinition.
func Object() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return out
}

// Missing returns the sorted fields of the Go type that a served or stored version lacks. It omits fields below a
// missing field.
func Missing(definition *unstructured.Unstructured) []string {
	versions := keptVersions(definition)
	var lost [][]string
	for _, path := range fieldsOf(definition.GetName()) {
		if len(lost) > 0 && isBelow(path, lost[len(lost)-1]) {
			continue
		}
		isServed := len(versions) > 0 && !slices.ContainsFunc(versions, func(schema any) bool { return !has(schema, path) })
		if !isServed {
			lost = append(lost, path)
		}
	}
	var out []string
	for _, path := range lost {
		out = append(out, text(path))
	}
	slices.Sort(out)
	return out
}

func isBelow(path, parent []string) bool {
	return len(path) > len(parent) && slices.Equal(path[:len(parent)], parent)
}

// keptVersions returns the schemas of the served and stored versions. The API server prunes an object by the schema of
// the version in which it is read or written.
func keptVersions(definition *unstructured.Unstructured) []any {
	var out []any
	versions, _ := at(definition.Object, "spec", "versions").([]any)
	for _, item := range versions {
		version, _ := item.(map[string]any)
		served, _ := version["served"].(bool)
		storage, _ := version["storage"].(bool)
		if served || storage {
			out = append(out, at(version, "schema", "openAPIV3Schema"))
		}
	}
	return out
}

// has reports whether a schema keeps the field at a path. x-kubernetes-preserve-unknown-fields keeps fields without a
// schema. It does not apply below fields with their own schema.
func has(node any, path []string) bool {
	schema, isThere := node.(map[string]any)
	if !isThere || len(path) == 0 {
		return isThere
	}
	var next any
	switch path[0] {
	case item:
		next = schema["items"]
	case value:
		next = schema["additionalProperties"]
	default:
		next = at(schema, "properties", path[0])
	}
	switch next := next.(type) {
	case bool: // additionalProperties can be a boolean
		return next
	case nil:
		keeps, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool)
		return keeps
	default:
		return has(next, path[1:])
	}
}

// at returns an object's value at a path. It does not copy, because schemas are large.
func at(object map[string]any, path ...string) any {
	found, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return found
}

// Words describes missing fields briefly, because KAITO's definition lacks dozens.
func Words(missing []string) string {
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return missing[0]
	case 2:
		return missing[0] + " and 1 more field"
	default:
		return fmt.Sprintf("%s and %d more fields", missing[0], len(missing)-1)
	}
}
