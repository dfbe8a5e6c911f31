// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// TestTurnedDown says when the scheduler's word makes the Workspace leave nodes that it was planned onto: a
// plan that is made anew without any of them being left would be the same, and would be made again and again.
func TestTurnedDown(t *testing.T) {
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
			r, s := New(Config{Clock: testclock.NewFakePassiveClock(now.Time)}), newScope(workspaceObject())
			s.revision = accepted(len(test.nodes))
			s.revision.Plan.NodeNames = test.nodes
			s.statefulSet = &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{UpdateRevision: "hash"}}
			s.statefulSet.Annotations = map[string]string{v1beta1.AnnotationRevision: s.revision.Name}
			s.pods = test.pods
			problem := r.turnedDown(s)
			var left []string
			for _, node := range s.leftNodes {
				left = append(left, node.Name)
			}
			if diff := cmp.Diff(test.left, left); diff != "" || (problem != "") != (len(left) > 0) {
				t.Errorf("problem %q, nodes left (-want +got):\n%s", problem, diff)
			}
		})
	}
}

// TestSilenceOfAll: a node that is not Ready for too long is given up, bought or not, but not where nobody is heard:
// every machine would be bought anew.
func TestSilenceOfAll(t *testing.T) {
	silent := func(name string) *corev1.Node {
		node := someNode(name, corev1.ConditionUnknown, nil)
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
		return node
	}
	heard := someNode("system-2", corev1.ConditionTrue, nil)
	heard.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute))
	tests := []struct {
		reason  string
		others  []client.Object
		lost    time.Time // zero for never
		says    string
		isUnfit bool
	}{
		{"it alone", []client.Object{someNode("system-1", corev1.ConditionTrue, nil)}, now.Add(-50 * time.Minute), "node gpu-1 is not Ready", true},
		{"the others were heard a minute ago for the first time", []client.Object{silent("system-1"), heard}, now.Add(9 * time.Minute), "node gpu-1 is not Ready", false},
		{
			"everybody", []client.Object{silent("system-1")}, time.Time{},
			"node gpu-1 is not Ready; none of the cluster's own nodes is Ready: the control plane does not hear them, and nothing is given up for that", false,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithObjects(test.others...).WithObjects(silent("gpu-1")).Build()
			r := New(Config{Client: kube, Clock: testclock.NewFakePassiveClock(now.Time), Answers: Answers{NodeGrace: 10 * time.Minute}})
			s := newScope(workspaceObject())
			s.revision = accepted(1)
			if err := r.observeNodes(t.Context(), s, []string{"gpu-1"}); err != nil {
				t.Fatal(err)
			}
			machine := capacity.Machine{NodeName: "gpu-1", Initialized: true, NodeSince: now.Add(-time.Hour)}
			why, deadline := r.failing(s, &machine, now.Time)
			if !deadline.Equal(test.lost) || (why == "") != test.lost.IsZero() {
				t.Errorf("its machine is lost at %s (%q), want at %s", deadline, why, test.lost)
			}
			if problem := r.unfit(s, s.node("gpu-1")); (problem != "") != test.isUnfit {
				t.Errorf("as a node that was there before it is left: %q, want so: %v", problem, test.isUnfit)
			}
			machine.InstanceType, machine.CapacityType = s.revision.Plan.InstanceType, s.revision.Plan.CapacityType
			s.machines = []capacity.Machine{machine}
			if got := s.nodeFinding(); got.holds() || got.message != test.says {
				t.Errorf("NodesReady says %q, want %q", got.message, test.says)
			}
			if test.lost.IsZero() && s.requeueAfter != time.Minute {
				t.Errorf("looks again after %s, want a minute: nobody tells that others are heard", s.requeueAfter)
			}
		})
	}
}
