// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestNameTakenUnderServingWorkspace has the Service of a Workspace that serves replaced by somebody
// else's while the controller is away.
func TestNameTakenUnderServingWorkspace(t *testing.T) {
	w := theWorld
	first := w.begin(t, faults.NewRecorder())
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	if ws.Status.Endpoint == nil {
		t.Error("a Workspace that serves has no endpoint")
	}
	first.end(t)
	ours := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name}}
	if err := w.client.Delete(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := w.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}

	w.begin(t, faults.NewRecorder())
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNameTaken)
	w.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonNameTaken)
	if ws.Status.Endpoint != nil {
		t.Errorf("endpoint %+v leads to somebody else's Service", ws.Status.Endpoint)
	}
	if message := condition(ws, v1beta1.ConditionStalled).Message; !strings.Contains(message, "Service "+ws.Namespace+"/chat") {
		t.Errorf("message %q does not name the Service", message)
	}
	w.checkUntouched(t, []client.Object{foreign})
	if got := len(w.claims(t, ws)); got != 1 {
		t.Errorf("NodeClaims: %d, want the 1 that it had", got)
	}

	if err := w.client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	w.patch(t, ws, nil) // by itself it looks again after a minute
	w.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	if ws.Status.Endpoint == nil {
		t.Error("the endpoint does not come back")
	}
	if got := w.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	w.remove(t, ws)
}
