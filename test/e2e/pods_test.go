// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// A machine added for waiting pods.
const (
	awaitedType = "Standard_NC16as_T4_v3"
	awaitedName = "brought-for-pods"
	awaited     = `apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: ` + awaitedName + `
spec:
  nodeClassRef: {group: local.modelberth.dev, kind: LocalNodeClass, name: default}
  requirements:
  - {key: node.kubernetes.io/instance-type, operator: In, values: [` + awaitedType + `]}
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  resources: {requests: {nvidia.com/gpu: "1"}}
  taints: [{key: sku, value: gpu, effect: NoSchedule}]
  expireAfter: Never
`
)

// TestPodsWait has an administrator let pods wait for machines: nothing is bought. Cluster autoscaler, for
// which the test speaks, turns the first machine type down, and somebody brings one of the next.
func TestPodsWait(t *testing.T) {
	const full = "Standard_NC4as_T4_v3"
	configure(t, "capacity.backend=pods")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
		defer cancel()
		if _, err := execute(ctx, local.kubectl, "delete", "nodeclaim", awaitedName, "--ignore-not-found"); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	ns := namespace(t)
	start := time.Now()
	apply(t, ns, wish("chat", v1beta1.CapacityOnDemand, full, awaitedType))
	turnDown(t, ns, full, "pod didn't trigger scale-up: 1 max node group size reached")
	waitingPod(t, ns, awaitedType)
	elapsed(t, "from a Workspace to pods that wait for the second machine type", start)
	apply(t, ns, awaited)
	ws := waitAttempts(t, ns, "chat", full+" Quota", awaitedType)
	waitReady(t, ns, "chat")
	expectAnswers(t, ws, tinyModel)
	local.ledger.expect(t, ws, 0)
	expectText(t, kubectl(t, "describe", "workspace", "chat", "--namespace="+ns), v1beta1.ReasonQuota, "max node group size reached", "FallingBack")
	kubectl(t, "delete", "workspace", "chat", "--namespace="+ns, "--timeout="+goneTimeout.String())
	if err := local.client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "chat-0"}, &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the pod of the Workspace that is gone: %v", err)
	}
}

// waitingPod waits for the Workspace's pod to ask for a machine type.
func waitingPod(t *testing.T, ns, instanceType string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	waitFor(t, "the pod to wait for "+instanceType, readyTimeout, func(ctx context.Context) (bool, error) {
		err := local.client.Get(ctx, types.NamespacedName{Namespace: ns, Name: "chat-0"}, pod)
		if err != nil || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
			return false, client.IgnoreNotFound(err)
		}
		required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
			return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return r.Key == corev1.LabelInstanceTypeStable && slices.Equal(r.Values, []string{instanceType})
			})
		}), nil
	})
	return pod
}

// turnDown publishes cluster autoscaler's event for a pod with a machine type.
func turnDown(t *testing.T, ns, instanceType, message string) {
	t.Helper()
	pod := waitingPod(t, ns, instanceType)
	now := metav1.Now()
	err := local.client.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: pod.Name, UID: pod.UID},
		Reason:         "NotTriggerScaleUp", Message: message, Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "cluster-autoscaler"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
}
