// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// longEnough is longer than the controller waits before it asks for a machine again.
const longEnough = 12 * time.Second

// TestStories runs the stories that mostly wait, in parallel under one controller. A story with a script for Karpenter
// has its own instance type.
func TestStories(t *testing.T) {
	stories := []struct {
		reason string
		tell   func(*testing.T, *life)
	}{
		{"a machine that vanished is replaced", vanishedMachine},
		{"nothing is bought for a spec without a plan, and what runs goes on", specWithoutPlan},
		{"a plan that pays otherwise replaces the machine, which serves until then", otherCapacityType},
		{"a Workspace whose finalizer was taken away leaves no machine", orphan},
		{"a Workspace made again at once under its name gets a machine of its own", madeAgain},
		{"labels of the cluster's domains do not reach the machine", labelsOfOthers},
		{"a former ConfigMap that comes back counts, also once it cannot be read", configBackAndForth},
		{"a pod that the API server refuses is not bought for", refusedTemplate},
		{"a Workspace without a plan is suspended like any other", suspendedWithoutPlan},
		{"a Workspace is not ready before its new pods answer", readyWithNewPods},
		{"a machine that the cache does not show yet has not vanished", unseenMachine},
		{"a Workspace whose machine is being bought costs no request", pendingMachine},
		{"a machine is not asked for again before the cache shows the attempt", unseenAttempt},
	}
	life := enter(t).begin(t, faults.NewRecorder())
	for _, story := range stories {
		t.Run(story.reason, func(t *testing.T) {
			t.Parallel()
			story.tell(t, life)
		})
	}
}

// claims returns the NodeClaims of a Workspace in all stages.
func (w *world) claims(t *testing.T, ws *v1beta1.Workspace) []karpv1.NodeClaim {
	t.Helper()
	claims := &karpv1.NodeClaimList{}
	if err := w.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil {
		t.Fatal(err)
	}
	return claims.Items
}

// loseMachine deletes the one NodeClaim of a Workspace behind the controller's back.
func (w *world) loseMachine(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	claims := w.claims(t, ws)
	if len(claims) != 1 {
		t.Fatalf("%d NodeClaims, want 1", len(claims))
	}
	if err := w.client.Delete(t.Context(), &claims[0]); err != nil {
		t.Fatal(err)
	}
}

// untilReleased waits until a Workspace has no NodeClaim.
func (w *world) untilReleased(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	eventually(t, "machines released", func() (bool, string) {
		claims := w.claims(t, ws)
		return len(claims) == 0, fmt.Sprintf("%d NodeClaims", len(claims))
	})
}

// untilServing waits until a Workspace answers for its spec as it is now.
func (w *world) untilServing(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	generation := ws.Generation
	eventually(t, "ready", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		ready := condition(ws, v1beta1.ConditionReady)
		return ready.Status == "True" && ready.ObservedGeneration >= generation, saying(ws)
	})
}

// podUID is the UID of a Workspace's first pod; new pods have another.
func (w *world) podUID(t *testing.T, ws *v1beta1.Workspace) types.UID {
	t.Helper()
	pod := &corev1.Pod{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	return pod.UID
}
