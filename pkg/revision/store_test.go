// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package revision_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/pkg/revision"
)

func workspace() *v1beta1.Workspace {
	ws := &v1beta1.Workspace{}
	ws.Namespace, ws.Name, ws.UID, ws.Generation = "team-a", "chat", "uid-1", 3
	return ws
}

func server(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func planOf(instanceType string, nodes ...string) *revision.Revision {
	return &revision.Revision{Revision: render.Revision{Plan: planner.Plan{InstanceType: instanceType, NodeNames: nodes, GPUsPerNode: 1}}}
}

// inputs returns the inputs of a spec, different for each count.
func inputs(count int) render.Inputs {
	return render.Inputs{Resource: v1beta1.ResourceSpec{Count: &count}}
}

// pin stores a revision after the existing revisions.
func pin(t *testing.T, store *revision.Store, in render.Inputs, made *revision.Revision, isFallback bool, inUse ...string) *revision.Revision {
	t.Helper()
	known, err := store.ListLive(t.Context(), workspace())
	if err != nil {
		t.Fatal(err)
	}
	out, err := store.Pin(t.Context(), revision.Pin{
		Workspace: workspace(), Inputs: in, Revision: made, IsFallback: isFallback, Known: known, InUse: inUse,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPinCountsRejectedOptions(t *testing.T) {
	kube := server(t)
	store, made := revision.NewStore(kube, kube), planOf("some")
	made.Plan.Rejected = []planner.Verdict{{InstanceType: "small"}, {InstanceType: "dear"}}
	created := pin(t, store, render.Inputs{}, made, false)
	history, err := store.List(t.Context(), workspace())
	if err != nil {
		t.Fatal(err)
	}
	for what, plan := range map[string]planner.Plan{"stored": history.Named(created.Name).Plan, "returned": created.Plan} {
		if len(plan.Rejected) != 0 || plan.TurnedDown != 2 {
			t.Errorf("the %s plan lists %d options and counts %d, want 2 that are counted", what, len(plan.Rejected), plan.TurnedDown)
		}
	}
}

// TestPinReturnsTheNewest covers a lost status while the cache shows no revision. The first revision is made again,
// although others have followed it.
func TestPinReturnsTheNewest(t *testing.T) {
	kube := server(t)
	store := revision.NewStore(kube, kube)
	pin(t, store, inputs(1), planOf("first"), false)
	pin(t, store, inputs(1), planOf("second"), true)
	got, err := store.Pin(t.Context(), revision.Pin{Workspace: workspace(), Inputs: inputs(1), Revision: planOf("first")})
	if err != nil || got.Plan.InstanceType != "second" {
		t.Errorf("got %+v, %v, want the second plan", got, err)
	}
}

func TestPinRefusesTakenNames(t *testing.T) {
	hash, err := revision.Hash(inputs(1))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		reason     string
		controller *v1beta1.Workspace
		wantStall  bool
	}{
		{"a Workspace of that name that was deleted", &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "chat", UID: "former"}}, false},
		{"somebody else", nil, true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			taken := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: revision.Name(workspace(), hash, 1, false), Annotations: map[string]string{v1beta1.AnnotationHash: hash},
			}}
			if test.controller != nil {
				taken.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(test.controller, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))}
			}
			kube := server(t, taken)
			_, err := revision.NewStore(kube, kube).Pin(t.Context(), revision.Pin{Workspace: workspace(), Inputs: inputs(1), Revision: planOf("some")})
			_, isStall := errors.AsType[*progress.StalledError](err)
			_, isWait := errors.AsType[*progress.WaitingError](err)
			if isStall != test.wantStall || isWait == test.wantStall {
				t.Errorf("error %v, want to stall: %v", err, test.wantStall)
			}
		})
	}
}

func TestPinTrims(t *testing.T) {
	kube := server(t)
	store := revision.NewStore(kube, kube)
	var names []string
	for i := range 12 {
		names = append(names, pin(t, store, inputs(i), planOf(fmt.Sprint(i)), false, slices.Concat(names[:min(i, 1)])...).Name)
	}
	history, err := store.List(t.Context(), workspace())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range history.Objects {
		got = append(got, history.Objects[i].Name)
	}
	if diff := cmp.Diff(append(names[:1:1], names[2:]...), got); diff != "" {
		t.Errorf("want all but the oldest that is not in use (-want +got):\n%s", diff)
	}
}

func TestListLeavesOthersOut(t *testing.T) {
	former := workspace()
	former.UID = "former"
	labels := map[string]string{v1beta1.LabelRevisionOwner: "chat", v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	of := func(name string, number int64, by *v1beta1.Workspace) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: name, Labels: labels, UID: types.UID("uid of " + name),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(by, v1beta1.GroupVersion().WithKind(v1beta1.WorkspaceKind))},
			},
			Data: runtime.RawExtension{Raw: []byte("{}")}, Revision: number,
		}
	}
	shown := server(t, of("chat-2", 2, workspace()), of("chat-1", 1, workspace()), of("chat-old", 3, former))
	live := server(t, of("chat-3", 3, workspace()), of("chat-old", 3, former))
	store := revision.NewStore(shown, live)
	history, err := store.List(t.Context(), workspace())
	if err != nil {
		t.Fatal(err)
	}
	newest, err := store.ListLive(t.Context(), workspace())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason  string
		history revision.History
		want    []string
		next    int64
	}{
		{"from the cache", history, []string{"chat-1", "chat-2"}, 3},
		{"from the API server", newest, []string{"chat-3"}, 4},
	} {
		var got []string
		for i := range test.history.Objects {
			got = append(got, test.history.Objects[i].Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.reason, diff)
		}
		if got := test.history.Next(); got != test.next {
			t.Errorf("%s: the next number is %d, want %d", test.reason, got, test.next)
		}
	}
}

func TestMatch(t *testing.T) {
	hash := func(in render.Inputs, of func(render.Inputs) (string, error)) string {
		out, err := of(in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	stored := func(name, hash, context string) appsv1.ControllerRevision {
		return appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.AnnotationHash: hash, v1beta1.AnnotationContext: context}},
			Data:       runtime.RawExtension{Raw: []byte("{}")},
		}
	}
	same, context := hash(inputs(1), revision.Hash), hash(inputs(1), revision.ContextHash)
	planned := v1beta1.WorkspaceStatus{
		ObservedGeneration: 3, Plan: &v1beta1.PlanStatus{Revision: "old"},
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionPlanned, Status: metav1.ConditionTrue}},
	}
	edited := *planned.DeepCopy()
	edited.ObservedGeneration = 2
	tests := []struct {
		reason  string
		status  v1beta1.WorkspaceStatus
		objects []appsv1.ControllerRevision
		want    string
	}{
		{"none", v1beta1.WorkspaceStatus{}, nil, ""},
		{"the newest of the same inputs", v1beta1.WorkspaceStatus{}, []appsv1.ControllerRevision{
			stored("a", same, context), stored("b", same, context), stored("c", "other", context),
		}, "b"},
		{"another version encoded the same spec", planned, []appsv1.ControllerRevision{stored("old", "other", context)}, "old"},
		{"the ConfigMap has changed", planned, []appsv1.ControllerRevision{stored("old", "other", "other")}, ""},
		{"the spec has changed", edited, []appsv1.ControllerRevision{stored("old", "other", context)}, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspace()
			ws.Status = test.status
			got, err := revision.History{Objects: test.objects}.Match(ws, inputs(1))
			name := ""
			if got != nil {
				name = got.Name
			}
			if err != nil || name != test.want {
				t.Errorf("got %q, %v, want %q", name, err, test.want)
			}
		})
	}
}

func TestPromises(t *testing.T) {
	running, suspended := workspace(), workspace()
	suspended.Name, suspended.UID, suspended.Suspend = "other", "uid-2", true
	kube := server(t, running, suspended)
	store := revision.NewStore(kube, kube)
	pin(t, store, inputs(1), planOf("", "node-1"), false)
	pin(t, store, inputs(2), planOf("", "node-2"), false)
	if _, err := store.Pin(t.Context(), revision.Pin{Workspace: suspended, Inputs: inputs(1), Revision: planOf("", "node-3")}); err != nil {
		t.Fatal(err)
	}
	got, err := store.Promises(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := capacity.Owner{Namespace: "team-a", Name: "chat", UID: "uid-1"}
	want := []existing.Promise{existing.PromiseOf(owner, &planOf("", "node-2").Plan)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want what the newest plan of the running Workspace uses (-want +got):\n%s", diff)
	}
}
