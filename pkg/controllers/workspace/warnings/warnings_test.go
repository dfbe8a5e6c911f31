// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package warnings

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

var now = metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))

// aboutUID indexes events as the API server does.
func aboutUID(object client.Object) []string {
	event, ok := object.(*corev1.Event)
	if !ok {
		return nil
	}
	return []string{string(event.InvolvedObject.UID)}
}

// TestPublishedIsReadRarely: events about a silent pod are read after a while and then rarely, and other pods cost no
// request.
func TestPublishedIsReadRarely(t *testing.T) {
	held := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-0", UID: "pod-1"}}
	held.Spec.NodeName, held.Status.Phase = "node-1", corev1.PodPending
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "team-a", Name: "e"},
		InvolvedObject: corev1.ObjectReference{UID: "pod-1"}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such claim",
		LastTimestamp: metav1.NewTime(now.Add(2 * time.Minute)),
	}
	reads := 0
	live := fake.NewClientBuilder().WithObjects(event).WithIndex(&corev1.Event{}, "involvedObject.uid", aboutUID).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			reads++
			return c.List(ctx, list, options...)
		},
	}).Build()
	clock := clocktesting.NewFakePassiveClock(now.Time)
	r := &Reader{Live: live, Clock: clock}
	told := []diagnosis.Warning{{About: "pod-1", Reason: "FailedMount", Message: "no such claim"}}
	running := *held.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	for _, step := range []struct {
		reason   string
		isQuoted bool
		after    time.Duration
		pod      corev1.Pod
		reads    int
		again    time.Duration
		want     []diagnosis.Warning
	}{
		{"it was bound just now", false, 0, held, 0, grace, nil},
		{"another pass comes early", false, 5 * time.Second, held, 0, grace - 5*time.Second, nil},
		{"it has taken too long", false, grace, held, 1, askAgain, told},
		{"a pass for another reason", false, grace + 10*time.Second, held, 1, askAgain - 10*time.Second, told},
		{"it lasts", false, grace + askAgain, held, 2, askAgain, told},
		{"it runs", false, grace + askAgain + time.Second, running, 2, 0, nil},
		{"it is held up again", false, grace + 2*askAgain, held, 2, grace, nil},
		{"it runs again", false, grace + 2*askAgain, running, 2, 0, nil},
		{"another process said so", true, grace + 2*askAgain, held, 3, askAgain, told},
		{"it was published long ago", false, grace + 7*askAgain, held, 4, askAgain, nil},
	} {
		clock.SetTime(now.Add(step.after))
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat", UID: "some"}}
		got, again, err := r.Read(t.Context(), ws, diagnosis.Silent([]corev1.Pod{step.pod}, nil), step.isQuoted)
		if err != nil {
			t.Fatal(err)
		}
		if reads != step.reads || again != step.again {
			t.Errorf("%s: read %d times, next look in %v; want %d times, %v", step.reason, reads, again, step.reads, step.again)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", step.reason, diff)
		}
	}
}
