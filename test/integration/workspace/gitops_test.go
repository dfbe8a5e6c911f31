// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestHealthOfWorkspaces watches Workspaces and computes their health as Flux does, and as all tools do with kstatus.
// An unstable health would end an installation too early.
func TestHealthOfWorkspaces(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	tests := []struct {
		reason string
		make   func(namespace string) *v1beta1.Workspace
		until  func(t *testing.T, ws *v1beta1.Workspace)
		want   []status.Status
	}{
		{
			reason: "a Workspace from its manifest to its end",
			make:   func(namespace string) *v1beta1.Workspace { return plannerForm(namespace, "chat") },
			until: func(t *testing.T, ws *v1beta1.Workspace) {
				w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
				w.remove(t, ws)
			},
			want: []status.Status{status.InProgressStatus, status.CurrentStatus, status.TerminatingStatus},
		},
		{
			reason: "no machine will ever do, so waiting for it is in vain",
			make: func(namespace string) *v1beta1.Workspace {
				ws := plannerForm(namespace, "chat")
				ws.Inference.Preset.Name = "no-such-model"
				return ws
			},
			until: func(t *testing.T, ws *v1beta1.Workspace) {
				w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonUnknownPreset)
				w.remove(t, ws)
			},
			want: []status.Status{status.InProgressStatus, status.FailedStatus, status.TerminatingStatus},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := test.make(w.namespace(t))
			seen := w.watchHealth(t, &v1beta1.WorkspaceList{}, ws.Namespace)
			w.create(t, ws)
			test.until(t, ws)
			if diff := cmp.Diff(test.want, seen()); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHealthOfInferenceSets(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	set := setForm(w.namespace(t), "chat", 2)
	seen := w.watchHealth(t, &v1beta1.InferenceSetList{}, set.Namespace)
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	w.removeSet(t, set)
	want := []status.Status{status.InProgressStatus, status.CurrentStatus, status.TerminatingStatus}
	if diff := cmp.Diff(want, seen()); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

// watchHealth computes the health of the only object of a list after each change. The returned function stops watching
// and lists the healths, without repetition.
func (w *world) watchHealth(t *testing.T, list client.ObjectList, namespace string) func() []status.Status {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), list, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	var seen []status.Status
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watcher.ResultChan() {
			if event.Type == watch.Error { // the end of the watch
				continue
			}
			health, err := w.healthOf(event.Object)
			if err != nil {
				t.Error(err)
			}
			if len(seen) == 0 || seen[len(seen)-1] != health {
				seen = append(seen, health)
			}
		}
	})
	return func() []status.Status {
		watcher.Stop()
		watching.Wait()
		return seen
	}
}

func (w *world) healthOf(object runtime.Object) (status.Status, error) {
	kind, err := w.client.GroupVersionKindFor(object)
	if err != nil {
		return "", err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return "", err
	}
	out := &unstructured.Unstructured{Object: fields}
	out.SetGroupVersionKind(kind)
	result, err := status.Compute(out)
	if err != nil {
		return "", err
	}
	return result.Status, nil
}

// TestAppliedManifestDoesNotDrift applies the manifest of a settled Workspace again, as a GitOps controller does every few
// minutes. The controller writes no field of a manifest, so nothing changes, and no manager takes a field from another.
func TestAppliedManifestDoesNotDrift(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	manifest := plannerForm(w.namespace(t), "chat")
	ws := w.applied(t, manifest)
	key, uid := client.ObjectKeyFromObject(ws), ws.UID
	t.Cleanup(func() { w.clear(t, key, uid) })
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	w.passes(t, life, ws, 2)
	w.read(t, ws)
	for _, again := range []*v1beta1.Workspace{w.applied(t, manifest, client.DryRunAll), w.applied(t, manifest)} {
		if diff := cmp.Diff(ws.ManagedFields, again.ManagedFields); diff != "" {
			t.Errorf("managers of fields (-settled +applied again):\n%s", diff)
		}
		if again.ResourceVersion != ws.ResourceVersion {
			t.Errorf("resource version %s after the manifest was applied again, %s before", again.ResourceVersion, ws.ResourceVersion)
		}
	}
}

// applied applies a manifest on the server as Flux does, and returns the stored object.
func (w *world) applied(t *testing.T, manifest *v1beta1.Workspace, options ...client.ApplyOption) *v1beta1.Workspace {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(manifest)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))
	for _, field := range [][]string{{"status"}, {"metadata", "creationTimestamp"}} {
		unstructured.RemoveNestedField(object.Object, field...)
	}
	options = append(options, client.FieldOwner("kustomize-controller"), client.ForceOwnership)
	if err := w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		t.Fatalf("applying the manifest: %v", err)
	}
	out := &v1beta1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}
