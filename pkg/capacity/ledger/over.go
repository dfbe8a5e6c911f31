// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/usd"
)

// Kind identifies a ceiling by the name of its chart value or annotation.
type Kind string

// The ceilings.
const (
	PerWorkspace Kind = "spending.perWorkspace"
	PerNamespace Kind = "spending.perNamespace"
	PerCluster   Kind = "spending.cluster"
	// NamespaceOwn is the ceiling in an annotation of the namespace, in place of PerNamespace.
	NamespaceOwn Kind = "modelberth.dev/spending-ceiling"
	// NamespaceMonth is the monthly budget in an annotation of the namespace.
	NamespaceMonth Kind = "modelberth.dev/monthly-budget"
)

// mostSpenders is how many spenders a message names.
const mostSpenders = 3

// Spender uses a part of a ceiling: a Workspace, by name.
type Spender struct {
	Name        string
	HourlyPrice float64
}

// OverError means that a purchase would exceed a ceiling.
type OverError struct {
	Kind Kind
	// Ceiling, its used part Used, and the requested amount Asked are in USD per hour. Asked is negative if the price
	// of the machine type is unknown.
	Ceiling, Used, Asked float64
	Owner                capacity.Owner
	InstanceType         string
	// Spenders use the used part, largest first; nil for the ceiling of the cluster.
	Spenders []Spender
	// Room is the amount that would be granted now.
	Room float64
	// LookAgain is when the earliest grant becomes overdue and may end; zero if there is no grant.
	LookAgain time.Time
	// Ends is the end of the month of a monthly budget. Then Ceiling and Used are in USD per month, and Started is the
	// price in USD of the first hour of the namespace's machines that are still in their first hour.
	Ends    time.Time
	Started float64
}

// By returns how much the purchase would exceed the ceiling by.
func (e *OverError) By() float64 { return e.Used + e.Asked - e.Ceiling }

// Error names the ceiling, the excess, the spenders, and the remedies.
func (e *OverError) Error() string {
	if e.Kind == NamespaceMonth {
		return e.ofMonth()
	}
	limit := fmt.Sprintf("the administrator's ceiling %s is %s%s", e.Kind, usd.PerHour(e.Ceiling), e.of())
	if e.Asked < 0 {
		return fmt.Sprintf("%s, and no price is known for %s: choose another machine type, or have the administrator add a price",
			limit, e.InstanceType)
	}
	if e.Kind == PerCluster {
		return limit + e.ofCluster()
	}
	text := fmt.Sprintf("%s; %s (%s) would exceed it by %s", limit, e.InstanceType, usd.PerHour(e.Asked), usd.PerHour(e.By()))
	if len(e.Spenders) > 0 {
		text += fmt.Sprintf(", because %s is already in use by %s", usd.PerHour(e.Used), e.spenders())
	}
	if e.Asked > e.Ceiling+tolerance {
		return text + ": choose a cheaper machine type, or have the administrator raise the ceiling"
	}
	return text + ": the controller retries when machines are released; suspend or delete unused Workspaces, choose a cheaper machine type, " +
		"or have the administrator raise the ceiling"
}

// ofCluster ends the message about the ceiling of the cluster. It never shows the spending of other namespaces.
func (e *OverError) ofCluster() string {
	cost := fmt.Sprintf("%s, which costs %s", e.InstanceType, usd.PerHour(e.Asked))
	if e.Asked > e.Ceiling+tolerance {
		return fmt.Sprintf(", too little for %s: choose a cheaper machine type, or have the administrator raise the ceiling", cost)
	}
	return fmt.Sprintf(", and too little is left for %s: the controller retries when machines of any namespace are released; "+
		"choose a cheaper machine type, or have the administrator raise the ceiling", cost)
}

func (e *OverError) of() string {
	switch e.Kind {
	case NamespaceOwn:
		return fmt.Sprintf(" (annotation of namespace %s)", e.Owner.Namespace)
	case PerNamespace:
		return fmt.Sprintf(" for namespace %s", e.Owner.Namespace)
	case PerCluster:
		return " for all namespaces together"
	default:
		return ""
	}
}

func (e *OverError) spenders() string {
	var names []string
	for _, spender := range e.Spenders[:min(len(e.Spenders), mostSpenders)] {
		names = append(names, fmt.Sprintf("%s (%s)", spender.Name, usd.PerHour(spender.HourlyPrice)))
	}
	if more := len(e.Spenders) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
