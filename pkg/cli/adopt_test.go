// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/takeover"
	"github.com/modelberth/modelberth/presets"
)

// ofKAITO returns a cluster with the objects of a real KAITO, as an API server stored them. withController adds KAITO's
// controller.
func ofKAITO(t *testing.T, withController bool) *cluster {
	t.Helper()
	out := &cluster{}
	for _, name := range []string{"karpenter.yaml", "gpu-provisioner.yaml"} {
		text, err := os.ReadFile(filepath.Join("../takeover/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if object.Object != nil {
				out.objects = append(out.objects, object)
			}
		}
	}
	if withController {
		release := map[string]string{"meta.helm.sh/release-name": "kaito", "meta.helm.sh/release-namespace": "kaito-system"}
		hook := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{map[string]any{"name": "validation.workspace.kaito.sh"}}}}
		hook.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"})
		hook.SetName("validation.workspace.kaito.sh")
		out.objects = append(out.objects, hook, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kaito-system", Name: "kaito-workspace", Annotations: release},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "controller", Image: "mcr.example/aks/kaito/workspace:0.12.0"}},
			}}},
		})
	}
	return out
}

func TestAdopt(t *testing.T) {
	forbidden := ofKAITO(t, false)
	forbidden.faults = interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, isDeployments := list.(*appsv1.DeploymentList); isDeployments {
				return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "", errors.New("mia may not list deployments"))
			}
			return inner.List(ctx, list, options...)
		},
	}
	for _, test := range []struct {
		name, reason string
		cluster      *cluster
		args         []string
		code         int
	}{
		{"adopt-plan", "the whole installation, with its controller", ofKAITO(t, true), []string{"-A"}, 0},
		{"adopt-plan-json", "data for programs", ofKAITO(t, true), []string{"--plan", "one", "-o", "json"}, 0},
		{"adopt-none", "nothing of KAITO's", &cluster{objects: []client.Object{workspace()}}, []string{"-A"}, 0},
		{"adopt-one", "one Workspace", ofKAITO(t, false), []string{"one"}, 0},
		{"adopt-all", "one Workspace has an obstacle, and the others none", ofKAITO(t, false), []string{"--all", "-A"}, 5},
		{"adopt-running", "KAITO's controller runs", ofKAITO(t, true), []string{"one"}, 5},
		{"adopt-forbidden", "KAITO's controller may run unseen", forbidden, []string{"one"}, 5},
		{"adopt-unknown", "a name that KAITO does not serve", ofKAITO(t, false), []string{"other"}, 2},
		{"adopt-both", "names and --all", ofKAITO(t, false), []string{"one", "--all"}, 2},
		{"adopt-undo-all", "undo without names", ofKAITO(t, false), []string{"--undo"}, 2},
		{"adopt-undo-not-adopted", "undo without a takeover", ofKAITO(t, false), []string{"one", "--undo"}, 0},
	} {
		t.Run(test.reason, func(t *testing.T) {
			args := append([]string{"adopt", "-n", "default"}, test.args...)
			got := test.cluster.run(t, session{presets: presets.FS()}, args...)
			if got.Code != test.code {
				t.Errorf("exit code %d, want %d", got.Code, test.code)
			}
			golden(t, filepath.Join("testdata/golden", test.name+".txt"), got.Out+got.Err)
		})
	}
}

// TestAdoptAndUndo gives the consent and withdraws it. The Workspace is the same as before.
func TestAdoptAndUndo(t *testing.T) {
	c := ofKAITO(t, false)
	objects := c.client(t)
	read := func() *v1beta1.Workspace {
		ws := &v1beta1.Workspace{}
		if err := objects.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, ws); err != nil {
			t.Fatal(err)
		}
		return ws
	}
	adopt := func(args ...string) ran {
		return c.run(t, session{objects: objects}, append([]string{"adopt", "one", "-n", "default"}, args...)...)
	}
	before := read()
	if got := adopt(); got.Code != 0 || takeover.StateOf(read()) != takeover.Frozen {
		t.Fatalf("exit code %d, state %q: %s", got.Code, takeover.StateOf(read()), got.Err)
	}
	once := read()
	if got := adopt(); got.Code != 0 || read().ResourceVersion != once.ResourceVersion {
		t.Errorf("taking it over twice wrote something, exit code %d: %s", got.Code, got.Err)
	}
	edited := read()
	edited.Generation, edited.Inference.Config = edited.Generation+1, "faster"
	if err := objects.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	if got := adopt("--undo"); got.Code != 5 || !strings.Contains(got.Err, "was edited after the takeover: revert the edit first") {
		t.Errorf("undo after an edit: exit code %d: %s", got.Code, got.Err)
	}
	edited.Generation, edited.Inference.Config = edited.Generation+1, ""
	if err := objects.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	if got := adopt("--undo"); got.Code != 0 {
		t.Errorf("undo after the edit was reverted: exit code %d: %s", got.Code, got.Err)
	}
	if after := read(); len(after.Annotations) != len(before.Annotations) || takeover.StateOf(after) != takeover.Unadopted {
		t.Errorf("annotations %v, want %v", after.Annotations, before.Annotations)
	}
	if got := adopt(); got.Code != 0 {
		t.Fatalf("taking it over again: exit code %d: %s", got.Code, got.Err)
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	if err := objects.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if got := adopt("--undo"); got.Code != 5 || takeover.StateOf(read()) != takeover.Frozen || !strings.Contains(got.Err, "its StatefulSet is gone") {
		t.Errorf("undo after the StatefulSet was deleted: exit code %d: %s", got.Code, got.Err)
	}
	ours := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "one", Labels: map[string]string{v1beta1.LabelManagedBy: v1beta1.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(read(), v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
	}}
	if err := objects.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	if got := adopt("--plan"); got.Code != 0 || !strings.Contains(got.Out, "  Replaced") || strings.Contains(got.Out, "Frozen") {
		t.Errorf("the list after the pods were replaced: exit code %d:\n%s%s", got.Code, got.Out, got.Err)
	}
	if got := adopt("--undo"); got.Code != 5 || takeover.StateOf(read()) != takeover.Frozen || !strings.Contains(got.Err, "its pods were replaced") {
		t.Errorf("undo after the pods were replaced: exit code %d: %s", got.Code, got.Err)
	}
}
