// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Every manifest refused today is stored under an older schema without rules and policies. After the upgrade, every
// change outside its spec must be possible: a controller that cannot write a status or remove a finalizer can neither
// help nor release.
func TestStoredUnderAnOlderSchema(t *testing.T) {
	ctx := t.Context()
	if err := api.installOlder(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also where this test fails half-way: the others need the rules
		if err := api.install(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	stored := map[int]*unstructured.Unstructured{}
	rows := append(refusals(), giants()...)
	for i, row := range rows {
		if row.everRefused {
			continue
		}
		object := row.object(t, i, "v1beta1")
		object.SetNamespace("older")
		if err := api.Create(ctx, object); err != nil {
			t.Fatalf("storing %s without rules: %v\n%s", object.GetName(), err, excerpt(row.body))
		}
		stored[i] = object
	}
	if err := api.install(ctx); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		object, ok := stored[i]
		if !ok {
			continue
		}
		t.Run(object.GetName(), func(t *testing.T) {
			t.Logf("%s:\n%s", row.reason, excerpt(row.body))
			writes := harmlessWrites()
			if len(row.body) > 10_000 { // which is slow
				writes = slices.DeleteFunc(writes, func(w harmlessWrite) bool { return !w.essential })
			}
			for _, write := range writes {
				if err := write.do(t.Context(), object); err != nil {
					t.Errorf("%s: %v", write.name, err)
				}
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				t.Errorf("is still there after its finalizers are gone: %v", err)
			}
		})
	}
}

// giants are values without a bound in any schema: a rule over all of it exceeds the API server's budget, and that
// error cannot be avoided.
func giants() []refusal {
	const size = 200_000
	long := strings.Repeat("a", size)
	many := func(element string) string {
		return strings.TrimSuffix(strings.Repeat(element+", ", size/(len(element)+2)), ", ")
	}
	entries := func(format string, count int) string {
		var out []string
		for i := range count {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, ", ")
	}
	const preset = "inference: {preset: {name: m}, "
	tuning := func(input string) string {
		return "tuning: {preset: {name: m}, method: lora, output: {volumeSource: {}}, input: {" + input + "}}"
	}
	bodies := map[string]string{
		"a long model":         "inference: {preset: {name: " + long + "}}",
		"a long secret":        "inference: {preset: {name: m, presetOptions: {modelAccessSecret: " + long + "}}}",
		"a long machine type":  preset + "}\nresource: {instanceType: " + long + "}",
		"a long profile":       preset + "}\nresource: {partition: {mode: mig, profile: " + long + "}}",
		"a long price":         preset + "}\nresource: {placement: {maxHourlyPrice: \"" + strings.Repeat("1", size) + "\"}}",
		"many machine types":   preset + "}\nresource: {placement: {instanceTypes: [" + entries("a%d", 1_100) + "]}}",
		"many labels":          preset + "}\nresource: {labelSelector: {matchLabels: {" + entries("kaito.sh/workspace%d: a", 2_000) + "}}}",
		"many expressions":     preset + "}\nresource: {labelSelector: {matchExpressions: [" + many("{key: a, operator: In, values: [a]}") + "]}}",
		"a long label":         preset + "}\nresource: {labelSelector: {matchLabels: {a: " + long + "}}}",
		"a long key":           preset + "}\nresource: {labelSelector: {matchExpressions: [{key: " + long + ", operator: In, values: [a]}]}}",
		"many adapters":        preset + "adapters: [" + entries("{source: {name: a%d, image: a}}", 1_100) + "]}",
		"many small adapters":  preset + `adapters: [` + many(`{strength: "1"}`) + "]}",
		"a long adapter":       preset + "adapters: [{source: {name: " + long + ", image: a}}]}",
		"a long image":         preset + "adapters: [{source: {name: a, image: " + long + "}}]}",
		"a long strength":      preset + `adapters: [{source: {name: a, image: a}, strength: "` + strings.Repeat("1", size) + `"}]}`,
		"a long engine image":  preset + "engine: {image: " + long + "}}",
		"many flags":           preset + "engine: {args: {" + entries(`a%d: ""`, 2_000) + "}}}",
		"many variables":       preset + "engine: {env: [" + entries("{name: a%d}", 1_100) + "]}}",
		"a long variable":      preset + "engine: {env: [{name: " + long + "}]}}",
		"a long duration":      preset + "objectives: {timeToFirstToken: " + strings.Repeat("1s", size/2) + "}}",
		"a long quantity":      preset + "pod: {cpu: " + strings.Repeat("1", size) + "m}}",
		"many labels of a pod": preset + "pod: {labels: {" + entries("a%d: a", 2_000) + "}}}",
		"a long method":        "tuning: {preset: {name: m}, method: " + long + ", input: {image: a}, output: {volumeSource: {}}}",
		"many URLs":            tuning("urls: [" + many("https://host.example/a") + "]"),
		"a long URL":           tuning("urls: [https://host.example/" + long + "]"),
		"as many URLs as there may be, as long as they may be": tuning(
			"urls: [" + entries("https://host.example/%02d"+strings.Repeat("a", 2048-23), 50) + "]"),
		"many containers": "inference: {template: {spec: {containers: [" + many("{name: a, image: b}") + "]}}}",
	}
	var out []refusal
	for _, reason := range slices.Sorted(maps.Keys(bodies)) {
		out = append(out, refusal{
			reason:   reason,
			metadata: "{name: giant-" + strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(reason)) + "}",
			body:     bodies[reason],
		})
	}
	return out
}

func excerpt(body string) string {
	if len(body) > 500 {
		return body[:500] + "…"
	}
	return body
}

// harmlessWrites are the writes outside the spec, in the order of a Workspace's life, each in every way of a controller
// or a person.
func harmlessWrites() []harmlessWrite {
	patch := func(kind types.PatchType, body string) func(context.Context, *unstructured.Unstructured) error {
		return func(ctx context.Context, object *unstructured.Unstructured) error {
			return api.Patch(ctx, object.DeepCopy(), client.RawPatch(kind, []byte(body)))
		}
	}
	apply := func(version, fields string, status bool) func(context.Context, *unstructured.Unstructured) error {
		return func(ctx context.Context, object *unstructured.Unstructured) error {
			body := fmt.Sprintf(`{"apiVersion":"kaito.sh/%s","kind":"Workspace",%s}`, version, fields)
			patch := client.RawPatch(types.ApplyPatchType, []byte(body))
			if status {
				return api.Status().Patch(ctx, in(version, object), patch, client.FieldOwner("status"), client.ForceOwnership)
			}
			return api.Patch(ctx, in(version, object), patch, client.FieldOwner("metadata"), client.ForceOwnership)
		}
	}
	const condition = `"status":{"conditions":[{"type":"Stalled","status":"True","reason":"SpecInvalid","message":"%s",` +
		`"lastTransitionTime":"2026-01-02T03:04:05Z"}]}`
	return []harmlessWrite{
		{name: "patching the status", essential: true, do: patchStatus},
		{name: "applying the status", do: apply("v1beta1", fmt.Sprintf(condition, "one"), true)},
		{name: "applying the status through v1alpha1", do: apply("v1alpha1", fmt.Sprintf(condition, "two"), true)},
		{
			name: "adding the finalizer", essential: true,
			do: patch(types.MergePatchType, `{"metadata":{"finalizers":["`+v1beta1.Finalizer+`"]}}`),
		},
		{
			name: "adding annotation and label",
			do: patch(types.MergePatchType,
				`{"metadata":{"annotations":{"`+v1beta1.AnnotationHash+`":"1"},"labels":{"team":"search"}}}`),
		},
		{name: "applying an annotation", do: apply("v1beta1", `"metadata":{"annotations":{"applied":"yes"}}`, false)},
		{
			name: "a JSON patch of an annotation",
			do:   patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`),
		},
		{name: "replacing the object through v1beta1", do: replace("v1beta1")},
		{name: "replacing the object through v1alpha1", do: replace("v1alpha1")},
		{name: "suspending it", essential: true, do: patch(types.MergePatchType, `{"suspend":true}`)},
		{name: "deleting it", essential: true, do: remove},
		{name: "patching the status while it goes", essential: true, do: patchStatus},
		{name: "removing the finalizer", essential: true, do: patch(types.MergePatchType, `{"metadata":{"finalizers":null}}`)},
	}
}

type harmlessWrite struct {
	name string
	do   func(context.Context, *unstructured.Unstructured) error
	// essential writes are needed to report on a Workspace and to release it.
	essential bool
}

func patchStatus(ctx context.Context, object *unstructured.Unstructured) error {
	body := client.RawPatch(types.MergePatchType, []byte(`{"status":{"workerNodes":["node-1"],"targetNodeCount":1}}`))
	return api.Status().Patch(ctx, object.DeepCopy(), body)
}

func remove(ctx context.Context, object *unstructured.Unstructured) error {
	return api.Delete(ctx, object.DeepCopy())
}

// replace writes back the read object with one more annotation, like a client without patches.
func replace(version string) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, object *unstructured.Unstructured) error {
		read := in(version, object)
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), read); err != nil {
			return err
		}
		annotations := map[string]string{"replaced-through-" + version: "yes"}
		maps.Copy(annotations, read.GetAnnotations())
		read.SetAnnotations(annotations)
		return api.Update(ctx, read)
	}
}

// in names an object in one version of the API.
func in(version string, object *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetAPIVersion("kaito.sh/" + version)
	out.SetKind("Workspace")
	out.SetNamespace(object.GetNamespace())
	out.SetName(object.GetName())
	return out
}
