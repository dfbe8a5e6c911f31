// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestNameTakenUnderServingWorkspace replaces the Service of a serving Workspace by a foreign one, while no controller
// runs.
func TestNameTakenUnderServingWorkspace(t *testing.T) {
	w := enter(t)
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
		t.Errorf("endpoint %+v points to another owner's Service", ws.Status.Endpoint)
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

// TestNamesThatTheCacheDoesNotShow applies with an empty cache: only the API server has the existing objects, and no
// write may change a foreign one.
func TestNamesThatTheCacheDoesNotShow(t *testing.T) {
	w := enter(t)
	ws := kaitoForm(w.namespace(t), "chat")
	w.create(t, ws)
	blind := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		},
	})
	applier := apply.New(blind, w.client, nil, clock.RealClock{})
	service := func() *corev1.Service {
		s := &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(5000)}}},
		}
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ws, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))}
		return s
	}
	foreign := service()
	foreign.OwnerReferences = nil
	if err := w.client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := applier.Apply(t.Context(), ws, service())
		if i == 1 {
			err = applier.Check(t.Context(), ws, service())
		}
		if _, isTaken := errors.AsType[*apply.TakenError](err); !isTaken {
			t.Errorf("error %v, want that the name is taken", err)
		}
	}
	w.checkUntouched(t, []client.Object{foreign})
	if err := w.client.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := applier.Check(t.Context(), ws, service()); err != nil {
		t.Errorf("checking a free name: %v", err)
	}
	for i, want := range []bool{true, false} {
		if wrote, err := applier.Apply(t.Context(), ws, service()); err != nil || wrote != want {
			t.Errorf("apply %d: wrote %v, error %v; want %v", i+1, wrote, err, want)
		}
	}
	changed := service()
	changed.Spec.Ports[0].Port = 81
	if wrote, err := applier.Apply(t.Context(), ws, changed); err != nil || !wrote {
		t.Errorf("a change: wrote %v, error %v", wrote, err)
	}
}
