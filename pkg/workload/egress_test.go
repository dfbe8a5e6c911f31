// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/modelberth/modelberth/pkg/workload"
)

// reaches reports whether a policy's egress rules allow an address that is no pod's.
func reaches(t *testing.T, policy *networkingv1.NetworkPolicy, address string, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	to := netip.MustParseAddr(address)
	for _, rule := range policy.Spec.Egress {
		if hasPort(rule.Ports, protocol, port) && hasAddress(t, rule.To, to) {
			return true
		}
	}
	return false
}

func hasPort(ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, port int32) bool {
	for _, each := range ports {
		if *each.Protocol == protocol && each.Port.IntVal == port {
			return true
		}
	}
	return len(ports) == 0
}

func hasAddress(t *testing.T, peers []networkingv1.NetworkPolicyPeer, to netip.Addr) bool {
	t.Helper()
	for _, peer := range peers {
		if peer.IPBlock == nil || !netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(to) {
			continue
		}
		isDenied := false
		for _, except := range peer.IPBlock.Except {
			inner, outer := netip.MustParsePrefix(except), netip.MustParsePrefix(peer.IPBlock.CIDR)
			if !outer.Contains(inner.Addr()) || inner.Bits() <= outer.Bits() {
				t.Errorf("the API server refuses except %s, which is not within %s", except, peer.IPBlock.CIDR)
			}
			isDenied = isDenied || inner.Contains(to)
		}
		if !isDenied {
			return true
		}
	}
	return len(peers) == 0
}

func isIngressAndEgress(policy *networkingv1.NetworkPolicy) bool {
	types := policy.Spec.PolicyTypes
	return len(types) == 2 && types[0] == networkingv1.PolicyTypeIngress && types[1] == networkingv1.PolicyTypeEgress
}

func TestEngineCannotReachCloudMetadata(t *testing.T) {
	listed := []workload.Destination{{CIDR: "10.1.0.0/16", Ports: []int32{443}}, {CIDR: "2001:db8::/32"}}
	for _, test := range []struct {
		reason   string
		egress   []workload.Destination
		address  string
		protocol corev1.Protocol
		port     int32
		want     bool
	}{
		{"metadata of all clouds", nil, "169.254.169.254", corev1.ProtocolTCP, 80, false},
		{"credentials of ECS and EKS Pod Identity", nil, "169.254.170.23", corev1.ProtocolTCP, 80, false},
		{"the WireServer of Azure", nil, "168.63.129.16", corev1.ProtocolTCP, 32526, false},
		{"metadata of EC2 over IPv6", nil, "fd00:ec2::254", corev1.ProtocolTCP, 80, false},
		{"metadata of Compute Engine over IPv6", nil, "fd20:ce::254", corev1.ProtocolTCP, 80, false},
		{"link-local over IPv6", nil, "fe80::1", corev1.ProtocolTCP, 80, false},
		{"a resolver on the node", nil, "169.254.20.10", corev1.ProtocolUDP, 53, true},
		{"which answers over TCP, too", nil, "169.254.20.10", corev1.ProtocolTCP, 53, true},
		{"the hub", nil, "18.155.68.1", corev1.ProtocolTCP, 443, true},
		{"over IPv6", nil, "2600:9000::1", corev1.ProtocolTCP, 443, true},
		{"a mirror in the company", nil, "10.9.9.9", corev1.ProtocolTCP, 8080, true},

		{"an address of the allow-list", listed, "10.1.2.3", corev1.ProtocolTCP, 443, true},
		{"another port of it", listed, "10.1.2.3", corev1.ProtocolTCP, 80, false},
		{"any port where none is named", listed, "2001:db8::7", corev1.ProtocolUDP, 9, true},
		{"an address that the list lacks", listed, "18.155.68.1", corev1.ProtocolTCP, 443, false},
		{"a resolver that the list lacks", listed, "8.8.8.8", corev1.ProtocolUDP, 53, false},
		{"a resolver on the node beside a list", listed, "169.254.20.10", corev1.ProtocolUDP, 53, true},
		{"metadata beside a list", listed, "169.254.169.254", corev1.ProtocolTCP, 80, false},
		{"on the port of DNS pods", listed, "169.254.169.254", corev1.ProtocolTCP, 5353, false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			in := cases()["group"]
			in.Settings.Egress = test.egress
			policy := workload.NetworkPolicy(in)
			if !isIngressAndEgress(policy) {
				t.Errorf("policy types %v", policy.Spec.PolicyTypes)
			}
			if got := reaches(t, policy, test.address, test.protocol, test.port); got != test.want {
				t.Errorf("reaches %s %s:%d is %v, want %v", test.protocol, test.address, test.port, got, test.want)
			}
		})
	}
}

// Without rules for pods, some network plug-ins would block DNS and peers, because they never match a pod by an
// ipBlock.
func TestEgressReachesPods(t *testing.T) {
	isAnyPod := func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.NamespaceSelector != nil && len(peer.NamespaceSelector.MatchLabels) == 0 && peer.PodSelector == nil
	}
	has := func(policy *networkingv1.NetworkPolicy, is func(networkingv1.NetworkPolicyPeer) bool, port int32) bool {
		for _, rule := range policy.Spec.Egress {
			for _, peer := range rule.To {
				if is(peer) && hasPort(rule.Ports, corev1.ProtocolTCP, port) {
					return true
				}
			}
		}
		return false
	}
	in := cases()["group"]
	if policy := workload.NetworkPolicy(in); !has(policy, isAnyPod, 8080) {
		t.Errorf("by default not every pod is reached: %v", policy.Spec.Egress)
	}
	in.Settings.Egress = []workload.Destination{{CIDR: "10.1.0.0/16"}}
	policy := workload.NetworkPolicy(in)
	isPeer := func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.PodSelector != nil && peer.NamespaceSelector == nil
	}
	if has(policy, isAnyPod, 8080) || !has(policy, isAnyPod, 53) || !has(policy, isAnyPod, 5353) || !has(policy, isPeer, 29500) {
		t.Errorf("with an allow-list pods are to be reached for DNS and as peers alone: %v", policy.Spec.Egress)
	}
}
