// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// suspendAndTemplate suspends, resumes and suspends a Workspace again, next to one with its own pod.
func suspendAndTemplate(t *testing.T) {
	ns := namespace(t)
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("suspended.yaml"), "--filename="+example("template.yaml"))

	kubectl(t, "wait", "--for=condition=Planned", "workspace/planned", "--namespace="+ns, "--timeout=30s")
	ws := workspace(t, ns, "planned")
	waitCondition(t, keyOf(ws), v1beta1.ConditionReady, v1beta1.ReasonSuspended, seenTimeout)
	expectPlanOnly(t, workspace(t, ns, "planned"))
	local.ledger.expect(t, ws, 0)

	kubectl(t, "patch", "workspace", "planned", "--namespace="+ns, "--type=merge", `--patch={"suspend": false}`)
	ws = waitReady(t, ns, "planned")
	expectMachine(t, ws, ws.Status.Plan.InstanceType, nil)
	template := waitReady(t, ns, "template")
	t.Run("the template answers", func(t *testing.T) {
		expectMachine(t, template, "Standard_NC24ads_A100_v4", nil)
		expectAnswers(t, template, "my-model")
	})

	kubectl(t, "patch", "workspace", "planned", "--namespace="+ns, "--type=merge", `--patch={"suspend": true}`)
	waitFor(t, "the machines of the suspended Workspace to be gone", goneTimeout, func(ctx context.Context) (bool, error) {
		claims, err := claimsOf(ctx, ws.UID)
		return err == nil && len(claims) == 0, err
	})
	waitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ws.Status.WorkerNodes[0]}})
	waitCondition(t, keyOf(ws), v1beta1.ConditionReady, v1beta1.ReasonSuspended, seenTimeout)
	expectPlanOnly(t, workspace(t, ns, "planned"))
	local.ledger.expect(t, ws, 1)
	// Its name stays, so that clients and routes need no change.
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "planned"}, &corev1.Service{}); err != nil {
		t.Errorf("the Service of the suspended Workspace: %v", err)
	}
}
