// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// shardedModel is planned as if it were too large for one machine.
const shardedModel = "tiny-chat-sharded"

// Workspaces that several machines serve together: by llama.cpp over its RPC servers, for real, and by the
// stand-in for vLLM, with a stage on each.
const (
	rpcWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: sharded
resource:
  instanceType: Standard_NC24ads_A100_v4
inference:
  preset:
    name: ` + shardedModel + `
  objectives:
    maxModelLen: 8192
    concurrency: 4
  pod:
    cpu: 100m
    memory: 128Mi
`
	stagesWorkspace = `apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: stages
resource:
  instanceType: Standard_NC48ads_A100_v4
inference:
  preset:
    name: ` + vllmModel + `
  engine:
    args:
      tensor-parallel-size: "2"
      pipeline-parallel-size: "%d"
  pod:
    cpu: 100m
    memory: 128Mi
`
)

// Names of the engines' processes as the kernel keeps them, in 15 characters.
const (
	rpcProcess  = "ggml-rpc-server"
	vllmProcess = "vllm"
)

// recoveryTimeout bounds the way from a member's end to an answer of the next group.
const recoveryTimeout = 2 * time.Minute

func TestLlamaCppOverTwoNodes(t *testing.T) {
	ns := namespace(t)
	start := time.Now()
	apply(t, ns, rpcWorkspace)
	ws := waitReady(t, ns, "sharded")
	elapsed(t, "llama.cpp over two nodes from manifest to ready", start)
	stages(t, ws)
	expectMachines(t, ws, 2)
	expectAnswers(t, ws, shardedModel)
	expectRecovery(t, ws, shardedModel, 1, rpcProcess)
}

// TestGroupWaitsForEnforcedPolicies: the network of the local cloud ignores NetworkPolicies, so the controller reaches
// the members, and their engines do not start before the administrator allows it.
func TestGroupWaitsForEnforcedPolicies(t *testing.T) {
	configure(t, "multiNode=RequireEnforcement")
	ns := namespace(t)
	apply(t, ns, rpcWorkspace)
	key := types.NamespacedName{Namespace: ns, Name: "sharded"}
	ready := waitCondition(t, key, v1beta1.ConditionReady, v1beta1.ReasonGroupNotIsolated, readyTimeout)
	expectText(t, ready.Message, "reached port 8090 of pod sharded-", "multiNode")
	for rank := range 2 {
		pod := &corev1.Pod{}
		if err := local.client.Get(t.Context(), memberOf(workspace(t, ns, "sharded"), rank), pod); err != nil {
			t.Fatal(err)
		}
		for _, engine := range pod.Status.ContainerStatuses {
			if engine.State.Running != nil || engine.RestartCount > 0 {
				t.Errorf("the engine of %s has been started: %+v", pod.Name, engine.State)
			}
		}
	}
	configure(t, "multiNode=Allow")
	expectAnswers(t, waitReady(t, ns, "sharded"), shardedModel)
}

// TestVLLMOverNodes cuts each layer over the two GPUs of a machine, and the layers over machines.
func TestVLLMOverNodes(t *testing.T) {
	for _, tc := range []struct {
		nodes int
		// killed are the ranks whose engines end, one after the other.
		killed []int
	}{
		{2, []int{1, 0}},
		{4, []int{0, 3}},
	} {
		t.Run(fmt.Sprintf("%d nodes", tc.nodes), func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			start := time.Now()
			apply(t, ns, fmt.Sprintf(stagesWorkspace, tc.nodes))
			ws := waitReady(t, ns, "stages")
			elapsed(t, fmt.Sprintf("vLLM over %d nodes from manifest to ready", tc.nodes), start)
			stages(t, ws)
			expectMachines(t, ws, tc.nodes)
			expectAnswers(t, ws, vllmModel)
			for _, rank := range tc.killed {
				expectRecovery(t, ws, vllmModel, rank, vllmProcess)
			}
		})
	}
}

// expectMachines checks that so many machines were bought, each for one member.
func expectMachines(t *testing.T, ws *v1beta1.Workspace, count int) {
	t.Helper()
	local.ledger.expect(t, ws, count)
	expectMembers(t, ws, count)
}

// expectMembers checks that each member has a node of its own, all in one zone.
func expectMembers(t *testing.T, ws *v1beta1.Workspace, count int) {
	t.Helper()
	nodes := map[string]bool{}
	zones := map[string]bool{}
	for rank := range count {
		pod := &corev1.Pod{}
		if err := local.client.Get(t.Context(), memberOf(ws, rank), pod); err != nil {
			t.Fatal(err)
		}
		node := &corev1.Node{}
		if err := local.client.Get(t.Context(), types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		nodes[node.Name], zones[node.Labels[corev1.LabelTopologyZone]] = true, true
	}
	if len(nodes) != count || len(zones) != 1 {
		t.Errorf("%d members on the nodes %v in the zones %v, want a node for each in one zone", count, nodes, zones)
	}
}

// memberOf is the pod of a rank.
func memberOf(ws *v1beta1.Workspace, rank int) types.NamespacedName {
	name := ws.Name + "-0"
	if rank > 0 {
		name = fmt.Sprintf("%s-worker-%d", ws.Name, rank)
	}
	return types.NamespacedName{Namespace: ws.Namespace, Name: name}
}

// expectRecovery kills the engine of one member, as the kernel would, and waits until all members are
// others and the model answers again, without a hand.
func expectRecovery(t *testing.T, ws *v1beta1.Workspace, model string, rank int, process string) {
	t.Helper()
	before := memberUIDs(t, ws)
	if err := kill9(before[rank], process); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var replaced, ready time.Duration
	waitFor(t, fmt.Sprintf("another group after the end of rank %d", rank), recoveryTimeout, func(ctx context.Context) (bool, error) {
		isReady := true
		for other, uid := range before {
			pod := &corev1.Pod{}
			if err := local.client.Get(ctx, memberOf(ws, other), pod); err != nil || pod.UID == uid {
				return false, err
			}
			isReady = isReady && isPodReady(pod)
		}
		if replaced == 0 {
			replaced = time.Since(start)
		}
		ready = time.Since(start)
		return isReady, nil
	})
	figure(t, fmt.Sprintf("%s: rank %d killed to all pods replaced", t.Name(), rank), replaced)
	figure(t, fmt.Sprintf("%s: rank %d killed to the next group ready", t.Name(), rank), ready)
	waitReady(t, ws.Namespace, ws.Name)
	expectAnswers(t, ws, model)
	elapsed(t, fmt.Sprintf("%s: rank %d killed to an answer", t.Name(), rank), start)
	events := kubectl(t, "get", "events", "--namespace="+ws.Namespace, "--field-selector=reason="+v1beta1.ReasonGroupReplaced)
	t.Logf("what was said of it:\n%s", events)
}

func memberUIDs(t *testing.T, ws *v1beta1.Workspace) []types.UID {
	t.Helper()
	uids := make([]types.UID, ws.Status.TargetNodeCount)
	for rank := range uids {
		pod := &corev1.Pod{}
		if err := local.client.Get(t.Context(), memberOf(ws, rank), pod); err != nil {
			t.Fatal(err)
		}
		uids[rank] = pod.UID
	}
	return uids
}

func isPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
