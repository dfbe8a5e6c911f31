// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// threads is a user's settings for the engine.
func threads(count int) string { return fmt.Sprintf("llamacpp:\n  threads: %d\n", count) }

// withConfig makes a Workspace that serves with a ConfigMap.
func (w *world) withConfig(t *testing.T, text string) (*v1beta1.Workspace, *corev1.ConfigMap) {
	t.Helper()
	ws := kaitoForm(w.namespace(t), "chat")
	ws.Inference.Config = "settings"
	config := configMap(ws.Namespace, text)
	if err := w.client.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.create(t, ws)
	w.untilServing(t, ws)
	return ws, config
}

// set writes another text into a ConfigMap.
func (w *world) set(t *testing.T, config *corev1.ConfigMap, text string) {
	t.Helper()
	w.patch(t, config, func() { config.Data[v1beta1.InferenceConfigKey] = text })
}

func configBackAndForth(t *testing.T, life *life) {
	w := life.world
	ws, config := w.withConfig(t, threads(3))
	first := ws.Status.Plan.Revision
	w.set(t, config, threads(5))
	w.untilArgs(t, ws, "--threads 5")
	w.set(t, config, threads(3))
	w.untilArgs(t, ws, "--threads 3")
	eventually(t, "the first revision again", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		ready := condition(ws, v1beta1.ConditionReady)
		return ws.Status.Plan.Revision == first && ready.Status == metav1.ConditionTrue, ws.Status.Plan.Revision
	})
	pod := w.podUID(t, ws)
	w.set(t, config, "llamacpp: [")
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonConfigInvalid)
	w.passes(t, life, ws, 3)
	during(t, "the pod that runs", time.Second, func() (bool, string) {
		got := w.podUID(t, ws)
		return got == pod, string(got)
	})
	w.untilArgs(t, ws, "--threads 3")
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	w.remove(t, ws)
}

func refusedTemplate(t *testing.T, life *life) {
	w := life.world
	ws := templateForm(w.namespace(t))
	ws.Inference.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonSpecInvalid)
	stalled := condition(ws, v1beta1.ConditionStalled)
	if want := `spec.template.spec.restartPolicy: Unsupported value: "OnFailure"`; !strings.Contains(stalled.Message, want) {
		t.Errorf("message %q does not hold the API server's own %q", stalled.Message, want)
	}
	w.passes(t, life, ws, 2)
	if got := len(w.claims(t, ws)) + w.karpenter.ClaimsEver(ws.UID); got != 0 {
		t.Errorf("NodeClaims: %d, want none", got)
	}
	w.remove(t, ws)
}

func suspendedWithoutPlan(t *testing.T, life *life) {
	w := life.world
	ws, config := w.withConfig(t, threads(3))
	if err := w.client.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonConfigNotFound)
	// Nor is there a former one to go by.
	if err := w.client.DeleteAllOf(t.Context(), &appsv1.ControllerRevision{}, client.InNamespace(ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	w.passes(t, life, ws, 2)
	if got := len(w.claims(t, ws)); got != 1 {
		t.Errorf("NodeClaims: %d, want 1: what runs goes on", got)
	}
	w.patch(t, ws, func() { ws.Suspend = true })
	w.untilReleased(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonSuspended)
	w.patch(t, ws, func() { ws.Suspend = false })
	w.passes(t, life, ws, 3)
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: there is still no plan", got)
	}
	w.remove(t, ws)
}

// readyWithNewPods edits the ConfigMap of a serving Workspace. It pauses at the two moments when the old pods could be
// mistaken for the new ones.
func readyWithNewPods(t *testing.T, life *life) {
	w := life.world
	ws, config := w.withConfig(t, threads(3))
	key := client.ObjectKeyFromObject(ws)
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), key, set); err != nil {
		t.Fatal(err)
	}
	former := set.Status.UpdateRevision
	w.workloads.Hold(key)
	w.workloads.ScriptUpdate(key, former, corev1.PodStatus{Phase: corev1.PodPending})
	w.set(t, config, threads(5))
	w.untilArgs(t, ws, "--threads 5")

	// The update has begun, and the former pod still answers.
	w.untilUpdating(t, key, former)
	w.passes(t, life, ws, 2)
	w.checkNotReady(t, ws, "the former pod answers for the new revision")
	w.workloads.Continue(key)
	w.patch(t, set, nil)

	// The new pod is there and does not answer yet.
	eventually(t, "the new pod", func() (bool, string) {
		pods := &corev1.PodList{}
		err := w.client.List(t.Context(), pods, client.InNamespace(ws.Namespace))
		if err != nil || len(pods.Items) != 1 {
			return false, fmt.Sprintf("%d pods, error %v", len(pods.Items), err)
		}
		got := pods.Items[0].Labels[appsv1.ControllerRevisionHashLabelKey]
		return got != former, got
	})
	w.passes(t, life, ws, 2)
	w.checkNotReady(t, ws, "the new pod does not answer yet")
	w.workloads.Heal(key)
	w.patch(t, set, func() { set.Annotations["example.dev/healed"] = "yes" })
	w.untilServing(t, ws)
	w.remove(t, ws)
}

// untilUpdating waits until a StatefulSet is on its way to another revision.
func (w *world) untilUpdating(t *testing.T, key types.NamespacedName, former string) {
	t.Helper()
	eventually(t, "the update begins", func() (bool, string) {
		set := &appsv1.StatefulSet{}
		if err := w.client.Get(t.Context(), key, set); err != nil {
			return false, err.Error()
		}
		return set.Status.UpdateRevision != former && set.Status.ReadyReplicas == 1, fmt.Sprintf("%+v", set.Status)
	})
}

func (w *world) checkNotReady(t *testing.T, ws *v1beta1.Workspace, why string) {
	t.Helper()
	w.read(t, ws)
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionInferenceReady} {
		if found := condition(ws, kind); found.Status == metav1.ConditionTrue {
			t.Errorf("%s is True although %s: %s", kind, why, found.Message)
		}
	}
}
