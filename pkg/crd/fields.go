// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"reflect"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Steps of a path into a list and into a map.
const (
	item  = "[]"
	value = "*"
)

// The CustomResourceDefinitions of our kinds.
const (
	Workspaces    = "workspaces.kaito.sh"
	InferenceSets = "inferencesets.kaito.sh"
)

// Names returns the CustomResourceDefinitions of our kinds.
func Names() []string { return []string{InferenceSets, Workspaces} }

// fieldsOf returns the paths of all fields that a kind needs, parents before their children; nil for other definitions.
func fieldsOf(definition string) [][]string {
	switch definition {
	case Workspaces:
		return within(nil, reflect.TypeFor[v1beta1.Workspace]())
	case InferenceSets:
		return within(nil, reflect.TypeFor[v1beta1.InferenceSet]())
	default:
		return nil
	}
}

// within returns the paths below a path. The types of Kubernetes are leaves, because releases of Kubernetes extend
// them, and our definition does not describe all of them.
func within(path []string, t reflect.Type) [][]string {
	switch t.Kind() {
	case reflect.Pointer:
		return within(path, t.Elem())
	case reflect.Slice:
		return below(path, item, t.Elem())
	case reflect.Map:
		return below(path, value, t.Elem())
	case reflect.Struct:
		if t.PkgPath() != reflect.TypeFor[v1beta1.Workspace]().PkgPath() {
			return nil
		}
	default:
		return nil
	}
	var out [][]string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if isOfAll := len(path) == 0 && name == "metadata"; isOfAll || name == "" || name == "-" {
			continue // the API server serves the metadata of every kind
		}
		out = append(out, below(path, name, field.Type)...)
	}
	return out
}

func below(path []string, step string, t reflect.Type) [][]string {
	at := append(slices.Clone(path), step)
	return append([][]string{at}, within(at, t)...)
}

// text formats a path for users: adapters[].source.name.
func text(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "."+item, item)
}
