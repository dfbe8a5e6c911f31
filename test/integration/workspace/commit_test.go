// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// tells is the status of a ready pod whose agent has settled a commit.
func tells(commit string) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "commit", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Message: fmt.Sprintf(`{"commit":%q}`, commit)},
		}}},
	}
}

// commitsOf is the ConfigMap that the pods of the Workspace read their commit from.
func (w *world) commitsOf(t *testing.T, ws *v1beta1.Workspace) client.ObjectKey {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	for _, container := range set.Spec.Template.Spec.InitContainers {
		for _, variable := range container.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.ConfigMapKeyRef != nil {
				return client.ObjectKey{Namespace: ws.Namespace, Name: variable.ValueFrom.ConfigMapKeyRef.Name}
			}
		}
	}
	t.Fatal("no container reads a commit")
	return client.ObjectKey{}
}

// untilKept waits until a commit is kept for the revision that serves.
func (w *world) untilKept(t *testing.T, ws *v1beta1.Workspace, commit string) client.ObjectKey {
	t.Helper()
	key := w.commitsOf(t, ws)
	eventually(t, "the commit is kept", func() (bool, string) {
		kept := &corev1.ConfigMap{}
		err := w.client.Get(t.Context(), key, kept)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil && kept.Data["commit"] == commit, fmt.Sprintf("%v, %v", kept.Data, err)
	})
	return key
}

// TestCommitOfTheFirstFetchStays: the pods of a revision get the commit of its first pod, even if the branch moves on,
// and nothing restarts for it.
func TestCommitOfTheFirstFetchStays(t *testing.T) {
	w := enter(t)
	first, second := strings.Repeat("1a", 20), strings.Repeat("2b", 20)
	life := w.begin(t, faults.NewRecorder())
	ws := plannerForm(w.namespace(t), "chat")
	ws.Inference.Preset.Name = "tiny-chat-vllm"
	w.workloads.Script(client.ObjectKeyFromObject(ws), tells(first))
	t.Cleanup(func() { w.workloads.Heal(client.ObjectKeyFromObject(ws)) })
	w.create(t, ws)
	w.untilServing(t, ws)
	key := w.untilKept(t, ws, first)
	before := w.running(t, ws)

	// A later pod reports another commit, like a pod that has not read the kept one.
	w.workloads.Script(client.ObjectKeyFromObject(ws), tells(second))
	former := w.podUID(t, ws)
	if err := w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name + "-0"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another pod", func() (bool, string) {
		pod := &corev1.Pod{}
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod)
		return err == nil && pod.UID != former && len(pod.Status.InitContainerStatuses) > 0, fmt.Sprint(err)
	})
	w.passes(t, life, ws, 2)
	w.untilKept(t, ws, first)
	after := w.running(t, ws)
	if before.Plan != after.Plan || before.Set != after.Set {
		t.Errorf("what runs was changed: %+v, then %+v", before, after)
	}
	wrote := len(life.recorder.Writes())
	w.passes(t, life, ws, 2)
	if writes := life.recorder.Writes()[wrote:]; len(writes) != 0 {
		t.Errorf("a commit that is kept costs writes: %v", writes)
	}

	// After an edit, the commit may be newer.
	w.patch(t, ws, func() { ws.Inference.Engine = &v1beta1.EngineSpec{Args: map[string]v1beta1.EngineArg{"seed": "3"}} })
	w.untilArgs(t, ws, "--seed 3")
	if next := w.untilKept(t, ws, second); next == key {
		t.Errorf("two revisions share %s", key.Name)
	}
	w.untilKept(t, ws, second)
	if err := w.client.Get(t.Context(), key, &corev1.ConfigMap{}); apierrors.IsNotFound(err) {
		t.Error("the commit of the former revision is gone: a rollback would serve another one")
	}
	w.remove(t, ws)
}
