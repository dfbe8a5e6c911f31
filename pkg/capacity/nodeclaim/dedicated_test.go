// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/workload"
)

// TestStrangersPodFitsNoDedicatedMachine: a toleration of sku=gpu is not enough, whichever back end creates the
// machine.
func TestStrangersPodFitsNoDedicatedMachine(t *testing.T) {
	gpus := corev1.Toleration{Key: v1beta1.TaintKey, Operator: corev1.TolerationOpExists}
	stranger := corev1.PodSpec{Tolerations: []corev1.Toleration{gpus}}
	ours := func(uid string) corev1.PodSpec {
		ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{}}
		ws.UID = owner.UID
		if uid != "" {
			ws.UID = "99999999-2222-3333-4444-555555555555"
		}
		return workload.Placement(ws)
	}
	kaitos := v1beta1.NodeClassReference{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "default"}
	for _, of := range []v1beta1.NodeClassReference{class, kaitos} {
		for _, isDedicated := range []bool{true, false} {
			asked := request(1, "A")
			asked.Dedicated = isDedicated
			spec := nodeclaim.New(nil, nil, of).Spec(asked)
			for _, test := range []struct {
				reason string
				pod    corev1.PodSpec
				want   bool
			}{
				{"a stranger's", stranger, !isDedicated},
				{"another Workspace's", ours("other"), !isDedicated},
				{"its own", ours(""), true},
			} {
				_, isKeptAway := corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, spec.Taints, test.pod.Tolerations, nil, false)
				if isKeptAway == test.want {
					t.Errorf("%s, dedicated %t: %s pod comes: %t, want %t", of.Kind, isDedicated, test.reason, !isKeptAway, test.want)
				}
			}
			if got := nodeclaim.MachineOf(&karpv1.NodeClaim{Spec: spec}).Dedicated; got != isDedicated {
				t.Errorf("%s: the machine says that it is dedicated: %t, want %t", of.Kind, got, isDedicated)
			}
		}
	}
}
