// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// One Workspace beyond the Go types keeps every client from listing all of them: a user of one namespace could stop the
// controller. So each field of the full manifests gets odd values, one at a time; the stored form must be readable.
func TestWhatIsStoredCanBeRead(t *testing.T) {
	stored, tried := 0, 0
	read := reader(t)
	for _, file := range fullManifests(t) {
		manifest := readManifest(t, "full", file)
		manifest.SetName("odd")
		for _, path := range leaves(manifest.Object, nil) {
			if path[0] == "apiVersion" || path[0] == "kind" || path[0] == "metadata" {
				continue
			}
			for _, odd := range oddValues(at(manifest.Object, path)) {
				object := manifest.DeepCopy()
				set(object.Object, path, odd)
				tried++
				if err := api.Create(t.Context(), object, client.DryRunAll); err != nil {
					continue // refused is fine
				}
				stored++
				data, err := object.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := read.Decode(data, nil, &v1beta1.Workspace{}); err != nil {
					t.Errorf("%s: with %v = %#v the API server stores what the Go types cannot read: %v", file, path, odd, err)
				}
			}
		}
	}
	t.Logf("%d of %d odd values were stored", stored, tried)
	if stored < 300 {
		t.Errorf("only %d odd values were stored: this test has become blind", stored)
	}
}

// A pod template is stored with any content. The decoder reports unreadable parts with the object, and returns the
// rest.
func TestUnreadableTemplate(t *testing.T) {
	const body = "inference: {config: c, template: {spec: {containers: [{name: a, image: b, ports: none}]}}}"
	object := manifest(t, "unreadable", body)
	if err := api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	got := &v1beta1.Workspace{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), got); err != nil {
		t.Fatal(err)
	}
	if got.Inference.Config != "c" || got.Inference.Template == nil || len(got.Inference.Template.Spec.Containers) != 0 {
		t.Errorf("want the rest of the object and an empty template, got %+v", got.Inference)
	}
	const want = "json: cannot unmarshal string into Go struct field Container.spec.containers.ports of type []v1.ContainerPort"
	if got.Inference.TemplateError != want {
		t.Errorf("TemplateError is %q, want %q", got.Inference.TemplateError, want)
	}
	// The patch of a typed client lacks the parts that the client could not read.
	before := got.DeepCopy()
	got.Finalizers = []string{v1beta1.Finalizer}
	if err := api.Patch(t.Context(), got, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	containers, _, err := unstructured.NestedSlice(object.Object, "inference", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Errorf("a typed client's patch changed the template: %v %v", containers, err)
	}
	object.SetFinalizers(nil)
	if err := api.Update(t.Context(), object); err != nil {
		t.Error(err)
	}
}

// reader returns the decoder of a client with Go types.
func reader(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}

// oddValues are of the same JSON type as a value, so that the schema may well take them.
func oddValues(value any) []any {
	switch value.(type) {
	case string:
		return []any{"", "5d", "1e1.5", "1e99999999999", "9999999999999h", "NaN", "2026-13-01"}
	case int64, float64:
		return []any{int64(3_000_000_000), int64(-3_000_000_000), int64(1 << 62), 1e20, 1.5}
	case bool:
		return []any{int64(1), "true"}
	default:
		return []any{"text", int64(5), []any{}, map[string]any{}, []any{"text"}, map[string]any{"a": "b"}}
	}
}

// leaves returns the paths of everything below a value, objects and lists included.
func leaves(value any, path []any) [][]any {
	var out [][]any
	if len(path) > 0 {
		out = append(out, path)
	}
	switch value := value.(type) {
	case map[string]any:
		for key, element := range value {
			out = append(out, leaves(element, append(slices.Clone(path), key))...)
		}
	case []any:
		for i, element := range value {
			out = append(out, leaves(element, append(slices.Clone(path), i))...)
		}
	}
	slices.SortFunc(out, func(a, b []any) int { return slices.Compare([]string{fmt.Sprint(a)}, []string{fmt.Sprint(b)}) })
	return out
}

func at(value any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			list, _ := value.([]any)
			value = list[step]
		}
	}
	return value
}

func set(root map[string]any, path []any, value any) {
	last := len(path) - 1
	switch parent := at(root, path[:last]).(type) {
	case map[string]any:
		parent[fmt.Sprint(path[last])] = value
	case []any:
		index, _ := path[last].(int)
		parent[index] = value
	}
}
