// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// NetworkPolicy allows clients to reach only the API and the metrics of a preset Workspace's pods and, in a group, the
// agents' ProbePort. Only the named consumer can reach the events of the KV cache, even those of pods from earlier
// versions, which published them to everybody. Only the members of a group reach each other on all ports, because their
// engines have no authentication. The pods themselves reach everything except cloud metadata, or only the
// administrator's list.
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
	if in.Peers != nil {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peers(in)}})
	}
	if in.Peers[v1beta1.LabelPeers] != "" {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			Ports: []networkingv1.NetworkPolicyPort{policyPort(ProbePort)},
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
