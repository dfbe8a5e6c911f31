// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pruned_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/crd"
)

// schema is a pruned.Schema in which one definition lacks fields.
type schema struct {
	definition string
	fields     []string
}

// Missing implements pruned.Schema.
func (s schema) Missing(definitions ...string) (string, []string) {
	if slices.Contains(definitions, s.definition) {
		return s.definition, s.fields
	}
	return "", nil
}

func TestCheck(t *testing.T) {
	const (
		cause = ": another tool replaced the definition, for example with KAITO's, or the definition is older than this controller. Until the definition is restored, "
		fix   = ", and running models continue. Have an administrator stop that tool, and apply the CustomResourceDefinitions of this version: " +
			"run helm upgrade --take-ownership with its chart, or kubectl apply with the chart's files/crds"
	)
	tests := []struct {
		reason string
		schema pruned.Schema
		names  []string
		want   string
	}{
		{"nobody watches", nil, crd.Names(), ""},
		{"both are complete", schema{}, crd.Names(), ""},
		{"Workspaces do not depend on the definition of sets", schema{crd.InferenceSets, []string{"spec"}}, []string{crd.Workspaces}, ""},
		{
			"one field",
			schema{crd.Workspaces, []string{"suspend"}},
			crd.Names(),
			"the CustomResourceDefinition workspaces.kaito.sh lacks suspend" + cause + "nothing is bought or changed" + fix,
		},
		{
			"Workspaces are bought although sets lack fields",
			schema{crd.InferenceSets, []string{"spec.autoscaling", "spec.nodeCountLimit"}},
			crd.Names(),
			"the CustomResourceDefinition inferencesets.kaito.sh lacks spec.autoscaling and 1 more field" + cause +
				"no InferenceSet is changed or scaled" + fix,
		},
		{
			"the first of three",
			schema{crd.Workspaces, []string{"inference", "resource", "suspend"}},
			crd.Names(),
			"the CustomResourceDefinition workspaces.kaito.sh lacks inference and 2 more fields" + cause + "nothing is bought or changed" + fix,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if got := pruned.Check(test.schema, test.names...); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
