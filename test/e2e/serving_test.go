// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// tinyModel is the model of the local cloud, as its Workspaces answer to.
const tinyModel = "tiny-chat"

// TestServing tells the main story with two Workspaces at once: one as KAITO's users write it, and one
// that leaves the machine to the planner.
func TestServing(t *testing.T) {
	ns := namespace(t)
	start := time.Now()
	kubectl(t, "apply", "--namespace="+ns, "--filename="+example("kaito-form.yaml"), "--filename="+example("demo.yaml"))
	kaito := waitReady(t, ns, "workspace-tiny-chat")
	planned := waitReady(t, ns, "demo")
	elapsed(t, "two Workspaces from manifest to ready", start)
	stages(t, kaito)
	stages(t, planned)

	t.Run("columns", func(t *testing.T) { expectColumns(t, ns, planned) })
	t.Run("the machine is the one that the manifest names", func(t *testing.T) {
		expectMachine(t, kaito, "Standard_NC24ads_A100_v4", map[string]string{"apps": tinyModel})
	})
	t.Run("the machine is the one that the plan names", func(t *testing.T) {
		if planned.Status.Plan == nil || planned.Status.Plan.HourlyPrice == "" {
			t.Fatalf("the plan has no price: %+v", planned.Status.Plan)
		}
		expectMachine(t, planned, planned.Status.Plan.InstanceType, nil)
	})
	t.Run("answers", func(t *testing.T) {
		expectAnswers(t, kaito, tinyModel)
		expectAnswers(t, planned, tinyModel)
	})
	t.Run("restart of the controller", func(t *testing.T) { expectSettled(t, kaito, planned) })
	t.Run("weights", func(t *testing.T) { expectWeightFaults(t, planned) })
	t.Run("deletion", func(t *testing.T) {
		start := time.Now()
		kubectl(t, "delete", "workspace", "--namespace="+ns, kaito.Name, planned.Name, "--timeout="+goneTimeout.String())
		expectGone(t, kaito)
		expectGone(t, planned)
		elapsed(t, "deletion of two Workspaces", start)
	})
}

// expectColumns checks the columns of the contract for two answering Workspaces: one without a machine type in its
// spec, and one with it.
func expectColumns(t *testing.T, ns string, planned *v1beta1.Workspace) {
	t.Helper()
	rows := strings.Split(strings.TrimSpace(kubectl(t, "get", "workspace", "--namespace="+ns)), "\n")
	var got [][]string
	for _, row := range rows {
		fields := strings.Fields(row)
		got = append(got, fields[:max(0, len(fields)-1)]) // without the age
	}
	want := [][]string{
		{"NAME", "INSTANCE", "RESOURCEREADY", "INFERENCEREADY", "JOBSTARTED", "WORKSPACESUCCEEDED", "TARGETNODECOUNT", "STATE"},
		// An empty column vanishes in the split: no job starts.
		{"demo", planned.Status.Plan.InstanceType, "True", "True", "True", "1", "Ready"},
		{"workspace-tiny-chat", "Standard_NC24ads_A100_v4", "True", "True", "True", "1", "Ready"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubectl get workspace shows something else (-want +got):\n%s", diff)
	}
	for _, name := range []string{"wk", "wks", "workspaces"} {
		kubectl(t, "get", name, "--namespace="+ns)
	}
}

// expectMachine checks that exactly one machine of that type was bought, and that its node is the Workspace's own.
func expectMachine(t *testing.T, ws *v1beta1.Workspace, instanceType string, labels map[string]string) {
	t.Helper()
	local.ledger.expect(t, ws, 1)
	if len(ws.Status.WorkerNodes) != 1 {
		t.Fatalf("status.workerNodes is %v, want one node", ws.Status.WorkerNodes)
	}
	node := &corev1.Node{}
	if err := local.client.Get(t.Context(), types.NamespacedName{Name: ws.Status.WorkerNodes[0]}, node); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		corev1.LabelInstanceTypeStable:         instanceType,
		v1beta1.LabelWorkspaceUID:              string(ws.UID),
		v1beta1.LabelMachineWorkspaceName:      ws.Name,
		v1beta1.LabelMachineWorkspaceNamespace: ws.Namespace,
	}
	maps.Copy(want, labels)
	got := map[string]string{}
	for key := range want {
		got[key] = node.Labels[key]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels of node %s (-want +got):\n%s", node.Name, diff)
	}
	for _, taint := range []corev1.Taint{
		{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue, Effect: corev1.TaintEffectNoSchedule},
		{Key: v1beta1.TaintKeyWorkspace, Value: string(ws.UID), Effect: corev1.TaintEffectNoSchedule},
	} {
		if !slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&taint) && have.Value == taint.Value }) {
			t.Errorf("node %s has the taints %v, want %v among them", node.Name, node.Spec.Taints, taint)
		}
	}
	pods := &corev1.PodList{}
	err := local.client.List(t.Context(), pods, client.InNamespace(ws.Namespace), client.MatchingLabels{v1beta1.LabelWorkspace: ws.Name})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != node.Name {
			t.Errorf("pod %s runs on %q, want it on %s, the machine that was bought for it", pod.Name, pod.Spec.NodeName, node.Name)
		}
	}
	if len(pods.Items) != 1 {
		t.Errorf("there are %d pods of Workspace %s, want 1", len(pods.Items), ws.Name)
	}
}

// expectGone checks that nothing of a deleted Workspace is left.
func expectGone(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	claims, err := claimsOf(t.Context(), ws.UID)
	if err != nil || len(claims) > 0 {
		t.Errorf("Workspace %s is gone and its NodeClaims are not: %v (%v)", ws.Name, claims, err)
	}
	meta := metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name}
	// The garbage collector takes these.
	waitGone(t, &corev1.Service{ObjectMeta: meta})
	waitGone(t, &appsv1.StatefulSet{ObjectMeta: meta})
	waitFor(t, "the ControllerRevisions of "+ws.Name+" to be gone", seenTimeout, func(ctx context.Context) (bool, error) {
		list := &appsv1.ControllerRevisionList{}
		err := local.client.List(ctx, list, client.InNamespace(ws.Namespace), client.MatchingLabels{v1beta1.LabelRevisionOwner: ws.Name})
		return err == nil && len(list.Items) == 0, err
	})
	for _, node := range ws.Status.WorkerNodes {
		waitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	}
}

// expectPlanOnly checks that a Workspace is planned and buys nothing.
func expectPlanOnly(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if ws.Status.Plan == nil || ws.Status.Plan.InstanceType == "" || ws.Status.Plan.Summary == "" {
		t.Errorf("Workspace %s has no plan to read: %+v", ws.Name, ws.Status.Plan)
	}
	claims, err := claimsOf(t.Context(), ws.UID)
	if err != nil || len(claims) > 0 {
		t.Errorf("suspended Workspace %s holds NodeClaims: %v (%v)", ws.Name, claims, err)
	}
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }
