// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A machine bought by a user, and a Workspace for it.
const (
	ownMachine = `apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: ` + ownMachineName + `
  labels: {pool: ` + ownMachineName + `}
spec:
  nodeClassRef: {group: local.modelberth.dev, kind: LocalNodeClass, name: default}
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [Standard_NC16as_T4_v3]}]
  resources: {requests: {nvidia.com/gpu: "1"}}
  taints: [{key: for, value: ` + ownMachineName + `, effect: NoSchedule}]
  expireAfter: Never
`
	ownMachineName = "brought-along"
	ownWorkspace   = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: chat
resource:
  labelSelector:
    matchLabels: {pool: ` + ownMachineName + `}
inference:
  preset:
    name: ` + tinyModel + `
  pod:
    tolerations: [{key: for, operator: Equal, value: ` + ownMachineName + `}]
`
)

// broughtAlong serves on a node that comes after the Workspace does and is not its own: nothing is bought, and
// the machine stays when the Workspace goes.
func broughtAlong(t *testing.T) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "nodeclaim", ownMachineName, "--ignore-not-found"); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	ns := namespace(t)
	apply(t, ns, ownWorkspace)
	apply(t, ns, ownMachine)
	ws := waitReady(t, ns, "chat")
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(nodeClaimKind())
	node := func() string {
		t.Helper()
		if err := local.client.Get(t.Context(), types.NamespacedName{Name: ownMachineName}, claim); err != nil {
			t.Fatal(err)
		}
		name, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
		return name
	}
	if want := []string{node()}; !slices.Equal(ws.Status.WorkerNodes, want) || leader(t, ws).Spec.NodeName != want[0] {
		t.Errorf("it runs on %v and its pod on %q, want %v", ws.Status.WorkerNodes, leader(t, ws).Spec.NodeName, want)
	}
	expectAnswers(t, ws, tinyModel)
	kubectl(t, "delete", "workspace", "chat", "--namespace="+ns, "--timeout="+goneTimeout.String())
	local.ledger.expect(t, ws, 0)
	node()
	if claim.GetDeletionTimestamp() != nil {
		t.Error("the machine was let go with the Workspace, and is not its own")
	}
}
