// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/progress"
)

// takenKind is an Applier that finds another owner for all objects of one kind.
type takenKind string

func (takenKind) Check(context.Context, client.Object, client.Object) error { return nil }

func (k takenKind) State(ctx context.Context, owner, desired client.Object) (apply.State, error) {
	_, err := k.Apply(ctx, owner, desired)
	return apply.Applied, err
}

func (k takenKind) Apply(_ context.Context, _, desired client.Object) (bool, error) {
	if kind := desired.GetObjectKind().GroupVersionKind().Kind; kind == string(k) {
		return false, &apply.TakenError{Kind: kind, Namespace: desired.GetNamespace(), Name: desired.GetName()}
	}
	return true, nil
}

// TestNamesOfOthers checks which Workspaces stop because another owner has an object's name. A running model from a
// version without NetworkPolicies keeps its endpoint.
func TestNamesOfOthers(t *testing.T) {
	tests := []struct {
		reason string
		kind   string
		runs   bool
		want   string
	}{
		{"all names are free", "", false, ""},
		{"the Service is somebody else's", "Service", true, v1beta1.ReasonNameTaken},
		{"nothing is bought beside a NetworkPolicy of somebody else", "NetworkPolicy", false, v1beta1.ReasonNameTaken},
		{"what runs goes on beside it", "NetworkPolicy", true, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			r, s := New(Config{Applier: takenKind(test.kind), Endpoints: &orders{}}), scope.New(workspaceObject())
			s.Revision = accepted(1)
			if test.runs {
				s.StatefulSet = readySet()
			}
			got := ""
			if err := r.workloads.ensureNames(t.Context(), s); err != nil {
				got = status.Reason(err)
			}
			if got != test.want || s.HasService != (test.want == "" && test.runs) {
				t.Errorf("reason %q, Services are there: %v; want reason %q", got, s.HasService, test.want)
			}
		})
	}
}

// stands is an Applier for which all objects are in the same state.
type stands apply.State

func (stands) Check(context.Context, client.Object, client.Object) error         { return nil }
func (stands) Apply(context.Context, client.Object, client.Object) (bool, error) { return false, nil }

func (s stands) State(context.Context, client.Object, client.Object) (apply.State, error) {
	return apply.State(s), nil
}

// orders records the ordered Services. err is the result of the last try.
type orders struct {
	kinds     []string
	err       error
	forgotten int
}

func (o *orders) Order(_ *v1beta1.Workspace, service client.Object) error {
	o.kinds = append(o.kinds, service.GetObjectKind().GroupVersionKind().Kind)
	return o.err
}

func (o *orders) Forget(types.NamespacedName) { o.forgotten++ }

// TestEndpoint checks when a Service is ordered, and when it counts as existing.
func TestEndpoint(t *testing.T) {
	refused := apierrors.NewForbidden(corev1.Resource("services"), "chat", errors.New("exceeded quota: services"))
	tests := []struct {
		reason string
		stands apply.State
		last   error
		orders int
		named  bool
		err    error
	}{
		{"none yet", apply.Missing, nil, 1, false, nil},
		{"one that is to be another", apply.Outdated, nil, 1, true, nil},
		{"as it is to be", apply.Applied, refused, 0, true, nil},
		{"the API server makes none", apply.Missing, refused, 1, false, refused},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			desk := &orders{err: test.last}
			r, s := New(Config{Applier: stands(test.stands), Endpoints: desk}), scope.New(workspaceObject())
			s.Revision, s.StatefulSet = accepted(1), readySet()
			err := r.workloads.ensureNames(t.Context(), s)
			if !errors.Is(err, test.err) || s.HasService != test.named || len(desk.kinds) != test.orders {
				t.Errorf("error %v, there is a Service: %v, ordered %v; want %v, %v, %d", err, s.HasService, desk.kinds, test.err, test.named, test.orders)
			}
			if len(desk.kinds) > 0 && desk.kinds[0] != "Service" {
				t.Errorf("ordered a %s", desk.kinds[0])
			}
		})
	}
}

// TestForgottenOrders checks which orders are dropped. An old order would be retried rarely, and would report an
// outdated failure.
func TestForgottenOrders(t *testing.T) {
	tests := []struct {
		reason  string
		applier Applier
		want    int
	}{
		{"the Service is to be made", stands(apply.Missing), 0},
		{"it is as it is to be", stands(apply.Applied), 1},
		{"its name is somebody else's by now", takenKind("Service"), 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			desk := &orders{}
			r, s := New(Config{Applier: test.applier, Endpoints: desk}), scope.New(workspaceObject())
			s.Revision, s.StatefulSet = accepted(1), readySet()
			err := r.workloads.ensureNames(t.Context(), s)
			if _, isStalled := errors.AsType[*progress.StalledError](err); err != nil && !isStalled {
				t.Fatal(err)
			}
			if desk.forgotten != test.want {
				t.Errorf("forgotten %d times, want %d", desk.forgotten, test.want)
			}
		})
	}
}

// TestOrderOfAWorkspaceThatIsGone: a Service is not retried after somebody removed its Workspace's finalizer by hand.
func TestOrderOfAWorkspaceThatIsGone(t *testing.T) {
	known := runtime.NewScheme()
	if err := v1beta1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	kube, desk := fake.NewClientBuilder().WithScheme(known).Build(), &orders{}
	r := New(Config{Client: kube, Live: kube, Provisioner: empty{}, Endpoints: desk})
	key := types.NamespacedName{Namespace: "team-a", Name: "chat"}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || desk.forgotten != 1 {
		t.Errorf("error %v, forgotten %d times, want once", err, desk.forgotten)
	}
}
