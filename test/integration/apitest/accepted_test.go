// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Each file is applied twice by server-side apply, and must be stored unchanged: no field is unknown, lost or refused.
// Only the API server's defaults are added.
func TestAcceptedManifests(t *testing.T) {
	const (
		count1   = "resource.count"
		public   = "inference.preset.accessMode"
		resource = "resource"
	)
	tests := []struct {
		file     string
		reason   string
		defaults []string
		warnings []string
	}{
		{file: "preset", reason: "the everyday form of KAITO", defaults: []string{count1, public}},
		{file: "preset-v1alpha1", reason: "the old version serves the same schema", defaults: []string{count1, public}},
		{file: "bring-your-own", reason: "a selector and no machine type", defaults: []string{count1, public}},
		{
			file: "bring-your-own-v1alpha1", reason: "KAITO's old default for instanceType would make it buy",
			defaults: []string{count1, public},
		},
		{
			file: "match-expressions", reason: "In with one value says the same as matchLabels",
			defaults: []string{count1, public},
		},
		{
			file: "reserved-label", reason: "KAITO drops reserved labels without refusing the rest",
			defaults: []string{count1, public},
			warnings: []string{"resource.labelSelector names labels that only the controller sets on machines: they are ignored, remove them"},
		},
		{
			file: "performance-mode", reason: "every annotation in the spellings that KAITO takes; an unknown runtime means the default",
			defaults: []string{count1, public},
		},
		{
			file: "transformers", reason: "stored, and the user is told what has no effect", defaults: []string{count1, public},
			warnings: []string{
				"annotation kaito.sh/runtime: transformers is ignored: the preset chooses the engine, or inference.engine.name does",
				`annotation kaito.sh/enablelb has an effect only with the exact value "True"`,
				"annotation kaito.sh/use-local-weights is ignored in this version: weights come from the hub, or from inference.weights if that is set",
				"annotation inference.kaito.sh/static-model-mirror is ignored in this version: weights come from the hub, or from inference.weights if that is set",
			},
		},
		{file: "adapters", reason: "a strength of 1.0, and every source and spelling", defaults: []string{count1, public}},
		{
			file: "count", reason: "a number of machines for a preset is a bound", defaults: []string{public},
			warnings: []string{"resource.count is an upper bound on machines for a preset, not their number: the plan may use fewer"},
		},
		{
			file: "config-and-secret", reason: "a ConfigMap and a token", defaults: []string{public},
			warnings: []string{"resource.count is an upper bound on machines for a preset, not their number: the plan may use fewer"},
		},
		{file: "hub-id", reason: "any model of the hub", defaults: []string{count1, public}},
		{
			file: "deprecated-fields", reason: "what is ignored is stored all the same",
			warnings: []string{
				"resource.preferredNodes is deprecated and only a preference: use resource.labelSelector or inference.pod.nodeAffinity",
				"preset.accessMode is deprecated and ignored: name the Secret of a gated model in preset.presetOptions.modelAccessSecret",
				"preset.presetOptions.image and imagePullSecrets are deprecated and ignored: set inference.engine.image to serve with your own image",
			},
		},
		{file: "accelerator", reason: "some GPUs of a node", defaults: []string{count1}},
		{file: "mig", reason: "a slice of a GPU", defaults: []string{count1, public}},
		{file: "template", reason: "a pod of the user's own, with fields that nobody knows yet", defaults: []string{count1}},
		{
			file: "template-with-config", reason: "KAITO stores what it does not use beside a template", defaults: []string{count1},
			warnings: []string{"inference.config and inference.adapters have no effect on inference.template: put their settings into the template"},
		},
		{
			file: "tuning-urls", reason: "public hosts, by name and by address", defaults: []string{count1, "tuning.preset.accessMode"},
			warnings: []string{"this version does not support tuning: the Workspace is stored, but nothing is bought for it"},
		},
		{
			file: "tuning-volumes", reason: "the method in any case", defaults: []string{"tuning.preset.accessMode"},
			warnings: []string{"this version does not support tuning: the Workspace is stored, but nothing is bought for it"},
		},
		{file: "name-only", reason: "ours: no resource at all", defaults: []string{resource, public}},
		{file: "placement", reason: "ours: a choice and a ceiling; numbers and strings as quantities", defaults: []string{count1, public}},
		{file: "longest-name", reason: "52 characters is the limit", defaults: []string{resource, public}},
	}
	var listed []string
	for _, tt := range tests {
		listed = append(listed, tt.file)
		t.Run(tt.file, func(t *testing.T) {
			t.Log(tt.reason)
			manifest := readManifest(t, "accepted", tt.file)
			api.warnings.take()
			stored := applyTwice(t, manifest)
			if diff := cmp.Diff(warned(tt.warnings), api.warnings.take()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			want := spec(manifest)
			fillIn(t, want, tt.defaults)
			if diff := cmp.Diff(want, spec(stored)); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
			typed := &v1beta1.Workspace{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(stored), typed); err != nil {
				t.Errorf("reading it into the Go type: %v", err)
			}
		})
	}
	if diff := cmp.Diff(filesIn(t, "accepted"), slices.Sorted(slices.Values(listed))); diff != "" {
		t.Errorf("files in testdata/accepted without a row (-), or rows without a file (+):\n%s", diff)
	}
}

// applyTwice applies a manifest by server-side apply, strictly, twice: the second time is a no-op.
func applyTwice(t *testing.T, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored := applied(t, manifest)
	// The controller's first write. Until then the status is a default, which the API server stores with the next write.
	status := fmt.Sprintf(`{"status": {"observedGeneration": %d}}`, stored.GetGeneration())
	if err := api.Status().Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		t.Fatalf("writing the status of %s: %v", manifest.GetName(), err)
	}
	before := stored.GetResourceVersion()
	stored = applied(t, manifest)
	if after := stored.GetResourceVersion(); after != before {
		t.Errorf("applying %s again made a write: resource version %s became %s", manifest.GetName(), before, after)
	}
	return stored
}

// applied applies a manifest, and returns the stored object.
func applied(t *testing.T, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored := manifest.DeepCopy()
	config := client.ApplyConfigurationFromUnstructured(stored)
	if err := api.Apply(t.Context(), config, fieldOwner, client.ForceOwnership); err != nil {
		t.Fatalf("applying %s: %v", manifest.GetName(), err)
	}
	return stored
}

// readManifest returns a file of testdata, to be created in the namespace of the same name.
func readManifest(t *testing.T, folder, file string) *unstructured.Unstructured {
	t.Helper()
	objects, err := readObjects(filepath.Join("testdata", folder, file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 1 {
		t.Fatalf("%s holds %d objects, want one", file, len(objects))
	}
	objects[0].SetNamespace(folder)
	return objects[0]
}

func filesIn(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// spec returns the user's part of an object, without metadata and status.
func spec(object *unstructured.Unstructured) map[string]any {
	out := runtime.DeepCopyJSON(object.Object)
	for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(out, key)
	}
	return out
}

// fillIn sets the fields with a default in the schema.
func fillIn(t *testing.T, spec map[string]any, defaults []string) {
	t.Helper()
	values := map[string]any{
		"resource":                    map[string]any{"count": int64(1)},
		"resource.count":              int64(1),
		"inference.preset.accessMode": "public",
		"tuning.preset.accessMode":    "public",
	}
	for _, path := range defaults {
		if err := unstructured.SetNestedField(spec, values[path], strings.Split(path, ".")...); err != nil {
			t.Fatal(err)
		}
	}
}

// warned returns the API server's warnings for a policy's messages. Only the first of two applies causes them, once
// each: the second changes nothing.
func warned(messages []string) []string {
	var out []string
	for _, message := range messages {
		out = append(out, "Validation failed for ValidatingAdmissionPolicy 'modelberth-workspaces-warnings'"+
			" with binding 'modelberth-workspaces-warnings': "+message)
	}
	return out
}
