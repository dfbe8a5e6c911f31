// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/foreign"
	"github.com/modelberth/modelberth/pkg/progress"
)

// TestRehearse covers the API server's answers to a dry run of the new pods. Nothing is created.
func TestRehearse(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: 400, Message: `admission webhook "v.example" denied the request: no GPUs on weekends`,
	}}
	quota := apierrors.NewForbidden(pods, "chat-0", errors.New("exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"))
	for _, test := range []struct {
		reason  string
		answer  error
		hasRoom bool
		// stalls, waits and fails are the possible kinds of the error; says is a part of its message.
		stalls, waits, fails bool
		says                 string
	}{
		{reason: "accepted"},
		{reason: "accepted, and KAITO's pod has the name", answer: apierrors.NewAlreadyExists(pods, "chat-0")},
		{
			reason: "a webhook refuses the pods", answer: denied, stalls: true,
			says: `denied the request: no GPUs on weekends): ask the owner of the policy for an exception, or change inference.pod; or revert the edit`,
		},
		{reason: "the quota admits the pods in place of KAITO's", answer: quota, hasRoom: true},
		{reason: "nobody has looked at the quota", answer: quota, stalls: true, says: "raise the ResourceQuota"},
		{reason: "a webhook is down", answer: apierrors.NewInternalError(errors.New(`failed calling webhook "v.example"`)), fails: true},
		{reason: "the API server is busy", answer: apierrors.NewTooManyRequests("later", 1), fails: true},
		{reason: "the API server cannot be reached", answer: errors.New("connection refused"), fails: true},
		{reason: "a webhook hangs", answer: context.DeadlineExceeded, waits: true, says: "check the admission webhooks for pods"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c := cluster(t)
			writer := interceptor.NewClient(c, interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if chosen := (&client.CreateOptions{}).ApplyOptions(options); len(chosen.DryRun) == 0 {
						t.Errorf("%T %s was created for good", object, object.GetName())
					}
					if _, isPod := object.(*corev1.Pod); !isPod {
						return nil
					}
					return test.answer
				},
			})
			guard := &foreign.Guard{Cached: c, Live: c}
			ws := workspace()
			err := guard.Rehearse(t.Context(), writer, foreign.Rehearsal{
				Sets:     []*appsv1.StatefulSet{{ObjectMeta: ownedBy(ws)}},
				Replaced: &appsv1.StatefulSet{ObjectMeta: ownedBy(ws)}, HasRoom: test.hasRoom,
			})
			stalled, isStalled := errors.AsType[*progress.StalledError](err)
			isWaiting := progress.IsWaiting(err)
			if isStalled != test.stalls || isWaiting != test.waits || (err != nil && !isStalled && !isWaiting) != test.fails {
				t.Fatalf("error %v; want stalled %v, waiting %v, failed %v", err, test.stalls, test.waits, test.fails)
			}
			if isStalled && (stalled.Reason != v1beta1.ReasonPodRefused || stalled.RetryAfter == 0) {
				t.Errorf("reason %s, again after %v; want PodRefused, and another look", stalled.Reason, stalled.RetryAfter)
			}
			if err != nil && !strings.Contains(progress.Message(err), test.says) {
				t.Errorf("message %q, want %q in it", progress.Message(err), test.says)
			}
		})
	}
}

// TestRehearsedPods: the rehearsed pods match the pods of the StatefulSets.
func TestRehearsedPods(t *testing.T) {
	ws := workspace()
	var got []string
	c := cluster(t)
	writer := interceptor.NewClient(c, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			if pod, isPod := object.(*corev1.Pod); isPod {
				owner := metav1.GetControllerOf(pod)
				got = append(got, fmt.Sprint(pod.Namespace, "/", pod.Name, " ", pod.Labels, " of ", owner.Kind, " ", owner.UID, ", runs ", pod.Spec.Containers[0].Name))
			}
			return nil
		},
	})
	set := func(name string, start int32) *appsv1.StatefulSet {
		out := &appsv1.StatefulSet{ObjectMeta: ownedBy(ws)}
		out.Name = name
		if start > 0 {
			out.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: start}
		}
		out.Spec.Template.Labels = map[string]string{v1beta1.LabelWorkspace: "chat"}
		out.Spec.Template.Spec.Containers = []corev1.Container{{Name: "engine"}}
		return out
	}
	leader, workers := set("chat", 0), set("chat-workers", 1)
	guard := &foreign.Guard{Cached: c, Live: c}
	err := guard.Rehearse(t.Context(), writer, foreign.Rehearsal{
		Sets: []*appsv1.StatefulSet{leader, workers}, Replaced: &appsv1.StatefulSet{ObjectMeta: ownedBy(ws)},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ns/chat-0 map[apps.kubernetes.io/pod-index:0 kaito.sh/workspace:chat statefulset.kubernetes.io/pod-name:chat-0] of StatefulSet uid-of-chat, runs engine",
		"ns/chat-workers-1 map[apps.kubernetes.io/pod-index:1 kaito.sh/workspace:chat statefulset.kubernetes.io/pod-name:chat-workers-1] of StatefulSet uid-of-chat, runs engine",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if len(leader.Spec.Template.Labels) != 1 {
		t.Errorf("the rehearsal changed the labels of the template: %v", leader.Spec.Template.Labels)
	}
}
