// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// shipped is the CustomResourceDefinition of the chart.
func shipped(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "charts", "modelberth", "files", "crds", "kaito.sh_workspaces.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

// without takes a field from the schema of one version.
func without(t *testing.T, index int, path ...string) func(*unstructured.Unstructured) {
	return func(definition *unstructured.Unstructured) {
		t.Helper()
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		at := []string{"schema", "openAPIV3Schema"}
		for _, step := range path {
			at = append(at, "properties", step)
		}
		version, ok := versions[index].(map[string]any)
		if _, isThere, _ := unstructured.NestedMap(version, at...); !ok || !isThere {
			t.Fatalf("version %d has no %v", index, path)
		}
		unstructured.RemoveNestedField(version, at...)
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMissing(t *testing.T) {
	tests := []struct {
		reason string
		change func(*unstructured.Unstructured)
		want   []string
	}{
		{"the shipped one lacks nothing", func(*unstructured.Unstructured) {}, nil},
		{"suspend is pruned", without(t, 0, "suspend"), []string{"suspend"}},
		{"a version that is served beside the stored one prunes", without(t, 1, "resource", "placement"), []string{"resource.placement"}},
		{"the whole status", without(t, 0, "status"), []string{"status.attempts", "status.observedGeneration", "status.plan"}},
		{"a field that no purchase depends on", without(t, 0, "status", "startup"), nil},
		{"unknown fields are kept", func(definition *unstructured.Unstructured) {
			without(t, 0, "status", "attempts")(definition)
			versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
			version, _ := versions[0].(map[string]any)
			at := []string{"schema", "openAPIV3Schema", "properties", "status", "x-kubernetes-preserve-unknown-fields"}
			if err := unstructured.SetNestedField(version, true, at...); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"no versions at all", func(definition *unstructured.Unstructured) {
			unstructured.RemoveNestedField(definition.Object, "spec", "versions")
		}, required()},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			definition := shipped(t)
			test.change(definition)
			options := []cmp.Option{cmp.Transformer("sorted", func(in []string) map[string]bool {
				out := map[string]bool{}
				for _, field := range in {
					out[field] = true
				}
				return out
			})}
			if diff := cmp.Diff(test.want, Missing(definition), options...); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for range 2 { // a cache may transform what it has kept already
				kept, err := keep(definition)
				if err != nil {
					t.Fatal(err)
				}
				object, ok := kept.(*unstructured.Unstructured)
				if !ok || object.Object["spec"] != nil {
					t.Fatalf("kept %T with its schemas", kept)
				}
				if diff := cmp.Diff(test.want, MissingOf(object), options...); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
				definition = object
			}
		})
	}
}

// The API server would store a default of the schema with each Workspace on reading, and that would edit serving
// Workspaces: absent fields stay absent, and the planner has the defaults.
func TestAbsentObjectivesAreNoEdit(t *testing.T) {
	versions, _, _ := unstructured.NestedSlice(shipped(t).Object, "spec", "versions")
	for _, entry := range versions {
		version, _ := entry.(map[string]any)
		at := []string{"schema", "openAPIV3Schema", "properties", "inference", "properties", "objectives"}
		objectives, found, err := unstructured.NestedMap(version, at...)
		if err != nil || !found {
			t.Fatalf("%v has no objectives: %v", version["name"], err)
		}
		fields, _, _ := unstructured.NestedMap(objectives, "properties")
		for name, field := range fields {
			if schema, _ := field.(map[string]any); schema["default"] != nil {
				t.Errorf("%v: objectives.%s has the default %v", version["name"], name, schema["default"])
			}
		}
	}
}
