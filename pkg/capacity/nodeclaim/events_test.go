// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// eventAbout returns an event about the NodeClaim with that UID.
func eventAbout(uid types.UID, name string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", UID: uid},
		Reason:         "InsufficientCapacityError", Message: name,
		FirstTimestamp: metav1.NewTime(at.Add(-time.Minute)), LastTimestamp: metav1.NewTime(at),
	}
}

func TestEvents(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(eventAbout("ours", "a", at), eventAbout("other", "b", at)).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(object client.Object) []string {
			event, ok := object.(*corev1.Event)
			if !ok {
				return nil
			}
			return []string{string(event.InvolvedObject.UID)}
		}).Build()
	refusing := func(err error) client.Client {
		return interceptor.NewClient(server, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return err },
		})
	}
	tests := []struct {
		reason string
		live   client.Client
		want   []refusal.Event
		fails  bool
	}{
		{
			reason: "those about the claim, with the time when they were last seen", live: server,
			want: []refusal.Event{{UID: "ours", Reason: "InsufficientCapacityError", Message: "a", At: at}},
		},
		{
			reason: "where events may not be read there are none",
			live:   refusing(apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no"))),
		},
		{reason: "an API server in fault is an error", live: refusing(apierrors.NewInternalError(errors.New("no leader"))), fails: true},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := nodeclaim.New(server, test.live, class).Events(t.Context(), []types.UID{"ours"})
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %v", err, test.fails)
			}
			for i := range got {
				got[i].At = got[i].At.UTC()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClass(t *testing.T) {
	kind := schema.GroupVersionKind{Group: class.Group, Version: "v1beta1", Kind: class.Kind}
	object := func(conditions ...any) *unstructured.Unstructured {
		out := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
		out.SetGroupVersionKind(kind)
		out.SetName(class.Name)
		return out
	}
	ready := func(status string) map[string]any {
		return map[string]any{"type": "Ready", "status": status, "message": "no subnet"}
	}
	tests := []struct {
		reason  string
		objects []client.Object
		served  bool
		state   refusal.ClassState
		message string
	}{
		{"ready", []client.Object{object(ready("True"))}, true, refusal.ClassReady, ""},
		{"not ready", []client.Object{object(ready("False"))}, true, refusal.ClassNotReady, `AKSNodeClass "default": no subnet`},
		{"nothing said", []client.Object{object()}, true, refusal.ClassNotSeen, ""},
		{"missing", nil, true, refusal.ClassMissing, `AKSNodeClass "default" does not exist`},
		{"a kind that is not served", nil, false, refusal.ClassNotSeen, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
			if test.served {
				mapper.Add(kind, meta.RESTScopeRoot)
			}
			c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithRESTMapper(mapper).WithObjects(test.objects...).Build()
			state, message, err := nodeclaim.New(c, c, class).Class(t.Context(), class)
			if err != nil || state != test.state || message != test.message {
				t.Errorf("%q %q, error %v; want %q %q", state, message, err, test.state, test.message)
			}
		})
	}
}
