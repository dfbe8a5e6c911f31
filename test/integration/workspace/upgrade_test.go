// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// otherFacts are the changed facts of another version: the chosen machine type is no longer available.
const otherFacts = `overrides:
- name: Standard_NC4as_T4_v3
  unusable: retired
`

// TestUpgradeLeavesPodsAlone starts another version of the controller, with other images and facts. It changes no pod
// and no plan of a serving Workspace until the spec is edited.
func TestUpgradeLeavesPodsAlone(t *testing.T) {
	w := enter(t)
	first := w.begin(t, faults.NewRecorder())
	ws := plannerForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, "")
	w.passes(t, first, ws, 2)
	before := w.running(t, ws)
	if got := ws.Status.Plan.InstanceType; got != "Standard_NC4as_T4_v3" {
		t.Fatalf("the plan is for %s: what the newer version knows makes no difference", got)
	}
	first.end(t)

	newer := w.options()
	newer.AgentImage = "registry.example/agent:newer"
	newer.EngineImages = map[string]string{"llamacpp": "registry.example/llama.cpp:newer"}
	newer.HubEndpoint = "http://other-hub.example"
	newer.CatalogOverlay = w.overlayWith(t, "overrides.yaml", otherFacts)
	second := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, newer)
	w.passes(t, second, ws, 2)
	if diff := cmp.Diff(before, w.running(t, ws)); diff != "" {
		t.Errorf("an upgrade alone changed what runs (-before +after):\n%s", diff)
	}
	if writes := second.recorder.Writes(); len(writes) != 0 {
		t.Errorf("an upgrade alone wrote: %v", writes)
	}

	w.patch(t, ws, func() { ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"threads": "3"}} })
	w.untilArgs(t, ws, "--threads 3")
	if got := w.running(t, ws).Images; got[0] != "registry.example/agent:newer" {
		t.Errorf("after an edit the pods have the images %v, want those of the newer version", got)
	}
	w.remove(t, ws)
}

// running is the state that an upgrade must not change.
type running struct {
	Plan   string
	Images []string
	Pods   []types.UID
	Set    int64
}

func (w *world) running(t *testing.T, ws *v1beta1.Workspace) running {
	t.Helper()
	key := client.ObjectKeyFromObject(ws)
	if err := w.client.Get(t.Context(), key, ws); err != nil {
		t.Fatal(err)
	}
	set, pods := &appsv1.StatefulSet{}, &corev1.PodList{}
	if err := w.client.Get(t.Context(), key, set); err != nil {
		t.Fatal(err)
	}
	if err := w.client.List(t.Context(), pods, client.InNamespace(ws.Namespace), client.MatchingLabels{v1beta1.LabelWorkspace: ws.Name}); err != nil {
		t.Fatal(err)
	}
	out := running{Plan: ws.Status.Plan.Revision, Set: set.Generation}
	for _, container := range append(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers...) {
		out.Images = append(out.Images, container.Image)
	}
	for _, pod := range pods.Items {
		out.Pods = append(out.Pods, pod.UID)
	}
	return out
}

// overlayWith is the stories' additions to the catalogue and one file more.
func (w *world) overlayWith(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(w.overlay)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
