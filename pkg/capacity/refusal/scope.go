// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Offering is the requested offer: one machine type in one place with one capacity type.
type Offering struct {
	InstanceType string
	// Family is the cloud's quota group of the machine type; empty if it is unknown.
	Family string
	// Zone is empty if the provisioner chooses it. That is a separate offering: one unavailable zone does not exclude
	// it. The same applies to several zones, separated by commas.
	Zone         string
	CapacityType v1beta1.CapacityType
	// NodeClass of the request; empty if it is unknown.
	NodeClass string
}

// Breadth is how many offers a refusal is about.
type Breadth string

// The breadths, narrowest first.
const (
	OneOffering Breadth = "offering"
	SKU         Breadth = "sku"
	Family      Breadth = "family"
	Everything  Breadth = "everything"
)

// widths are the breadths, narrowest first.
func widths() []Breadth { return []Breadth{OneOffering, SKU, Family, Everything} }

// zoneSeparator separates the zones of an offering with several zones.
const zoneSeparator = ","

// Any stands for every zone, or for every capacity type.
const Any = "*"

// Scope is a set of offerings. It is comparable, so it can be a map key.
type Scope struct {
	Breadth Breadth
	// Name of the machine type, or of the family; empty for everything.
	Name string
	// Zone is Any unless the breadth is OneOffering.
	Zone string
	// CapacityType may be Any.
	CapacityType v1beta1.CapacityType
	// NodeClass of the scope; empty for any.
	NodeClass string
}

// Evidence is which part of a request a refusal may be about. It decides how far the refusal applies.
type Evidence string

// The evidences, widest first.
const (
	// OfAccount: limits of the account or the whole cluster, the same for all requests.
	OfAccount Evidence = "account"
	// OfClass: the node class's part of a request may be the cause: subnets, zones, images, reservations.
	OfClass Evidence = "nodeClass"
	// OfRequest: one Workspace's part of the request may be the cause: its disk, labels, tolerations, or number of
	// machines.
	OfRequest Evidence = "request"
)

// scopeOf returns the scope of a breadth around an offering. It includes the node class unless the evidence is
// OfAccount. If the family is unknown, the machine type takes its place, because a scope should be too narrow rather
// than too wide.
func scopeOf(breadth Breadth, evidence Evidence, o Offering) Scope {
	out := Scope{Breadth: OneOffering, Name: o.InstanceType, Zone: o.Zone, CapacityType: o.CapacityType}
	switch {
	case breadth == Everything:
		out = Scope{Breadth: Everything, Zone: Any, CapacityType: o.CapacityType}
	case breadth == Family && o.Family != "":
		out = Scope{Breadth: Family, Name: o.Family, Zone: Any, CapacityType: o.CapacityType}
	case breadth == Family, breadth == SKU:
		out = Scope{Breadth: SKU, Name: o.InstanceType, Zone: Any, CapacityType: o.CapacityType}
	}
	if evidence != OfAccount {
		out.NodeClass = o.NodeClass
	}
	return out
}

// Covers reports whether an offering belongs to the scope.
func (s Scope) Covers(o Offering) bool {
	return slices.Contains(scopesAround(o), s)
}

// isPartOf reports whether a scope covers at most some of an offering's zones.
func (s Scope) isPartOf(o Offering) bool {
	return s.Breadth == OneOffering && !s.Covers(o)
}

// Scopes returns all scopes of an offering, narrowest first.
func (o Offering) Scopes() []Scope { return scopesAround(o) }

// scopesAround returns all scopes of an offering, narrowest first.
func scopesAround(o Offering) []Scope {
	breadths := []Breadth{OneOffering, SKU, Everything}
	if o.Family != "" {
		breadths = []Breadth{OneOffering, SKU, Family, Everything}
	}
	scopes := make([]Scope, 0, 4*len(breadths))
	for _, breadth := range breadths {
		scope := scopeOf(breadth, OfAccount, o)
		scopes = append(scopes, scope)
		if scope.CapacityType != Any {
			scope.CapacityType = Any
			scopes = append(scopes, scope)
		}
	}
	if o.NodeClass == "" {
		return scopes
	}
	for _, scope := range scopes {
		scope.NodeClass = o.NodeClass
		scopes = append(scopes, scope)
	}
	return scopes
}

// String returns the scope for storage as breadth/name/zone/capacityType, followed by /nodeClass if it has one.
func (s Scope) String() string {
	parts := []string{string(s.Breadth), s.Name, s.Zone, string(s.CapacityType)}
	if s.NodeClass != "" {
		parts = append(parts, s.NodeClass)
	}
	return strings.Join(parts, "/")
}

// ParseScope parses the result of String.
func ParseScope(text string) (Scope, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 && len(parts) != 5 {
		return Scope{}, fmt.Errorf("scope %q: it has the form breadth/name/zone/capacityType or breadth/name/zone/capacityType/nodeClass",
			text)
	}
	s := Scope{Breadth: Breadth(parts[0]), Name: parts[1], Zone: parts[2], CapacityType: v1beta1.CapacityType(parts[3])}
	if len(parts) == 5 {
		s.NodeClass = parts[4]
	}
	switch s.Breadth {
	case OneOffering, SKU, Family, Everything:
	default:
		return Scope{}, fmt.Errorf("scope %q: %q is not offering, sku, family or everything", text, parts[0])
	}
	if (s.Breadth == Everything) != (s.Name == "") {
		return Scope{}, fmt.Errorf("scope %q: everything has no name, and any other scope has one", text)
	}
	if s.Breadth != OneOffering && s.Zone != Any {
		return Scope{}, fmt.Errorf("scope %q: only an offering has a zone; write %s", text, Any)
	}
	return s, nil
}
