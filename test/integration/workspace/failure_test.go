// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// failure returns the errors of an API server in trouble, in turn.
func failure(number int) error {
	if number%2 == 0 {
		return apierrors.NewTimeoutError("the request did not complete in time", 1)
	}
	return apierrors.NewInternalError(errors.New("no leader"))
}

// TestFailureOfEveryWrite has the API server refuse every single write of a Workspace's life once,
// while the controller lives on.
func TestFailureOfEveryWrite(t *testing.T) {
	w := enter(t)
	tests := []struct {
		reason string
		change func(*v1beta1.Workspace)
		kind   string
		want   string
		claims int
		least  int
	}{
		{
			reason: "a Workspace that serves", kind: v1beta1.ConditionReady, want: v1beta1.ReasonServing,
			claims: 1, least: 8,
		},
		{
			reason: "a Workspace that cannot be planned", kind: v1beta1.ConditionStalled, want: v1beta1.ReasonUnknownPreset,
			change: func(ws *v1beta1.Workspace) { ws.Inference.Preset.Name = "tiny-chad" },
			least:  3,
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			number := 1
			for ; !t.Failed(); number++ {
				recorder := faults.FailAt(number, failure(number))
				t.Run(fmt.Sprintf("write %d", number), func(t *testing.T) {
					w.begin(t, recorder)
					ws := kaitoForm(w.namespace(t), "chat")
					if test.change != nil {
						test.change(ws)
					}
					w.create(t, ws)
					w.untilCondition(t, ws, test.kind, metav1.ConditionTrue, test.want)
					w.remove(t, ws)
					if got := w.karpenter.ClaimsEver(ws.UID); got != test.claims {
						t.Errorf("NodeClaims ever made: %d, want %d", got, test.claims)
					}
				})
				if !recorder.Failed() {
					break
				}
			}
			t.Logf("each of %d writes failed once", number-1)
			if number-1 < test.least {
				t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
			}
		})
	}
}
