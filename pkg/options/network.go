// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/modelberth/modelberth/pkg/isolation"
)

// anyDomain among the domains of media means all domains.
const anyDomain = "*"

// Destination is a range of IP addresses, with TCP ports. No ports means all ports.
type Destination struct {
	CIDR  netip.Prefix
	Ports []int32
}

func (o *Controller) bindNetwork(flags *flag.FlagSet) {
	flags.StringVar((*string)(&o.MultiNode), "multi-node", string(isolation.RequireEnforcement),
		"whether several machines may serve one model: Disabled, RequireEnforcement (only once the controller has "+
			"verified that the cluster enforces NetworkPolicies) or Allow")
	flags.Func("media-domain", "host from which inference servers may fetch linked images, audio and video; repeatable; "+
		"* means every host; default: none, so requests must contain their media", o.addMediaDomain)
	flags.Func("egress", "allowed egress of preset pods, in addition to the cluster's DNS and their peers, as CIDR or CIDR=port,port for TCP; "+
		"repeatable; default: everything except cloud metadata", o.addEgress)
}

func (o *Controller) validateNetwork() []error {
	if slices.Contains(isolation.Policies(), o.MultiNode) {
		return nil
	}
	return []error{fmt.Errorf("--multi-node is %q: it must be Disabled, RequireEnforcement or Allow", o.MultiNode)}
}

func (o *Controller) addMediaDomain(v string) error {
	if problems := validation.IsDNS1123Subdomain(v); v != anyDomain && len(problems) > 0 {
		return fmt.Errorf("%q is neither * nor a lower-case host name without scheme and port", v)
	}
	o.MediaDomains = append(o.MediaDomains, v)
	return nil
}

func (o *Controller) addEgress(v string) error {
	cidr, ports, isLimited := strings.Cut(v, "=")
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || prefix != prefix.Masked() {
		return fmt.Errorf("%q does not begin with an address range such as 10.0.0.0/8", v)
	}
	out := Destination{CIDR: prefix}
	if isLimited {
		for text := range strings.SplitSeq(ports, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return fmt.Errorf("%q names port %q, which is not a number from 1 to 65535", v, text)
			}
			out.Ports = append(out.Ports, int32(port))
		}
	}
	o.Egress = append(o.Egress, out)
	return nil
}
