// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package netspace

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const bridgeName = "bridge"

// NodeLink is the interface's name inside a node.
const NodeLink = "eth0"

// Bridge makes the bridge with its address and turns the namespace into the
// router between the nodes' pods.
func (s *Space) Bridge(address string, bits int) error {
	if err := s.Do(func() error { return WriteSysctl("net/ipv4/ip_forward", "1") }); err != nil {
		return err
	}
	// Redirects would send neighbours on one bridge directly to each other's pods, without a route.
	for _, scope := range []string{"all", "default"} {
		err := s.Do(func() error { return WriteSysctl("net/ipv4/conf/"+scope+"/send_redirects", "0") })
		if err != nil {
			return err
		}
	}
	if err := s.up("lo"); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := s.handle.LinkAdd(bridge); err != nil {
		return fmt.Errorf("adding the bridge: %w", err)
	}
	ip := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(bits, 32)}}
	if err := s.handle.AddrAdd(bridge, ip); err != nil {
		return fmt.Errorf("giving the bridge the address %s/%d: %w", address, bits, err)
	}
	return s.up(bridgeName)
}

func (s *Space) up(name string) error {
	link, err := s.handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding interface %s: %w", name, err)
	}
	if err := s.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting interface %s up: %w", name, err)
	}
	return nil
}

// Plug joins the network namespace of the process pid to the bridge by a virtual cable and routes podCIDR to address;
// the process gives that address to its end. slot distinguishes the cables.
func (s *Space) Plug(pid, slot int, address, podCIDR string) error {
	bridge, err := s.handle.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("finding the bridge: %w", err)
	}
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: cableName(slot), MasterIndex: bridge.Attrs().Index},
		PeerName:      NodeLink,
		PeerNamespace: netlink.NsPid(pid),
	}
	if err := s.handle.LinkAdd(cable); err != nil {
		return fmt.Errorf("adding the cable of node slot %d: %w", slot, err)
	}
	if err := s.up(cable.Name); err != nil {
		return err
	}
	route, err := podRoute(bridge.Attrs().Index, address, podCIDR)
	if err != nil {
		return err
	}
	if err := s.handle.RouteReplace(route); err != nil {
		return fmt.Errorf("routing %s to %s: %w", podCIDR, address, err)
	}
	return nil
}

// Unplug undoes Plug. The cable usually went with the node's namespace already.
func (s *Space) Unplug(slot int, address, podCIDR string) error {
	var errs []error
	var notFound netlink.LinkNotFoundError
	cable, err := s.handle.LinkByName(cableName(slot))
	switch {
	case errors.As(err, &notFound):
	case err != nil:
		errs = append(errs, fmt.Errorf("finding the cable of node slot %d: %w", slot, err))
	default:
		if err := s.handle.LinkDel(cable); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("removing the cable of node slot %d: %w", slot, err))
		}
	}
	route, err := podRoute(0, address, podCIDR)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := s.handle.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		errs = append(errs, fmt.Errorf("removing the route to %s: %w", podCIDR, err))
	}
	return errors.Join(errs...)
}

func cableName(slot int) string { return fmt.Sprintf("node%d", slot) }

func podRoute(link int, via, podCIDR string) (*netlink.Route, error) {
	_, dst, err := net.ParseCIDR(podCIDR)
	if err != nil {
		return nil, fmt.Errorf("parsing pod range %q: %w", podCIDR, err)
	}
	return &netlink.Route{LinkIndex: link, Dst: dst, Gw: net.ParseIP(via)}, nil
}

// Settle configures the calling thread's namespace as a node's: loopback up,
// the node's address on its end of the cable, everything else by the gateway.
func Settle(address string, bits int, gateway string) error {
	for _, name := range []string{"lo", NodeLink} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding interface %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("setting interface %s up: %w", name, err)
		}
		if name != NodeLink {
			continue
		}
		ip := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(bits, 32)}}
		if err := netlink.AddrAdd(link, ip); err != nil {
			return fmt.Errorf("giving %s the address %s/%d: %w", name, address, bits, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			return fmt.Errorf("adding the route by %s: %w", gateway, err)
		}
	}
	return nil
}
