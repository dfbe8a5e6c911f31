// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"net/netip"
)

// Addresses inside the private network. The host never sees them, so they
// collide with nothing and need no flags.
const (
	// ControlAddress is the bridge's: API server, DNS, registry and hub listen there.
	ControlAddress = "10.231.0.1"
	// PrefixBits is the size of the network of bridge and nodes.
	PrefixBits = 24
	// PodNetwork covers the pods of all nodes.
	PodNetwork = "10.244.0.0/16"
	// ServiceNetwork covers all ClusterIPs.
	ServiceNetwork = "10.96.0.0/16"
	// KubernetesService is the ClusterIP of the API server's own Service.
	KubernetesService = "10.96.0.1"
	// DNSService is the ClusterIP of the kube-dns Service.
	DNSService = "10.96.0.10"
	// ClusterDomain ends every DNS name of the cluster.
	ClusterDomain = "cluster.local"

	// APIServerPort is the API server's port on ControlAddress.
	APIServerPort = 6443
	// RegistryPort is the image registry's port on ControlAddress.
	RegistryPort = 5000
	// RegistryHost is the registry's name on nodes and in pods.
	RegistryHost = "registry.local"
	// HubPort is the model hub's port on ControlAddress.
	HubPort = 8081
	// HubHost is the hub's name on nodes and in pods.
	HubHost = "hub.local"
)

// MaxSlots bounds the nodes at any one time.
const MaxSlots = 200

// firstHost is the last byte of the address of slot 0.
const firstHost = 10

// NodeNetwork is a slot's share for one node: an address on the bridge's network and a range for its pods.
type NodeNetwork struct {
	Slot    int    `json:"slot"`
	Address string `json:"address"`
	PodCIDR string `json:"podCIDR"`
}

// NetworkOf returns the addresses of a slot.
func NetworkOf(slot int) (NodeNetwork, error) {
	if slot < 0 || slot >= MaxSlots {
		return NodeNetwork{}, fmt.Errorf("node slot %d is outside 0 to %d", slot, MaxSlots-1)
	}
	address := netip.AddrFrom4([4]byte{10, 231, 0, byte(firstHost + slot)})
	pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(slot), 0}), 24)
	return NodeNetwork{Slot: slot, Address: address.String(), PodCIDR: pods.String()}, nil
}

// NextSlot picks the next free slot after last. It goes round instead of taking the lowest free one, so an address
// rests as long as possible before another node gets it and no peer talks to the wrong one.
func NextSlot(used map[int]bool, last int) (int, error) {
	for i := 1; i <= MaxSlots; i++ {
		slot := (last + i) % MaxSlots
		if slot < 0 {
			slot += MaxSlots
		}
		if !used[slot] {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("all %d node addresses are taken: delete a node first", MaxSlots)
}
