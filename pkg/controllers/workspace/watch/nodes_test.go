// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestWaitsForNodes covers the Workspaces that a new node may help.
func TestWaitsForNodes(t *testing.T) {
	is := func(kind, reason string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	for _, test := range []struct {
		reason     string
		conditions []metav1.Condition
		attempts   []v1beta1.Attempt
		want       bool
	}{
		{"it has no plan yet", nil, nil, true},
		{"no node is good enough", []metav1.Condition{is(v1beta1.ConditionPlanned, "DoesNotFit", metav1.ConditionFalse)}, nil, true},
		{"it has machines", []metav1.Condition{is(v1beta1.ConditionResourceReady, "Ready", metav1.ConditionTrue)}, nil, false},
		{"a machine is on its way", nil, []v1beta1.Attempt{{Number: 1}}, false},
		{
			"it runs on as KAITO's controller left it",
			[]metav1.Condition{is(v1beta1.ConditionPlanned, v1beta1.ReasonFrozen, metav1.ConditionTrue)},
			nil, false,
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{}}
			ws.Status.Conditions, ws.Status.Attempts = test.conditions, test.attempts
			if got := len(waitsForNodes(ws)) > 0; got != test.want {
				t.Errorf("waits: %v, want %v", got, test.want)
			}
		})
	}
}

// TestNodeChanged: a fault of the node counts even after an earlier fault of a GPU that the plan does not need.
func TestNodeChanged(t *testing.T) {
	node := func(kinds ...corev1.NodeConditionType) *corev1.Node {
		out := &corev1.Node{}
		for i, kind := range kinds {
			since := metav1.NewTime(time.Unix(1_700_000_000, 0).Add(time.Duration(i) * time.Hour))
			out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: since, LastHeartbeatTime: metav1.Now(),
			})
		}
		return out
	}
	for _, test := range []struct {
		reason        string
		before, after *corev1.Node
		want          bool
	}{
		{"only the heartbeat", node("GPUMissing"), node("GPUMissing"), false},
		{"a GPU breaks", node(), node("GPUMissing"), true},
		{"then the driver", node("GPUMissing"), node("GPUMissing", "GpuDriverWatch"), true},
		{"the driver recovers", node("GPUMissing", "GpuDriverWatch"), node("GPUMissing"), true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if got := nodeChanged().Update(ctrlevent.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
				t.Errorf("passes: %t, want %t", got, test.want)
			}
		})
	}
}
