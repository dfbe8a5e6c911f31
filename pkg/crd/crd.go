// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd finds the fields that the API server prunes because a served CustomResourceDefinition of ours lacks them:
// it may be KAITO's, which has the same name.
//
// It decides from one object and the Go types, and keeps only the result. It must not know the purpose of the fields.
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

// annotationMissing is on the cached object in place of its schemas.
const annotationMissing = "modelberth.dev/missing-fields"

// Object is a CustomResourceDefinition, empty.
func Object() *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return out
}

// Cache keeps only the missing fields of one CustomResourceDefinition: its schemas are half a megabyte. A watch selects
// one name, so each definition has its own cache.
func Cache(name string) cache.ByObject {
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

// Missing are the fields of the Go type that a served or stored version lacks, without the fields below those. They are
// sorted.
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

// keptVersions are the schemas of the served and stored versions: an object that is read or written in any of these is
// pruned by its schema.
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

// has reports whether a schema keeps the field of a path. Where unknown fields are kept, a field with a schema is still
// pruned by that.
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
	case bool: // of all keys of a map
		return next
	case nil:
		keeps, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool)
		return keeps
	default:
		return has(next, path[1:])
	}
}

// at is an object's value at a path, without a copy: schemas are large.
func at(object map[string]any, path ...string) any {
	found, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return found
}

// Words describes missing fields in short: KAITO's definition lacks dozens.
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

// Reader reads CustomResourceDefinitions from their caches, by name.
type Reader map[string]client.Reader

// Pruned says which of the definitions lacks fields, and the way out; empty if none does. Without a definition, there are
// no objects of its kind.
func (r Reader) Pruned(ctx context.Context, names ...string) (string, error) {
	for _, name := range names {
		definition := Object()
		err := r[name].Get(ctx, client.ObjectKey{Name: name}, definition)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading CustomResourceDefinition %s: %w", name, err)
		}
		if missing := MissingOf(definition); len(missing) > 0 {
			return fmt.Sprintf("the CustomResourceDefinition %s lacks %s: another tool replaced it, for example an add-on manager with "+
				"KAITO's, or it is older than this controller. Until it is restored, nothing is bought or changed, and running models "+
				"continue. Have an administrator stop that tool and run helm upgrade --take-ownership with this chart", name, Words(missing)), nil
		}
	}
	return "", nil
}

// MissingOf reads the missing fields of a cached object.
func MissingOf(cached client.Object) []string {
	if text := cached.GetAnnotations()[annotationMissing]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}
