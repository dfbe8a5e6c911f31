// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// shipped returns a CustomResourceDefinition of the chart.
func shipped(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	plural, group, _ := strings.Cut(name, ".")
	text, err := os.ReadFile(filepath.Join("..", "..", "charts", "modelberth", "files", "crds", group+"_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

// version returns a version of a definition, to change in place.
func version(t *testing.T, definition *unstructured.Unstructured, index int) map[string]any {
	t.Helper()
	versions, _ := at(definition.Object, "spec", "versions").([]any)
	out, ok := versions[index].(map[string]any)
	if !ok {
		t.Fatalf("%s has no version %d", definition.GetName(), index)
	}
	return out
}

// parent returns the schema or the map of properties that contains the last step of a path, with the step's key.
func parent(t *testing.T, version map[string]any, path []string) (map[string]any, string) {
	t.Helper()
	node := at(version, "schema", "openAPIV3Schema")
	for i, step := range path {
		schema, ok := node.(map[string]any)
		if !ok {
			t.Fatalf("no schema at %s", text(path[:i]))
		}
		key := step
		switch step {
		case item:
			key = "items"
		case value:
			key = "additionalProperties"
		default:
			schema, ok = schema["properties"].(map[string]any)
		}
		if _, isThere := schema[key]; !ok || !isThere {
			t.Fatalf("no schema at %s", text(path[:i+1]))
		}
		if i == len(path)-1 {
			return schema, key
		}
		node = schema[key]
	}
	t.Fatal("an empty path")
	return nil, ""
}

// without removes a field from the schema of one version.
func without(t *testing.T, index int, path ...string) func(*unstructured.Unstructured) {
	return func(definition *unstructured.Unstructured) {
		t.Helper()
		holder, key := parent(t, version(t, definition, index), path)
		delete(holder, key)
	}
}

// set writes into the schema of a field in the first version.
func set(t *testing.T, key string, to any, path ...string) func(*unstructured.Unstructured) {
	return func(definition *unstructured.Unstructured) {
		t.Helper()
		holder, last := parent(t, version(t, definition, 0), path)
		schema, ok := holder[last].(map[string]any)
		if !ok {
			t.Fatalf("no schema at %s", text(path))
		}
		schema[key] = to
	}
}

func both(changes ...func(*unstructured.Unstructured)) func(*unstructured.Unstructured) {
	return func(definition *unstructured.Unstructured) {
		for _, change := range changes {
			change(definition)
		}
	}
}

func TestMissing(t *testing.T) {
	tests := []struct {
		reason     string
		definition string
		change     func(*unstructured.Unstructured)
		want       []string
	}{
		{"the shipped one lacks nothing", Workspaces, both(), nil},
		{"the shipped one of sets lacks nothing", InferenceSets, both(), nil},
		{"suspend is pruned", Workspaces, without(t, 0, "suspend"), []string{"suspend"}},
		{
			"a version that is served beside the stored one prunes", Workspaces,
			without(t, 1, "resource", "placement"),
			[]string{"resource.placement"},
		},
		{"a version that is neither served nor stored prunes nothing", Workspaces, func(definition *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
			versions = append(versions, map[string]any{"name": "v1", "served": false, "storage": false})
			if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"a parent stands for its fields", Workspaces, without(t, 0, "status"), []string{"status"}},
		{
			"an older version of ours lacks one field of the status", Workspaces,
			without(t, 0, "status", "startup"),
			[]string{"status.startup"},
		},
		{
			"a field of a list's items", Workspaces,
			without(t, 0, "status", "attempts", item, "reason"),
			[]string{"status.attempts[].reason"},
		},
		{
			"a map without the schema of its values drops every key", Workspaces,
			without(t, 0, "inference", "engine", "args", value),
			[]string{"inference.engine.args.*"},
		},
		{"the policy of the autoscaler", InferenceSets, without(t, 1, "spec", "autoscaling"), []string{"spec.autoscaling"}},
		{
			"the limits of the template", InferenceSets,
			without(t, 0, "spec", "template", "resource", "placement", "maxHourlyPrice"),
			[]string{"spec.template.resource.placement.maxHourlyPrice"},
		},
		{"a field of a newer KAITO is none of ours", Workspaces, func(definition *unstructured.Unstructured) {
			properties, _ := at(version(t, definition, 0), "schema", "openAPIV3Schema", "properties").(map[string]any)
			properties["replicas"] = map[string]any{"type": "integer"}
		}, nil},
		{
			"unknown fields are kept", Workspaces,
			both(without(t, 0, "status", "attempts"), set(t, "x-kubernetes-preserve-unknown-fields", true, "status")), nil,
		},
		{
			"where unknown fields are kept, a known one is pruned by its schema", Workspaces,
			both(without(t, 0, "status", "attempts", item, "reason"), set(t, "x-kubernetes-preserve-unknown-fields", true, "status")),
			[]string{"status.attempts[].reason"},
		},
		{"all keys of a map are kept", Workspaces, set(t, "additionalProperties", true, "inference", "engine", "args"), nil},
		{"two fields are sorted", Workspaces, both(without(t, 0, "suspend"), without(t, 0, "inference")), []string{"inference", "suspend"}},
		{"no versions at all", Workspaces, func(definition *unstructured.Unstructured) {
			unstructured.RemoveNestedField(definition.Object, "spec", "versions")
		}, []string{"inference", "resource", "status", "suspend", "tuning"}},
		{"another kind", Workspaces, func(definition *unstructured.Unstructured) { definition.SetName("ragengines.kaito.sh") }, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			definition := shipped(t, test.definition)
			test.change(definition)
			if diff := cmp.Diff(test.want, Missing(definition)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryFieldIsRequired removes each field of the Go types in turn from each version.
func TestEveryFieldIsRequired(t *testing.T) {
	for _, name := range Names() {
		definition := shipped(t, name)
		for _, path := range fieldsOf(name) {
			if text(path[:len(path)-1]) == "spec.template.metadata" {
				continue // unknown fields are kept there
			}
			for index := range 2 {
				holder, key := parent(t, version(t, definition, index), path)
				schema := holder[key]
				delete(holder, key)
				if diff := cmp.Diff([]string{text(path)}, Missing(definition)); diff != "" {
					t.Errorf("%s of version %d (-want +got):\n%s", text(path), index, diff)
				}
				holder[key] = schema
			}
		}
	}
}

// TestFields checks that the paths include the fields that are essential for money or security, and that the types of
// Kubernetes are leaves.
func TestFields(t *testing.T) {
	tests := []struct {
		reason     string
		definition string
		has, lacks []string
	}{
		{
			"whether and for how much machines are bought", Workspaces,
			[]string{"suspend", "resource.placement.maxHourlyPrice", "resource.placement.instanceTypes[]", "status.attempts[].reason"},
			nil,
		},
		{
			"what runs, and who may use it", Workspaces,
			[]string{"inference.engine.apiKeySecret", "inference.engine.args.*", "inference.weights.oci.verify"},
			nil,
		},
		{"the same of a set", InferenceSets, []string{
			"spec.autoscaling.maxHourlyPrice", "spec.nodeCountLimit", "spec.template.metadata.labels.*",
			"spec.template.resource.placement.maxHourlyPrice", "spec.template.inference.engine.apiKeySecret",
		}, nil},
		{
			"types of Kubernetes are leaves, and their own encoding is not looked into", Workspaces,
			[]string{"inference.template", "resource.labelSelector", "status.conditions[]"},
			[]string{"inference.template.spec", "resource.labelSelector.matchLabels", "status.conditions[].type"},
		},
		{
			"neither metadata nor what is not stored is in a schema", Workspaces, nil,
			[]string{"metadata", "kind", "apiVersion", "inference.templateError", "inference.TemplateError", "inference.-"},
		},
		{"another kind has none", "ragengines.kaito.sh", nil, []string{"spec"}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var got []string
			for _, path := range fieldsOf(test.definition) {
				got = append(got, text(path))
			}
			for _, field := range test.has {
				if !slices.Contains(got, field) {
					t.Errorf("%s is not derived", field)
				}
			}
			for _, field := range test.lacks {
				if slices.Contains(got, field) {
					t.Errorf("%s is derived", field)
				}
			}
		})
	}
}

// The schema must have no defaults for objectives. The API server would add a default to each Workspace it reads, which
// would edit serving Workspaces. So absent fields stay absent, and the planner has the defaults.
func TestAbsentObjectivesAreNoEdit(t *testing.T) {
	versions, _, _ := unstructured.NestedSlice(shipped(t, Workspaces).Object, "spec", "versions")
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
