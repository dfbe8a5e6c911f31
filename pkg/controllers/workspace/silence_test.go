// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
)

func someNode(name string, ready corev1.ConditionStatus, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if ready != "" {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	return node
}

// TestSilenceOfAll: a node that is not Ready for too long counts as lost, whether bought or not. But if none of the
// cluster's own nodes is Ready, no node counts, because every machine would be bought again.
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
		{
			"it alone",
			[]client.Object{someNode("system-1", corev1.ConditionTrue, nil)},
			now.Add(-50 * time.Minute),
			"node gpu-1 is not Ready", true,
		},
		{
			"the others were heard a minute ago for the first time",
			[]client.Object{silent("system-1"), heard},
			now.Add(9 * time.Minute),
			"node gpu-1 is not Ready", false,
		},
		{
			"everybody",
			[]client.Object{silent("system-1")},
			time.Time{},
			"node gpu-1 is not Ready; none of the cluster's own nodes is Ready: the control plane has lost contact with their kubelets, so no machine is replaced", false,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithObjects(test.others...).WithObjects(silent("gpu-1")).Build()
			r := New(Config{Client: kube, Clock: testclock.NewFakePassiveClock(now.Time), Acquisition: acquire.Settings{NodeGrace: 10 * time.Minute}})
			s := scope.New(workspaceObject())
			s.Revision = accepted(1)
			if err := r.observer.ObserveNodes(t.Context(), s, []string{"gpu-1"}); err != nil {
				t.Fatal(err)
			}
			machine := capacity.Machine{NodeName: "gpu-1", Initialized: true, NodeSince: now.Add(-time.Hour)}
			nodes := s.MachineNodes(r.Acquisition.NodeGrace)
			if fault := nodes.Fault(&machine, now.Time); !fault.Deadline.Equal(test.lost) || (fault.Message == "") != test.lost.IsZero() {
				t.Errorf("its machine is lost at %s (%q), want at %s", fault.Deadline, fault.Message, test.lost)
			}
			if problem := s.Unfit(s.Node("gpu-1"), now.Time, r.Acquisition.NodeGrace); (problem != "") != test.isUnfit {
				t.Errorf("as a node that was there before it is left: %q, want so: %v", problem, test.isUnfit)
			}
			machine.InstanceType, machine.CapacityType = s.Revision.Plan.InstanceType, s.Revision.Plan.CapacityType
			s.Machines = []capacity.Machine{machine}
			after, _ := s.Status(nil, now)
			if got := meta.FindStatusCondition(after.Conditions, v1beta1.ConditionNodesReady); got.Status != metav1.ConditionFalse || got.Message != test.says {
				t.Errorf("NodesReady says %q, want %q", got.Message, test.says)
			}
			if test.lost.IsZero() && s.RequeueAfter != time.Minute {
				t.Errorf("looks again after %s, want a minute: nobody tells that others are heard", s.RequeueAfter)
			}
		})
	}
}
