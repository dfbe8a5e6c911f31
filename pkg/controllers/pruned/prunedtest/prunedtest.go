// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prunedtest provides a pruned.Schema for tests.
package prunedtest

// Schema maps the names of definitions to a missing field.
type Schema map[string]string

// Missing implements pruned.Schema.
func (s Schema) Missing(definitions ...string) (string, []string) {
	for _, name := range definitions {
		if s[name] != "" {
			return name, []string{s[name]}
		}
	}
	return "", nil
}
