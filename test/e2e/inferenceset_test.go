// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
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

// failedTemplateOfASet gives the engine of a set a file that does not exist: one replica crashes, the other one serves, and
// both return to the template that works.
func failedTemplateOfASet(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, strings.Replace(pair, "spec:\n", "spec:\n  updateStrategy: {rollingUpdate: {rollback: {progressDeadline: 10m}}}\n", 1))
	service := types.NamespacedName{Namespace: ns, Name: "pair"}
	waitSet(t, service)
	kubectl(t, "patch", "inferenceset/pair", "--namespace="+ns, "--type=merge",
		`--patch={"spec":{"template":{"inference":{"engine":{"args":{"chat-template-file":"/no/such/file"}}}}}}`)
	start := time.Now()
	kubectl(t, "wait", "--for=condition=Stalled", "inferenceset/pair", "--namespace="+ns, "--timeout="+readyTimeout.String())
	expectAnswersOf(t, service, service.Name)
	kubectl(t, "wait", "--for=jsonpath={.status.readyReplicas}=2", "inferenceset/pair", "--namespace="+ns, "--timeout="+readyTimeout.String())
	elapsed(t, "a template with a missing file, until both replicas have the previous one", start)
	for _, ws := range replicasOf(t, service) {
		if ws.Inference.Engine != nil {
			t.Errorf("Workspace %s still has the engine settings %+v", ws.Name, ws.Inference.Engine)
		}
	}
	message := kubectl(t, "get", "inferenceset/pair", "--namespace="+ns, `--output=jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	expectText(t, message, "2/2 replicas are ready", "spec.template failed", "/no/such/file")
	kubectl(t, "delete", "inferenceset/pair", "--namespace="+ns, "--timeout="+goneTimeout.String())
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
