// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/nodepool"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// said returns an event from Karpenter about an object, this many seconds after the creation of the pool.
func said(kind, namespace, name string, uid types.UID, seconds int, reason, message string) *corev1.Event {
	at := metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: string(uid) + at.Format("150405"), CreationTimestamp: at},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name, UID: uid},
		Reason:         reason, Message: message, FirstTimestamp: at, LastTimestamp: at,
	}
}

func podOn(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.Namespace, Name: "chat-0", UID: "pod", Labels: map[string]string{v1beta1.LabelWorkspace: owner.Name},
		},
		Spec: corev1.PodSpec{NodeName: node},
	}
}

// TestKarpenterEvents has Karpenter's events about a dynamic pool and its pod. They explain a missing machine.
func TestKarpenterEvents(t *testing.T) {
	const (
		failed   = "Failed to schedule pod, "
		hidden   = "NodePool requirements filtered out all compatible available instance types"
		tooSmall = `no instance type has enough resources, requirements=karpenter.sh/nodepool In [NAME], resources={"cpu":"8"}`
		label    = `incompatible requirements, label "modelberth.dev/workspace-uid" does not have known values`
		taint    = "did not tolerate taint (taint=team=research:NoSchedule)"
		volume   = "failed to validate pvc, pvc with immediate volume binding mode must be bound (PersistentVolumeClaim=team-a/weights)"
		nobody   = "Karpenter has not created a NodeClaim for NodePool NAME yet"
	)
	pool := made(t, false, request(1, "A"))
	name := func(text string) string { return strings.ReplaceAll(text, "NAME", pool.Name) }
	ofPool := func(seconds int, message string) client.Object {
		return said("NodePool", metav1.NamespaceDefault, pool.Name, pool.UID, seconds, "NoCompatibleInstanceTypes", message)
	}
	ofPod := func(seconds int, message string) client.Object {
		return said("Pod", owner.Namespace, "chat-0", "pod", seconds, "FailedScheduling", failed+name(message))
	}
	tests := []struct {
		reason        string
		change        func(*karpv1.NodePool)
		node          string
		events        []client.Object
		said, message string
	}{
		{reason: "nothing was said", said: "NoNodeClaim", message: nobody},
		{reason: "the provider hides the machine type", events: []client.Object{ofPool(2, hidden)}, said: "NoCompatibleInstanceTypes", message: hidden},
		{
			reason: "the sentence about this pool counts, not those about others",
			events: []client.Object{ofPod(2, label+"; "+tooSmall+"; "+taint+"; no instance type met all requirements, requirements=karpenter.sh/nodepool In [NAME-2], resources={}")},
			said:   "FailedScheduling", message: tooSmall,
		},
		{
			reason: "as earlier versions name it",
			events: []client.Object{ofPod(2, `incompatible with nodepool "default", daemonset overhead={}, `+label+`; incompatible with nodepool "NAME", daemonset overhead={}, no instance type has enough resources`)},
			said:   "FailedScheduling", message: `incompatible with nodepool "NAME", daemonset overhead={}, no instance type has enough resources`,
		},
		{reason: "what is wrong with the pod itself", events: []client.Object{ofPod(2, volume)}, said: "FailedScheduling", message: volume},
		{
			reason: "similar events were combined",
			events: []client.Object{said("Pod", owner.Namespace, "chat-0", "pod", 2, "FailedScheduling", "(combined from similar events): "+failed+volume)},
			said:   "FailedScheduling", message: volume,
		},
		{reason: "no other pool will do, which says nothing", events: []client.Object{ofPod(2, label+"; "+taint)}, said: "NoNodeClaim", message: nobody},
		{
			reason: "nor do limits: a machine is on its way",
			events: []client.Object{ofPod(2, "node limits have been exhausted for nodepool (NodePool=NAME); all available instance types exceed limits for nodepool (NodePool=default)")},
			said:   "NoNodeClaim", message: nobody,
		},
		{
			reason: "nor that there is no pool at all, of which another event tells", said: "NoNodeClaim", message: nobody,
			events: []client.Object{ofPod(2, "nodepool requirements filtered out all available instance types")},
		},
		{reason: "what was said of the former pool is over", events: []client.Object{ofPod(-1, volume)}, said: "NoNodeClaim", message: nobody},
		{reason: "the newest counts", events: []client.Object{ofPod(3, volume), ofPool(2, hidden)}, said: "FailedScheduling", message: volume},
		{reason: "of a pod that has a node nothing counts", node: "node-1", events: []client.Object{ofPod(2, volume)}, said: "NoNodeClaim", message: nobody},
		{
			reason: "a pool that is not ready is passed over", events: []client.Object{ofPool(2, hidden)},
			change: func(pool *karpv1.NodePool) {
				pool.StatusConditions().SetFalse(karpv1.ConditionTypeNodeClassReady, "NodeClassNotReady", "no subnet")
			},
			said: "NodePoolNotReady", message: "NodePool NAME is not ready: NodeClassReady: no subnet",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			pool := pool.DeepCopy()
			for _, condition := range []string{
				karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady, karpv1.ConditionTypeNodeRegistrationHealthy,
			} {
				pool.StatusConditions().SetTrue(condition)
			}
			if test.change != nil {
				test.change(pool)
			}
			c := newClient(t, append(test.events, pool, podOn(test.node))...)
			machines, err := provisioner(c, c, false).Observe(t.Context(), owner, nil, "nvidia.com/gpu")
			if err != nil || len(machines) != 1 {
				t.Fatalf("machines %v, error %v", machines, err)
			}
			got := machines[0]
			if got.Words.Launched.Reason != test.said || got.Message != name(test.message) || got.Words.Launched.Message != got.Message {
				t.Errorf("%s: %q (%q), want %s: %q", got.Words.Launched.Reason, got.Message, got.Words.Launched.Message, test.said, name(test.message))
			}
			if want := strings.TrimPrefix(test.said, "NoNodeClaim"); got.Reason != want {
				t.Errorf("the reason is %q, want %q: what is no answer is told without one", got.Reason, want)
			}
			if got.Words.Launched.Status != refusal.StatusUnknown {
				t.Errorf("Launched is %s, want that nobody knows", got.Words.Launched.Status)
			}
		})
	}
}

// TestDeaf: without a watch on events, nothing may read them from a cache, because that would start a watch.
func TestDeaf(t *testing.T) {
	pool := made(t, false, request(1, "A"))
	event := said("NodePool", metav1.NamespaceDefault, pool.Name, pool.UID, 2, "NoCompatibleInstanceTypes", "hidden")
	for reason, of := range map[string]func(c client.Client) *nodepool.Provisioner{
		"static": func(c client.Client) *nodepool.Provisioner { return provisioner(c, c, true) },
		"another": func(c client.Client) *nodepool.Provisioner {
			return nodepool.NewRetired(c, c, nodeclaim.New(c, c, class))
		},
	} {
		t.Run(reason, func(t *testing.T) {
			machines, err := of(newClient(t, pool, event)).Observe(t.Context(), owner, nil, "nvidia.com/gpu")
			if err != nil || len(machines) != 1 || machines[0].Words.Launched.Reason != "NoNodeClaim" {
				t.Errorf("machines %+v, error %v; want one of which nothing was heard", machines, err)
			}
		})
	}
}

// TestWakes: an event about the pool or about a pod wakes their Workspace.
func TestWakes(t *testing.T) {
	pool := made(t, false, request(1, "A"))
	c := newClient(t, pool, podOn(""))
	chat := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	tests := []struct {
		reason string
		event  client.Object
		want   types.NamespacedName
	}{
		{"the pool", said("NodePool", "", pool.Name, pool.UID, 0, "", ""), chat},
		{"a pod", said("Pod", owner.Namespace, "chat-0", "pod", 0, "", ""), chat},
		{"somebody else's pod", said("Pod", owner.Namespace, "web-0", "web", 0, "", ""), types.NamespacedName{}},
		{"something else", said("Node", "", "chat-0", "node", 0, "", ""), types.NamespacedName{}},
		{"no event", &corev1.Pod{}, types.NamespacedName{}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := provisioner(c, c, false).WorkspaceOf(t.Context(), test.event)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
