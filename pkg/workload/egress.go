// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Destination is an address range that the pods of presets may reach.
type Destination struct {
	// CIDR is the range of IPv4 or IPv6 addresses.
	CIDR string
	// Ports are TCP ports; empty means all ports of all protocols.
	Ports []int32
}

// linkLocal is the range that contains the IPv4 metadata service of every cloud.
const linkLocal = "169.254.0.0/16"

// deniedIPv4 and deniedIPv6 return addresses that give out a machine's credentials and user data.
func deniedIPv4() []string {
	return []string{
		linkLocal,
		"168.63.129.16/32", // Azure's WireServer
	}
}

func deniedIPv6() []string {
	return []string{
		"fe80::/10",
		"fd00:ec2::23/128",  // EKS Pod Identity
		"fd00:ec2::254/128", // EC2
		"fd20:ce::254/128",  // Compute Engine
	}
}

// dnsPort is the port of DNS. The DNS pods of OpenShift listen on dnsPodPort, and its network plug-in compares the port
// of the pod, not that of the Service.
const (
	dnsPort    = 53
	dnsPodPort = 5353
)

// egressRules allows pods to reach everything except cloud metadata. With an allow-list, pods reach only its
// destinations, the cluster's DNS and, in a group, each other.
func egressRules(in Input) []networkingv1.NetworkPolicyEgressRule {
	if len(in.Settings.Egress) == 0 {
		return []networkingv1.NetworkPolicyEgressRule{
			// In many clusters, DNS resolvers listen on link-local addresses. Cloud metadata is on port 80, so it stays out of
			// reach.
			{Ports: dnsPorts(dnsPort)},
			// Some network plug-ins never match a pod by an ipBlock.
			{To: []networkingv1.NetworkPolicyPeer{anyPod(), block("0.0.0.0/0", deniedIPv4()...), block("::/0", deniedIPv6()...)}},
		}
	}
	rules := []networkingv1.NetworkPolicyEgressRule{
		{Ports: dnsPorts(dnsPort), To: []networkingv1.NetworkPolicyPeer{anyPod(), block(linkLocal)}},
		{Ports: dnsPorts(dnsPodPort), To: []networkingv1.NetworkPolicyPeer{anyPod()}},
	}
	if in.Peers != nil {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{peers(in)}})
	}
	for _, destination := range in.Settings.Egress {
		rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{block(destination.CIDR)}}
		for _, port := range destination.Ports {
			rule.Ports = append(rule.Ports, policyPort(port))
		}
		rules = append(rules, rule)
	}
	return rules
}

func dnsPorts(port int32) []networkingv1.NetworkPolicyPort {
	return []networkingv1.NetworkPolicyPort{
		{Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromInt32(port))},
		policyPort(port),
	}
}
