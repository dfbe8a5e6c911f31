// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/hollow"
	"github.com/modelberth/modelberth/test/localcloud/process"
	"github.com/modelberth/modelberth/test/localcloud/sku"
)

// registerPause is the pause before a node tries again to register.
const registerPause = 200 * time.Millisecond

// Objects runs machines as mere Nodes, with package hollow as their kubelet. The cloud's own machine is a real one
// all the same.
type Objects struct {
	System    cloud.Runner
	Catalogue sku.Catalogue
	// Kube is nil as long as the API server does not answer.
	Kube func() client.Client
}

// Run implements cloud.Runner. Like that of a real machine, the Node stays when
// the machine is gone, for Karpenter to remove.
func (o Objects) Run(ctx context.Context, m cloud.Machine, labels map[string]string, started func(pid int)) error {
	if m.System {
		return o.System.Run(ctx, m, labels, started)
	}
	node := nodeOf(m, o.Catalogue[m.SKU], labels)
	err := process.Await(ctx, "node "+m.Name+" to register", registerPause, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(o.Kube().Create(ctx, node.DeepCopy()))
	})
	if err == nil {
		started(0)
	}
	// Await gives up only when the machine is to end.
	<-ctx.Done()
	return nil
}

// nodeOf returns the Node a kubelet of the machine would register.
func nodeOf(m cloud.Machine, kind sku.SKU, labels map[string]string) *corev1.Node {
	all := map[string]string{
		corev1.LabelHostname:   m.Name,
		corev1.LabelArchStable: karpv1.ArchitectureAmd64,
		corev1.LabelOSStable:   string(corev1.Linux),
	}
	maps.Copy(all, labels)
	capacity := kind.Capacity()
	if m.GPUs > 0 {
		capacity[corev1.ResourceName(m.GPUResource)] = *resource.NewQuantity(int64(m.ShownGPUs()), resource.DecimalSI)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Labels: all, Annotations: map[string]string{hollow.NodeAnnotation: ""},
		},
		Spec:   corev1.NodeSpec{ProviderID: m.ProviderID, Taints: m.Taints},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
	}
}
