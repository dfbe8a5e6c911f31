// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

func TestShortage(t *testing.T) {
	const gpu, slice = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
	devices := func(name corev1.ResourceName, count string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse("8"), name: resource.MustParse(count)}
	}
	tests := []struct {
		reason       string
		has, can     corev1.ResourceList
		labels       map[string]string
		resource     corev1.ResourceName
		wantShortage string
	}{
		{reason: "all GPUs are usable", has: devices(gpu, "4"), can: devices(gpu, "4"), resource: gpu},
		{reason: "the device plugin has not registered yet", has: devices("cpu", "8"), can: devices("cpu", "8"), resource: gpu},
		{
			reason: "one GPU is broken", has: devices(gpu, "4"), can: devices(gpu, "3"), resource: gpu,
			wantShortage: "node n can allocate 3 of its 4 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy",
		},
		{
			reason: "all are broken", has: devices(gpu, "4"), can: devices("cpu", "7"), resource: gpu,
			wantShortage: "node n can allocate 0 of its 4 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy",
		},
		{reason: "the kubelet keeps some processor time", has: devices("cpu", "8"), can: devices("cpu", "7"), resource: gpu},
		{reason: "other devices are not this Workspace's", has: devices("example.com/nic", "2"), can: devices("example.com/nic", "1"), resource: gpu},
		{reason: "a plan without GPUs lacks none", has: devices(gpu, "4"), can: devices(gpu, "3")},
		{
			reason: "a slice is broken", has: devices(slice, "2"), can: devices(slice, "1"), resource: slice,
			wantShortage: "node n can allocate 1 of its 2 nvidia.com/mig-3g.40gb: the device plugin reports the other GPUs as unhealthy",
		},
		{
			reason: "GPUs are about to be divided anew", has: devices(gpu, "4"), can: devices(gpu, "0"), resource: gpu,
			labels: map[string]string{"nvidia.com/mig.config.state": "pending"},
		},
		{
			reason: "the node restarts to divide its GPUs", has: devices(gpu, "4"), can: devices(gpu, "0"), resource: gpu,
			labels: map[string]string{"nvidia.com/mig.config.state": "rebooting"},
		},
		{
			reason: "GPUs were divided", has: devices(gpu, "4"), can: devices(gpu, "3"), resource: gpu,
			labels:       map[string]string{"nvidia.com/mig.config.state": "success"},
			wantShortage: "node n can allocate 3 of its 4 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: test.labels}}
			node.Status.Capacity, node.Status.Allocatable = test.has, test.can
			if got := nodehealth.Shortage(node, test.resource); got != test.wantShortage {
				t.Errorf("got  %q\nwant %q", got, test.wantShortage)
			}
		})
	}
}

func TestSooner(t *testing.T) {
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	none := nodehealth.Fault{}
	soon := nodehealth.Fault{Message: "soon", Since: noon}
	late := nodehealth.Lasting("late", noon)
	announced := nodehealth.Fault{Message: "announced", Since: noon.Add(time.Hour), Announced: true}
	for _, test := range []struct {
		reason     string
		a, b, want nodehealth.Fault
	}{
		{"neither", none, none, none},
		{"only the first", late, none, late},
		{"only the second", none, late, late},
		{"the second is sooner", late, soon, soon},
		{"the first is sooner", soon, late, soon},
		{"an announced end comes before a fault that may not count", soon, announced, announced},
		{"in either order", announced, soon, announced},
	} {
		if got := nodehealth.Sooner(test.a, test.b); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.reason, got, test.want)
		}
	}
}

// TestConcerns: a node with eight GPUs reports a broken one.
func TestConcerns(t *testing.T) {
	const broken, driver = "node n reports GPUMissing=True: Why", "node n reports GpuDriverWatch=True: Why"
	for _, test := range []struct {
		reason         string
		usable, needed int
		conditions     []corev1.NodeConditionType
		want           string
	}{
		{"the others are enough", 7, 1, []corev1.NodeConditionType{"GPUMissing"}, ""},
		{"exactly enough", 7, 7, []corev1.NodeConditionType{"GPUMissing"}, ""},
		{"too few", 7, 8, []corev1.NodeConditionType{"GPUMissing"}, broken},
		{"a pod may get the broken one", 8, 1, []corev1.NodeConditionType{"GPUMissing"}, broken},
		{"the whole node is broken", 7, 1, []corev1.NodeConditionType{"GPUMissing", "GpuDriverWatch"}, driver},
	} {
		t.Run(test.reason, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(8, resource.DecimalSI)}
			node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(test.usable), resource.DecimalSI)}
			for _, kind := range test.conditions {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Why"})
			}
			if got := nodehealth.Concerns(node, "nvidia.com/gpu", test.needed).Message; got != test.want {
				t.Errorf("fault %q, want %q", got, test.want)
			}
		})
	}
}
