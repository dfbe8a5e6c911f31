// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// edit changes the schema at a place. A place is names joined by dots, with [] for the items of a list and {} for the
// values of a map. Empty means the root.
func edit(schema *apiextensionsv1.JSONSchemaProps, at string, change func(*apiextensionsv1.JSONSchemaProps) error) error {
	if err := editBelow(schema, steps(at), change); err != nil {
		return fmt.Errorf("place %q: %w", at, err)
	}
	return nil
}

// steps splits a.b[] into a, b and [].
func steps(at string) []string {
	at = strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(at)
	return strings.FieldsFunc(at, func(r rune) bool { return r == '.' })
}

func editBelow(schema *apiextensionsv1.JSONSchemaProps, path []string, change func(*apiextensionsv1.JSONSchemaProps) error) error {
	if len(path) == 0 {
		return change(schema)
	}
	switch step := path[0]; {
	case step == "[]" && schema.Items != nil:
		return editBelow(schema.Items.Schema, path[1:], change)
	case step == "{}" && schema.AdditionalProperties != nil:
		return editBelow(schema.AdditionalProperties.Schema, path[1:], change)
	default:
		property, ok := schema.Properties[step]
		if !ok {
			return fmt.Errorf("the schema has no %q", step)
		}
		if err := editBelow(&property, path[1:], change); err != nil {
			return err
		}
		schema.Properties[step] = property
		return nil
	}
}
