// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/test/localcloud/hollow"
)

// others adds nodes without GPUs to the cluster, each with a pod, as users without models have them.
func (b *Bench) others(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	b.settings.Say("%d other nodes with a pod each", n)
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: othersNamespace}}); err != nil {
		return fmt.Errorf("making namespace %s: %w", othersNamespace, err)
	}
	if err := b.until(ctx, asking, func(ctx context.Context) (missing string, err error) { // pods need it
		account := &corev1.ServiceAccount{}
		err = b.kube.Get(ctx, client.ObjectKey{Namespace: othersNamespace, Name: "default"}, account)
		if err != nil {
			missing = "the account of the pods"
		}
		return missing, client.IgnoreNotFound(err)
	}); err != nil {
		return err
	}
	return inParallel(n, func(i int) error {
		node := otherNode(i)
		if err := b.kube.Create(ctx, node); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: othersNamespace, Name: node.Name, Labels: map[string]string{"app": "other"}},
			Spec: corev1.PodSpec{
				NodeName:   node.Name,
				Containers: []corev1.Container{{Name: "other", Image: "registry.example/never-pulled"}},
			},
		}
		if err := b.kube.Create(ctx, pod); err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
		return nil
	})
}

// otherNode returns the i-th node of others: a virtual machine with the labels of a cloud and 50 images.
func otherNode(i int) *corev1.Node {
	name := fmt.Sprintf("other-%05d", i)
	has := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110"),
		"hugepages-1Gi": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				corev1.LabelInstanceTypeStable: "Standard_D16s_v5", corev1.LabelTopologyRegion: "local",
				corev1.LabelTopologyZone: fmt.Sprintf("local-%d", i%3+1), "agentpool": "general", "kubernetes.azure.com/mode": "user",
				"kubernetes.azure.com/cluster": "bench", "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202611.02.0",
				"kubernetes.azure.com/os-sku": "Ubuntu", "kubernetes.azure.com/storageprofile": "managed",
			},
			Annotations: map[string]string{hollow.NodeAnnotation: "", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{
			ProviderID: "other://" + name,
			Taints:     []corev1.Taint{{Key: othersNamespace, Effect: corev1.TaintEffectNoSchedule}}, // no program runs here
		},
		Status: corev1.NodeStatus{Capacity: has, Allocatable: has.DeepCopy()},
	}
	for _, pressure := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: pressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient", Message: "kubelet has sufficient resources available",
		})
	}
	for image := range 50 { // a kubelet reports as many
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example/team/image-%02d:v1.%d", image, i)}, SizeBytes: 1 << 28,
		})
	}
	return node
}
