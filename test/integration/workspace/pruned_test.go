// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestPrunedAPIBuysNothing replaces the CustomResourceDefinition by one with KAITO's fields only, while the controller
// runs and before it starts: nothing is bought, serving pods continue, and nothing is lost.
func TestPrunedAPIBuysNothing(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	serving, suspended := kaitoForm(w.namespace(t), "serving"), kaitoForm(w.namespace(t), "suspended")
	suspended.Suspend = true
	suspended.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "20"}
	w.create(t, serving)
	w.create(t, suspended)
	w.untilCondition(t, serving, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	w.untilCondition(t, suspended, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	w.passes(t, life, serving, 1)

	restore := w.pruneAPI(t, serving)
	eventually(t, "the event", func() (bool, string) { return w.hasEvent(t, suspended, v1beta1.ReasonAPIPruned), "none" })
	begun := kaitoForm(w.namespace(t), "begun")
	w.create(t, begun)
	w.untilCondition(t, begun, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonAPIPruned)
	life.end(t)
	life = w.begin(t, faults.NewRecorder())
	eventually(t, "a pass", func() (bool, string) { return life.recorder.Passes(client.ObjectKeyFromObject(suspended)) > 0, "none" })
	during(t, "nothing is bought", time.Second, func() (bool, string) {
		return w.karpenter.ClaimsEver(suspended.UID)+w.karpenter.ClaimsEver(begun.UID) == 0, "a NodeClaim"
	})
	w.untilCondition(t, serving, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	if got := w.karpenter.ClaimsEver(serving.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	if writes := life.recorder.Writes(); len(writes) > 0 {
		t.Errorf("the controller wrote: %v", writes)
	}

	restore()
	select {
	case <-life.done:
		life.err = nil
	case <-time.After(patience):
		t.Fatal("the controller does not end")
	}
	w.begin(t, faults.NewRecorder())
	w.untilCondition(t, begun, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	w.read(t, suspended)
	if !suspended.Suspend || suspended.Resource.Placement == nil || suspended.Status.Plan == nil || w.karpenter.ClaimsEver(suspended.UID) != 0 {
		t.Errorf("suspend and limits were lost: %v, %v, %s", suspended.Suspend, suspended.Resource.Placement, saying(suspended))
	}
	w.read(t, serving)
	if len(serving.Status.Attempts) != 1 || w.karpenter.ClaimsEver(serving.UID) != 1 {
		t.Errorf("attempts were lost, or a machine was bought again: %s", saying(serving))
	}
}

// pruneAPI has the API server prune what KAITO's own schema lacks, and waits until it does so.
func (w *world) pruneAPI(t *testing.T, witness *v1beta1.Workspace) (restore func()) {
	t.Helper()
	former := w.changeAPI(t.Context(), t, func(definition *apiextensionsv1.CustomResourceDefinition) {
		for i := range definition.Spec.Versions {
			root := definition.Spec.Versions[i].Schema.OpenAPIV3Schema
			delete(root.Properties, "suspend")
			dropProperty(root, "resource", "placement")
			dropProperty(root, "status", "plan")
			dropProperty(root, "status", "attempts")
		}
	})
	put := func(definition *apiextensionsv1.CustomResourceDefinition) { definition.Spec = former.Spec }
	t.Cleanup(func() { w.changeAPI(context.Background(), t, put) })
	w.untilPlanned(t, witness, false)
	return func() {
		w.changeAPI(t.Context(), t, put)
		w.untilPlanned(t, witness, true)
	}
}

func dropProperty(root *apiextensionsv1.JSONSchemaProps, parent, name string) {
	schema := root.Properties[parent]
	schema.XValidations = nil
	delete(schema.Properties, name)
	root.Properties[parent] = schema
	root.XValidations = nil
}

// untilPlanned waits until the API server returns the plan of a Workspace, or not.
func (w *world) untilPlanned(t *testing.T, witness *v1beta1.Workspace, isThere bool) {
	t.Helper()
	eventually(t, "the API server's new schema", func() (bool, string) {
		w.read(t, witness)
		return (witness.Status.Plan != nil) == isThere, saying(witness)
	})
}

// changeAPI changes the CustomResourceDefinition of Workspaces, and returns what it was.
func (w *world) changeAPI(
	ctx context.Context, t *testing.T, change func(*apiextensionsv1.CustomResourceDefinition),
) (former *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(w.config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := direct.Get(ctx, client.ObjectKey{Name: "workspaces.kaito.sh"}, definition); err != nil {
		t.Fatal(err)
	}
	former = definition.DeepCopy()
	change(definition)
	if err := direct.Update(ctx, definition); err != nil {
		t.Fatalf("changing the CustomResourceDefinition: %v", err)
	}
	return former
}

// hasEvent reports whether an event of that reason is about a Workspace.
func (w *world) hasEvent(t *testing.T, ws *v1beta1.Workspace, reason string) bool {
	t.Helper()
	list := &corev1.EventList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID == ws.UID && e.Reason == reason })
}
