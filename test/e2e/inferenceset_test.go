// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// pair is an InferenceSet of two small models.
const pair = `apiVersion: kaito.sh/v1beta1
kind: InferenceSet
metadata: {name: pair}
spec:
  replicas: 2
  template:
    inference:
      preset: {name: tiny-chat}
`

// replicasBehindOneService serves two replicas by the set's name, and one after the set is scaled down. Each replica buys
// one machine, and deleting the set releases all.
func replicasBehindOneService(t *testing.T) {
	ns, start := namespace(t), time.Now()
	apply(t, ns, pair)
	service := types.NamespacedName{Namespace: ns, Name: "pair"}
	waitSet(t, service)
	elapsed(t, "an InferenceSet of two replicas, from manifest to ready", start)
	replicas := replicasOf(t, service)
	if len(replicas) != 2 {
		t.Fatalf("%d Workspaces, want 2: %v", len(replicas), replicas)
	}
	for i := range replicas {
		local.ledger.expect(t, &replicas[i], 1)
	}
	expectAnswersOf(t, service, service.Name)

	kubectl(t, "scale", "inferenceset/pair", "--replicas=1", "--namespace="+ns)
	waitFor(t, "one replica to go with its machine", goneTimeout, func(ctx context.Context) (bool, error) {
		return len(replicasOf(t, service)) == 1, ctx.Err()
	})
	waitSet(t, service)
	expectAnswersOf(t, service, service.Name)

	kubectl(t, "delete", "inferenceset/pair", "--namespace="+ns, "--timeout="+goneTimeout.String())
	if left := replicasOf(t, service); len(left) > 0 {
		t.Errorf("the set is gone and %d Workspaces are not", len(left))
	}
	for i := range replicas {
		left, err := claimsOf(t.Context(), replicas[i].UID)
		if err != nil || len(left) > 0 {
			t.Errorf("machines are left of Workspace %s: %v, %v", replicas[i].Name, left, err)
		}
	}
}

// waitSet waits as users wait.
func waitSet(t *testing.T, set types.NamespacedName) {
	t.Helper()
	kubectl(t, "wait", "--for=condition=Ready", "inferenceset/"+set.Name, "--namespace="+set.Namespace, "--timeout="+readyTimeout.String())
}

// replicasOf returns the Workspaces of a set.
func replicasOf(t *testing.T, set types.NamespacedName) []v1beta1.Workspace {
	t.Helper()
	list := &v1beta1.WorkspaceList{}
	labels := client.MatchingLabels{v1beta1.LabelInferenceSet: set.Name}
	if err := local.client.List(t.Context(), list, client.InNamespace(set.Namespace), labels); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
