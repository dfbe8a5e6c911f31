// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"slices"
)

// Problem is the effect of an upgrade on a stored object or on data that belongs to it.
type Problem string

const (
	// NotWritable means that the new rules refuse even a change of an annotation. The controller could then neither
	// report on the object nor release it.
	NotWritable Problem = "NotWritable"
	// FieldsLost means that the new schema lacks fields of the object, so the API server drops them with the next write.
	FieldsLost Problem = "FieldsLost"
	// VersionLost means that the new CustomResourceDefinition lacks a version of stored objects.
	VersionLost Problem = "VersionLost"
	// NotReadable means that the new version cannot read a pinned plan.
	NotReadable Problem = "NotReadable"
	// RefusedIfNew means that the object stays writable, but the API server would refuse the same manifest for a new object.
	RefusedIfNew Problem = "RefusedIfNew"
)

// Finding is one problem of one object.
type Finding struct {
	Problem   Problem `json:"problem"`
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name"`
	// Rule is "schema" or the name of a policy.
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// Sort sorts findings for the report: by the severity of the problem, then by object.
func Sort(findings []Finding) {
	weights := []Problem{NotWritable, FieldsLost, VersionLost, NotReadable, RefusedIfNew}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(weights, a.Problem), slices.Index(weights, b.Problem)),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message),
		)
	})
}
