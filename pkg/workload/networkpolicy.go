// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// NetworkPolicy lets clients reach what a preset Workspace serves, metrics included, and nothing else of its
// pods. Only the named consumer reaches the events of the KV cache, whoever publishes them: earlier versions
// published them to everybody. The members of a group reach each other on every port, because their engines
// authenticate nobody. The pods themselves reach everything but cloud metadata, or only what the administrator allows.
func NetworkPolicy(in Input) *networkingv1.NetworkPolicy {
	ws := in.Workspace
	ingress := []networkingv1.NetworkPolicyIngressRule{{
		Ports: []networkingv1.NetworkPolicyPort{policyPort(v1beta1.EnginePort)},
	}}
	if in.servesKVEvents() {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			Ports: []networkingv1.NetworkPolicyPort{policyPort(int32(in.Engine.KVEventsPort))},
			From:  []networkingv1.NetworkPolicyPeer{in.Settings.KVEvents.peer()},
		})
	}
	if in.Plan.Nodes > 1 {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			From: []networkingv1.NetworkPolicyPeer{peers(in)},
		})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: objectMeta(ws, ws.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: podSelector(ws)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      egressRules(in),
		},
	}
}

// peers are the other members of a group.
func peers(in Input) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: podSelector(in.Workspace)}}
}

func policyPort(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}
}
