// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestReadyNeedsAnEndpoint: while the controller manager is down, no client reaches a model, and its Workspace is not
// Ready. Later the model stays Ready without endpoints, until its pod restarts.
func TestReadyNeedsAnEndpoint(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	ws := plannerForm(w.namespace(t), "chat")
	w.endpoints.Stop(ws.Namespace)
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNoEndpoint)
	if !meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionInferenceReady) {
		t.Errorf("the engine answers, and the status does not say so: %s", saying(ws))
	}
	if hasEnded(ws, v1beta1.StageReady) {
		t.Error("the start has ended before a client could reach the model")
	}
	w.endpoints.Start(ws.Namespace)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)

	w.endpoints.Stop(ws.Namespace)
	err := w.client.DeleteAllOf(t.Context(), &discoveryv1.EndpointSlice{}, client.InNamespace(ws.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	w.passes(t, life, ws, 2)
	w.read(t, ws)
	if !meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady) {
		t.Errorf("a Ready model is not, because an update of its Service's endpoints takes a moment: %s", saying(ws))
	}

	key := client.ObjectKeyFromObject(ws)
	w.workloads.Script(key, lacksImage())
	t.Cleanup(func() { w.workloads.Heal(key) })
	restart := func() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: "chat-0"}}
		// The stand-in may be replacing it.
		err := w.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	restart()
	w.untilCondition(t, ws, v1beta1.ConditionInferenceReady, metav1.ConditionFalse, "")
	w.workloads.Heal(key)
	restart()
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNoEndpoint)
	w.endpoints.Start(ws.Namespace)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
}

// TestOneWriteSaysReady: the endpoint of a Service comes some time after its pod is ready, and no write of the status
// comes in between. Nothing is read from the API server for it.
func TestOneWriteSaysReady(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	ws := plannerForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.endpoints.Stop(ws.Namespace)
	eventually(t, "the pod is ready", func() (bool, string) {
		pod := &corev1.Pod{}
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: "chat-0"}, pod)
		return err == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), saying(ws)
	})
	during(t, "no client reaches the model", time.Second, func() (bool, string) {
		w.read(t, ws)
		return !meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionReady), saying(ws)
	})
	w.endpoints.Start(ws.Namespace)
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	ready := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionReady)
	answers := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionInferenceReady)
	if !ready.LastTransitionTime.Equal(&answers.LastTransitionTime) {
		t.Errorf("the status said at %s that the engine answers, and at %s that the Workspace is Ready: two writes",
			answers.LastTransitionTime, ready.LastTransitionTime)
	}
	for _, request := range life.requests.about("endpointslices") {
		if strings.Contains(request, "/namespaces/") {
			t.Errorf("the controller read EndpointSlices from the API server: %s", request)
		}
	}
}

func hasEnded(ws *v1beta1.Workspace, stage string) bool {
	return slices.ContainsFunc(ws.Status.Startup, func(s v1beta1.StartupStage) bool { return s.Stage == stage && s.EndTime != nil })
}
