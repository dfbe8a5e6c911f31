// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestWaitsForNodes finds the Workspaces that a new node may help.
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
