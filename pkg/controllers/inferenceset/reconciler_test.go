// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/controllers/pruned"
	"github.com/modelberth/modelberth/pkg/controllers/pruned/prunedtest"
	"github.com/modelberth/modelberth/pkg/crd"
)

// cluster is an API server in memory, and a Reconciler of its sets.
type cluster struct {
	client.WithWatch
	reconciler *Reconciler
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.InferenceSet{}, &v1beta1.Workspace{}).
		WithIndex(&v1beta1.Workspace{}, ownerIndex, ownerOf).Build()
	return &cluster{c, New(Config{
		Client: c, Live: c, Applier: apply.New(c, c, nil, clock.RealClock{}), Events: record.NewFakeRecorder(100), Clock: clock.RealClock{},
	})}
}

// pass reconciles the set this many times.
func (c *cluster) pass(t *testing.T, times int) {
	t.Helper()
	for range times {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set())}
		if _, err := c.reconciler.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) workspaces(t *testing.T) []v1beta1.Workspace {
	t.Helper()
	list := &v1beta1.WorkspaceList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// answer makes all Workspaces ready for their current specs.
func (c *cluster) answer(t *testing.T) {
	t.Helper()
	for _, ws := range c.workspaces(t) {
		ws.Status.Conditions = []metav1.Condition{{
			Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonServing, ObservedGeneration: ws.Generation,
		}}
		if err := c.Status().Update(t.Context(), &ws); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEditsOfReplicasAreTakenBack(t *testing.T) {
	tests := []struct {
		reason string
		edit   func(*v1beta1.Workspace)
	}{
		{"a field that the template has not", func(ws *v1beta1.Workspace) { ws.Inference.Config = "mine" }},
		{"a limit that the template has not", func(ws *v1beta1.Workspace) {
			ws.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "1"}
		}},
		{"a field that is taken out", func(ws *v1beta1.Workspace) { ws.Inference.Engine = nil }},
		{"the label of the set", func(ws *v1beta1.Workspace) { delete(ws.Labels, v1beta1.LabelInferenceSet) }},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newCluster(t, set(func(s *v1beta1.InferenceSet) {
				s.Spec.Template.Inference.Engine = &v1beta1.EngineSpec{Name: "vllm"}
			}))
			c.pass(t, 2)
			c.answer(t)
			before := c.workspaces(t)
			if len(before) != 2 {
				t.Fatalf("%d Workspaces, want 2", len(before))
			}
			edited := before[0].DeepCopy()
			test.edit(edited)
			if err := c.Update(t.Context(), edited); err != nil {
				t.Fatal(err)
			}
			c.pass(t, 3)
			after := c.workspaces(t)
			for i := range after {
				if diff := cmp.Diff(before[i].Inference, after[i].Inference); diff != "" {
					t.Errorf("inference of %s (-before +after):\n%s", after[i].Name, diff)
				}
				if after[i].Resource.Placement != nil || after[i].Labels[v1beta1.LabelInferenceSet] != "chat" {
					t.Errorf("%s has %+v and labels %v", after[i].Name, after[i].Resource, after[i].Labels)
				}
			}
		})
	}
}

func TestUnreadableTemplateIsReported(t *testing.T) {
	c := newCluster(t, set(func(s *v1beta1.InferenceSet) { s.Spec.Template.Inference = nil }))
	c.pass(t, 2)
	found := &v1beta1.InferenceSet{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set()), found); err != nil {
		t.Fatal(err)
	}
	ready := found.Status.Conditions[0]
	if len(c.workspaces(t)) > 0 || ready.Reason != v1beta1.ReasonSpecInvalid {
		t.Errorf("Workspaces %v and condition %+v", c.workspaces(t), ready)
	}
}

func TestDeletionWaitsForWorkspaces(t *testing.T) {
	c := newCluster(t, set())
	c.pass(t, 2)
	for _, ws := range c.workspaces(t) { // as the controller of Workspaces does
		ws.Finalizers = []string{v1beta1.Finalizer}
		if err := c.Update(t.Context(), &ws); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), set()); err != nil {
		t.Fatal(err)
	}
	c.pass(t, 2)
	found := &v1beta1.InferenceSet{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set()), found); err != nil {
		t.Fatalf("the set is gone before its Workspaces: %v", err)
	}
	for _, ws := range c.workspaces(t) {
		if ws.DeletionTimestamp.IsZero() {
			t.Errorf("Workspace %s is not being deleted", ws.Name)
		}
		ws.Finalizers = nil
		if err := c.Update(t.Context(), &ws); err != nil {
			t.Fatal(err)
		}
	}
	c.pass(t, 1)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set()), found); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the set is still there: %v", err)
	}
}

func TestPrunedSetIsLeftAlone(t *testing.T) {
	known := func(s *v1beta1.InferenceSet) { s.Finalizers = []string{v1beta1.InferenceSetFinalizer} }
	says := func(definition, field string) string {
		return pruned.Check(prunedtest.Schema{definition: field}, definition)
	}
	tests := []struct {
		reason string
		set    func(*v1beta1.InferenceSet)
		schema prunedtest.Schema
		// children and conditions are the results of three passes, and events the published events.
		children   int
		conditions []string
		events     []string
	}{
		{"both definitions are whole", known, prunedtest.Schema{}, 2, nil, nil},
		{
			"a status of a known set would make the loss permanent", known,
			prunedtest.Schema{crd.InferenceSets: "a"},
			0, nil,
			[]string{"Warning APIPruned " + says(crd.InferenceSets, "a")},
		},
		{
			"a known set, and its Workspaces would be written", known,
			prunedtest.Schema{crd.Workspaces: "b"},
			0, nil,
			[]string{"Warning APIPruned " + says(crd.Workspaces, "b")},
		},
		{
			"a new set has nothing to lose", func(*v1beta1.InferenceSet) {},
			prunedtest.Schema{crd.Workspaces: "b"},
			0,
			[]string{
				"Ready=False(APIPruned): 0/2 replicas are ready. " + says(crd.Workspaces, "b"),
				"Stalled=True(APIPruned): " + says(crd.Workspaces, "b"),
			},
			nil,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			c := newCluster(t, set(test.set))
			c.reconciler.Schema = test.schema
			events := record.NewFakeRecorder(100)
			c.reconciler.Events = events
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set())}
			for range 3 {
				if _, err := c.reconciler.Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(c.workspaces(t)); got != test.children {
				t.Errorf("%d Workspaces, want %d", got, test.children)
			}
			if test.children > 0 {
				return
			}
			found := &v1beta1.InferenceSet{}
			if err := c.Get(t.Context(), request.NamespacedName, found); err != nil {
				t.Fatal(err)
			}
			var conditions []string
			for _, got := range found.Status.Conditions {
				if got.Type == v1beta1.ConditionReady || got.Type == v1beta1.ConditionStalled {
					conditions = append(conditions, fmt.Sprintf("%s=%s(%s): %s", got.Type, got.Status, got.Reason, got.Message))
				}
			}
			if diff := cmp.Diff(test.conditions, conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			close(events.Events)
			var published []string
			for event := range events.Events {
				published = append(published, event)
			}
			if diff := cmp.Diff(test.events, published); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPrunedSetIsDeleted: a set is deleted while fields are pruned, because the deletion needs none of them.
func TestPrunedSetIsDeleted(t *testing.T) {
	c := newCluster(t, set())
	c.pass(t, 2)
	found := &v1beta1.InferenceSet{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set()), found); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	c.reconciler.Schema = prunedtest.Schema{crd.Workspaces: "b", crd.InferenceSets: "a"}
	c.pass(t, 3)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set()), found); !apierrors.IsNotFound(err) || len(c.workspaces(t)) > 0 {
		t.Errorf("the set is still there (%v), or its Workspaces %v", err, c.workspaces(t))
	}
}
