// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquisition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/revision"
)

// TestRejected covers the scheduler's rejections. A Workspace leaves its planned nodes only if the next plan would
// differ. Otherwise the same plan would be made again and again.
func TestRejected(t *testing.T) {
	now := metav1.Now()
	on := func(node string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash"}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	leaving := func(node string) corev1.Pod {
		pod := on(node)
		pod.DeletionTimestamp = &now
		return pod
	}
	turnedDown := func(age time.Duration) corev1.Pod {
		pod := on("")
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/2 nodes are available", LastTransitionTime: metav1.NewTime(now.Add(-age)),
		}}
		return pod
	}
	tests := []struct {
		reason string
		nodes  []string
		pods   []corev1.Pod
		left   []string
	}{
		{"the pod is there", []string{"a"}, []corev1.Pod{on("a")}, nil},
		{"what was there before may still go", []string{"a"}, []corev1.Pod{turnedDown(time.Second)}, nil},
		{"it does not fit", []string{"a"}, []corev1.Pod{turnedDown(time.Minute)}, []string{"a"}},
		{"one of two does not fit", []string{"a", "b"}, []corev1.Pod{on("a"), turnedDown(time.Minute)}, []string{"b"}},
		{"a pod of its own is there still", []string{"a"}, []corev1.Pod{leaving("a"), turnedDown(time.Minute)}, nil},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := scope.New(&v1beta1.Workspace{})
			s.Revision = &revision.Revision{Name: "chat-1"}
			s.Revision.Plan.NodeNames = test.nodes
			s.StatefulSet = &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{UpdateRevision: "hash"}}
			s.StatefulSet.Annotations = map[string]string{v1beta1.AnnotationRevision: s.Revision.Name}
			s.Pods = test.pods
			problem, found := rejected(s, now.Time)
			var left []string
			for _, node := range found {
				left = append(left, node.Name)
			}
			if diff := cmp.Diff(test.left, left); diff != "" || (problem != "") != (len(left) > 0) {
				t.Errorf("problem %q, nodes left (-want +got):\n%s", problem, diff)
			}
		})
	}
}
