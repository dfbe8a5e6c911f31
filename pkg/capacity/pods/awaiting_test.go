// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// TestAwaiting finds the Workspaces that wait for a new node. The last event about a pod may be older than the node.
func TestAwaiting(t *testing.T) {
	set := setOf(2, 1)
	aimed := &corev1.PodTemplateSpec{}
	p, _ := newProvisioner(t)
	if err := p.PinPods(requestOf(v1beta1.CapacityOnDemand), aimed); err != nil {
		t.Fatal(err)
	}
	pod := func(node string) *corev1.Pod {
		out := podOf(set, 2, 0, node)
		out.Spec.Affinity = aimed.Spec.Affinity
		return out
	}
	node := func(gpus string, age time.Duration, change ...func(*corev1.Node)) *corev1.Node {
		out := nodeOf(gpus, age)
		for _, c := range change {
			c(out)
		}
		return out
	}
	bought := func(n *corev1.Node) { n.Labels[v1beta1.LabelWorkspaceUID] = "uid-2" }
	ordinary := func(n *corev1.Node) { n.Labels[corev1.LabelInstanceTypeStable] = "Standard_D4s_v5" }
	const later = 2 * time.Minute
	for _, test := range []struct {
		reason string
		pod    *corev1.Pod
		news   client.Object
		want   bool
	}{
		{"it has come without its GPUs", pod(""), node("0", later), true},
		{"its GPUs show: the scheduler tells the pod", pod(""), node("1", later), false},
		{"it was there before", pod(""), node("0", 0), false},
		{"it was bought for a Workspace", pod(""), node("0", later, bought), false},
		{"it is no machine for the pod", pod(""), node("0", later, ordinary), false},
		{"it goes", pod(""), leave(node("0", later)), false},
		{"the pod has its node", pod("gpu-2"), node("0", later), false},
		{"it is no node", pod(""), pod(""), false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			p, _ := newProvisioner(t, set, test.pod)
			var want []types.NamespacedName
			if test.want {
				want = []types.NamespacedName{{Namespace: "team-a", Name: "chat"}}
			}
			if diff := cmp.Diff(want, p.Awaiting(t.Context(), test.news)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
