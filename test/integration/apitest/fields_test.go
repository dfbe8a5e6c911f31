// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Between them the manifests in testdata/full have every field. Each is written through one version
// and read through the other, and back, and by the Go types: nothing is lost on any way.
func TestEveryFieldSurvives(t *testing.T) {
	for _, file := range fullManifests(t) {
		for _, versions := range [][2]string{{"v1alpha1", "v1beta1"}, {"v1beta1", "v1alpha1"}} {
			t.Run(file+"/written through "+versions[0], func(t *testing.T) {
				manifest := readManifest(t, "full", file)
				manifest.SetAPIVersion("kaito.sh/" + versions[0])
				manifest.SetName(manifest.GetName() + "-" + versions[0])
				if err := api.Create(t.Context(), manifest.DeepCopy(), client.FieldValidation("Strict")); err != nil {
					t.Fatal(err)
				}
				writeStatus(t, manifest, versions[0])
				for _, version := range []string{versions[1], versions[0]} {
					read := in(version, manifest)
					if err := api.Get(t.Context(), client.ObjectKeyFromObject(manifest), read); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(spec(manifest), spec(read)); diff != "" {
						t.Errorf("written through %s, read through %s (-want +got):\n%s", versions[0], version, diff)
					}
					if diff := cmp.Diff(fullStatus(t), read.Object["status"]); diff != "" {
						t.Errorf("status written through %s, read through %s (-want +got):\n%s", versions[0], version, diff)
					}
					// What was read is written back for the next version to read.
					read.SetLabels(map[string]string{"written-back-through": version})
					if err := api.Update(t.Context(), read, client.FieldValidation("Strict")); err != nil {
						t.Fatal(err)
					}
				}
				compareTyped(t, manifest)
			})
		}
	}
}

func writeStatus(t *testing.T, manifest *unstructured.Unstructured, version string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"status": fullStatus(t)})
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", body)
	if err := api.Status().Patch(t.Context(), in(version, manifest), patch); err != nil {
		t.Fatal(err)
	}
}

// compareTyped reads an object into the Go types and writes it out again.
func compareTyped(t *testing.T, manifest *unstructured.Unstructured) {
	t.Helper()
	typed := &v1beta1.Workspace{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(manifest), typed); err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	want, got := spec(manifest), spec(&unstructured.Unstructured{Object: content})
	want["status"], got["status"] = fullStatus(t), content["status"]
	for _, object := range []map[string]any{want, got} {
		dropLaterFields(object)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("through the Go types (-want +got):\n%s", diff)
	}
}

// dropLaterFields removes fields known only to the API server, Go's form of absent structs, and Go's strings.
func dropLaterFields(value any) {
	switch value := value.(type) {
	case map[string]any:
		delete(value, "fieldOfALaterKubernetes")
		for key, element := range value {
			switch element := element.(type) {
			case map[string]any:
				dropLaterFields(element)
				if key == "presetOptions" && len(element) == 0 {
					delete(value, key)
				}
			case []any:
				dropLaterFields(element)
			case int64:
				if key == "nvidia.com/gpu" {
					value[key] = fmt.Sprint(element)
				}
			}
		}
	case []any:
		for _, element := range value {
			dropLaterFields(element)
		}
	}
}

// A field missing from all full manifests has no proof that it survives.
func TestFullManifestsHaveEveryField(t *testing.T) {
	var objects []map[string]any
	for _, file := range fullManifests(t) {
		objects = append(objects, readManifest(t, "full", file).Object)
	}
	objects = append(objects, map[string]any{"status": fullStatus(t)})
	fields := goFields(reflect.TypeFor[v1beta1.Workspace](), nil)
	if len(fields) < 100 {
		t.Fatalf("found %d fields, the API has more", len(fields))
	}
	for _, path := range fields {
		if slices.Contains([]string{"inference.adapters.[].source.urls", "tuning.input.repository"}, strings.Join(path, ".")) {
			continue // a field of the shared type, which a rule keeps empty here
		}
		if !slices.ContainsFunc(objects, func(object map[string]any) bool { return has(object, path) }) {
			t.Errorf("no manifest in testdata/full has %s", strings.Join(path, "."))
		}
	}
}

// kubectl explain shows the description that the API server publishes.
func TestEveryFieldIsExplained(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		definition := publishedSchema(t, version)
		for _, path := range goFields(reflect.TypeFor[v1beta1.Workspace](), nil) {
			field, _, err := unstructured.NestedMap(definition, schemaPath(path)...)
			if err != nil {
				t.Fatal(err)
			}
			description, _ := field["description"].(string)
			if !strings.HasSuffix(description, ".") {
				t.Errorf("%s: %s is explained as %q, want a sentence", version, strings.Join(path, "."), description)
			}
		}
	}
}

// goFields returns the path of every field that this project's Go types have: [] steps into a list,
// {} into a map.
func goFields(typ reflect.Type, at []string) [][]string {
	switch typ.Kind() {
	case reflect.Pointer:
		return goFields(typ.Elem(), at)
	case reflect.Slice:
		return goFields(typ.Elem(), append(slices.Clone(at), "[]"))
	case reflect.Map:
		return goFields(typ.Elem(), append(slices.Clone(at), "{}"))
	case reflect.Struct:
	default:
		return nil
	}
	if typ.PkgPath() != reflect.TypeFor[v1beta1.Workspace]().PkgPath() {
		return nil
	}
	var out [][]string
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" || name == "metadata" {
			continue
		}
		path := append(slices.Clone(at), name)
		out = append(append(out, path), goFields(field.Type, path)...)
	}
	return out
}

func has(value any, path []string) bool {
	if len(path) == 0 {
		return value != nil
	}
	switch step := path[0]; step {
	case "[]":
		list, _ := value.([]any)
		return slices.ContainsFunc(list, func(element any) bool { return has(element, path[1:]) })
	case "{}":
		object, _ := value.(map[string]any)
		for _, element := range object {
			if has(element, path[1:]) {
				return true
			}
		}
		return false
	default:
		object, _ := value.(map[string]any)
		return has(object[step], path[1:])
	}
}

func schemaPath(path []string) []string {
	var out []string
	for _, step := range path {
		switch step {
		case "[]":
			out = append(out, "items")
		case "{}":
			out = append(out, "additionalProperties")
		default:
			out = append(out, "properties", step)
		}
	}
	return out
}

// publishedSchema returns the OpenAPI definition that kubectl explain reads.
func publishedSchema(t *testing.T, version string) map[string]any {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(api.config)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := d.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	data, err := paths["apis/kaito.sh/"+version].Schema("application/json")
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	definition, found, err := unstructured.NestedMap(document, "components", "schemas", "sh.kaito."+version+".Workspace")
	if err != nil || !found {
		t.Fatalf("the API server publishes no schema for %s: %v", version, err)
	}
	return definition
}

// The columns that dashboards and scripts use come first, in their order. Ours are shown only with -o wide.
func TestColumns(t *testing.T) {
	wide := []string{"Plan (wide)", "USD/h (wide)"}
	tests := []struct {
		version string
		want    []string
	}{
		{version: "v1beta1", want: append([]string{
			"Name", "Instance", "ResourceReady", "InferenceReady", "JobStarted", "WorkspaceSucceeded", "TargetNodeCount", "State", "Age",
		}, wide...)},
		{version: "v1alpha1", want: append([]string{
			"Name", "Instance", "ResourceReady", "InferenceReady", "JobStarted", "WorkspaceSucceeded", "Age",
		}, wide...)},
	}
	for _, tt := range tests {
		config := rest.CopyConfig(api.config)
		config.GroupVersion = &schema.GroupVersion{Group: "kaito.sh", Version: tt.version}
		config.APIPath = "/apis"
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		config.AcceptContentTypes = "application/json;as=Table;v=v1;g=meta.k8s.io"
		c, err := rest.RESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.Get().Resource("workspaces").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := json.Unmarshal(data, &table); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, column := range table.ColumnDefinitions {
			name := column.Name
			if column.Priority > 0 {
				name += " (wide)"
			}
			got = append(got, name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("columns of %s (-want +got):\n%s", tt.version, diff)
		}
	}
}

// kubectl get wk, wks, and workspace as a category.
func TestNames(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(api.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		got, err := d.ServerResourcesForGroupVersion("kaito.sh/" + version)
		if err != nil {
			t.Fatal(err)
		}
		verbs := metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
		want := []metav1.APIResource{
			{
				Name: "workspaces", SingularName: "workspace", Namespaced: true, Kind: "Workspace", Verbs: verbs,
				ShortNames: []string{"wk", "wks"}, Categories: []string{"workspace"},
			},
			{Name: "workspaces/status", Namespaced: true, Kind: "Workspace", Verbs: metav1.Verbs{"get", "patch", "update"}},
		}
		ignored := cmpopts.IgnoreFields(metav1.APIResource{}, "StorageVersionHash")
		ofWorkspaces := slices.DeleteFunc(got.APIResources, func(r metav1.APIResource) bool { // another test may have installed sets
			return !strings.HasPrefix(r.Name, "workspaces")
		})
		if diff := cmp.Diff(want, ofWorkspaces, ignored); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// fullManifests are the files in testdata/full that hold a Workspace.
func fullManifests(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(filesIn(t, "full"), func(name string) bool { return name == "status" })
}

func fullStatus(t *testing.T) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "full", "status.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.YAMLToJSONStrict(data); err != nil {
		t.Fatal(err)
	}
	// Numbers as the API server's client reads them.
	wrapped := &unstructured.Unstructured{}
	if err := wrapped.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Status","status":%s}`, data)); err != nil {
		t.Fatal(err)
	}
	status, _, err := unstructured.NestedMap(wrapped.Object, "status")
	if err != nil {
		t.Fatal(err)
	}
	return status
}
