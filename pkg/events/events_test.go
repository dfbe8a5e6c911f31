// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/events"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// aboutUID indexes events as the API server does.
func aboutUID(object client.Object) []string {
	event, ok := object.(*corev1.Event)
	if !ok {
		return nil
	}
	return []string{string(event.InvolvedObject.UID)}
}

func event(name, uid string, change func(*corev1.Event)) *corev1.Event {
	out := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, InvolvedObject: corev1.ObjectReference{UID: "x"}}
	if uid != "" {
		out.InvolvedObject.UID = "y"
	}
	change(out)
	return out
}

func at(minutes int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
}

// Recorders of different ages set different fields. The newest time counts.
func TestAbout(t *testing.T) {
	builder := fake.NewClientBuilder().WithObjects(
		event("created", "", func(e *corev1.Event) { e.CreationTimestamp = at(1) }),
		event("first", "", func(e *corev1.Event) { e.FirstTimestamp = at(3) }),
		event("last", "", func(e *corev1.Event) { e.FirstTimestamp, e.LastTimestamp = at(0), at(5) }),
		event("time", "", func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(at(2).Time) }),
		event("series", "", func(e *corev1.Event) {
			e.EventTime = metav1.NewMicroTime(at(0).Time)
			e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(4).Time)}
		}),
		event("other", "y", func(e *corev1.Event) { e.LastTimestamp = at(9) }),
	).WithIndex(&corev1.Event{}, "involvedObject.uid", aboutUID)
	found, err := events.About(t.Context(), builder.Build(), "team-a", "x")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range found {
		names = append(names, found[i].Name)
	}
	if diff := cmp.Diff([]string{"last", "series", "first", "time", "created"}, names); diff != "" {
		t.Errorf("newest first: -want +got:\n%s", diff)
	}
}

func TestAboutWithoutRightToEvents(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		reason string
		fault  error
		want   error
	}{
		{"nobody allowed it", apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil), nil},
		{"the API server is ill", broken, broken},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return tc.fault
				},
			}).Build()
			found, err := events.About(t.Context(), live, "team-a", "x")
			if len(found) > 0 || !errors.Is(err, tc.want) {
				t.Errorf("%d events, %v; want none, %v", len(found), err, tc.want)
			}
		})
	}
}
