// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

func TestOf(t *testing.T) {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	condition := func(kind, status, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), LastTransitionTime: since, Reason: "Why", Message: message,
		}
	}
	tests := []struct {
		reason     string
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       nodehealth.Fault
	}{
		{reason: "nothing is said"},
		{reason: "all is well", conditions: []corev1.NodeCondition{
			condition("AcceleratedHardwareReady", "True", ""), condition("PreemptionScheduled", "False", ""), condition("GPUMissing", "False", ""),
			condition("kubernetes.azure.com/NodeHealthy", "Unknown", ""),
		}},
		{reason: "not Ready is another matter", conditions: []corev1.NodeCondition{condition("Ready", "False", "the kubelet is silent")}},
		{
			reason: "a GPU has failed on AWS", conditions: []corev1.NodeCondition{condition("AcceleratedHardwareReady", "False", "GPU has fallen off the bus")},
			want: nodehealth.Fault{
				Message: "node n reports AcceleratedHardwareReady=False: GPU has fallen off the bus", Since: since.Time, Grace: 10 * time.Minute,
			},
		},
		{
			reason: "NVSentinel found a fatal fault", conditions: []corev1.NodeCondition{
				condition("GpuMemWatch", "True", "[DCGM_FR_FAULTY_MEMORY] GPU 0 - RecommendedAction: CONTACT_SUPPORT"),
			},
			want: nodehealth.Fault{
				Message: "node n reports GpuMemWatch=True: [DCGM_FR_FAULTY_MEMORY] GPU 0 - RecommendedAction: CONTACT_SUPPORT",
				Since:   since.Time, Grace: 5 * time.Minute,
			},
		},
		{reason: "NVSentinel found a repaired GPU", conditions: []corev1.NodeCondition{condition("GpuMemWatch", "False", "")}},
		{reason: "heat slows a GPU down and passes", conditions: []corev1.NodeCondition{condition("GpuThermalWatch", "True", "throttled")}},
		{
			reason: "what can wait goes after what cannot", conditions: []corev1.NodeCondition{
				condition("GPUMissing", "True", "one is missing"), condition("PreemptionScheduled", "True", ""),
			},
			want: nodehealth.Fault{Message: "node n reports PreemptionScheduled=True: Why", Since: since.Time, Announced: true},
		},
		{
			reason: "AWS takes a spot machine back", taints: []corev1.Taint{{Key: "sku"}, {Key: "aws-node-termination-handler/spot-itn", TimeAdded: &since}},
			want: nodehealth.Fault{
				Message: "node n has the taint aws-node-termination-handler/spot-itn: the cloud is about to reclaim the node's machine",
				Since:   since.Time, Announced: true,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: test.taints},
				Status: corev1.NodeStatus{Conditions: test.conditions},
			}
			if diff := cmp.Diff(test.want, nodehealth.Of(node)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSplit: a fault of single GPUs does not hide a fault of the node, whichever expires first.
func TestSplit(t *testing.T) {
	noon := metav1.NewTime(time.Unix(1_700_000_000, 0))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for _, kind := range []corev1.NodeConditionType{"GPUMissing", "SysLogsXIDError", "GpuDriverWatch", "NVLinkStatusInactive"} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: noon, Reason: "Why",
		})
	}
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-time.Hour))
	whole, ofGPUs := nodehealth.Split(node)
	want := []string{"node n reports GpuDriverWatch=True: Why", "node n reports GPUMissing=True: Why"}
	if diff := cmp.Diff(want, []string{whole.Message, ofGPUs.Message}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
