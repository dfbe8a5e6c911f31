// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package purchase chooses the plan to buy for a Workspace. The offer of such a plan is not cooling down, its machines
// can become useful, and its price is within the current limits and the remaining money. The package reserves the
// money, but buys nothing. It must not depend on why an attempt begins or ends (package acquire decides that), or on
// how machines are created.
package purchase

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/ledger"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/sku"
)

// Limits are the administrator's limits on purchases. They can change while the controller runs, and a pass uses one
// value.
type Limits struct {
	// Ceilings are the ceilings on spending.
	Ceilings ledger.Ceilings
	// MaxHourlyPrice is the limit for Workspaces without their own, in USD per hour; 0 means no limit.
	MaxHourlyPrice float64
	// InstanceTypes are the allowed machine types, as patterns of path.Match; empty means all.
	InstanceTypes []string
}

// Always returns the same limits. Its method value is a source of limits that never change.
func (l Limits) Always() Limits { return l }

// Market holds the offers for all Workspaces.
type Market struct {
	// Catalog lists the machine types.
	Catalog Catalog
	// Planner and Planning make plans.
	Planner  planning.Planner
	Planning *planning.Pipeline
	// Memory has the refusals of all Workspaces. Ledger grants the money.
	Memory *cooldown.Memory
	Ledger *ledger.Ledger
	// CurrentLimits returns the present limits. A pass calls it once.
	CurrentLimits func() Limits
	// Costs reports what namespaces spend in a month; nil if this installation keeps no cost ledger.
	Costs Costs
	// OneMachine returns why no model of a namespace may be spread over several machines; empty if it may.
	OneMachine func(namespace string) string
	// Preflight checks purchases.
	Preflight *preflight.Checker
	// Objects reads from the API server, past the caches.
	Objects planning.Objects
	Clock   clock.PassiveClock
	// NodeClasses are the node classes that Workspaces may name. The first is the installation's default.
	NodeClasses []v1beta1.NodeClassReference
	// Names returns the names of the machines of an attempt.
	Names func(owner capacity.Owner, attempt int32, count int) ([]string, error)

	skus func() []sku.SKU
}

// Costs reports what namespaces spend.
type Costs interface {
	// Month returns the costs of a namespace in the current month (UTC), and up to when they are known; an error if
	// they are unknown.
	Month(namespace string, now time.Time) (spent cost.Month, asOf time.Time, err error)
}

// Catalog has machine types.
type Catalog interface {
	ResolveSKU(name string) (sku.SKU, error)
	SKUs() []sku.SKU
}

// New returns a Market. It keeps the machine types, because the catalogue builds them anew for each caller.
func New(market Market) *Market {
	market.skus = sync.OnceValue(func() []sku.SKU { return market.Catalog.SKUs() })
	return &market
}

// Choice is one choice of a plan for a Workspace.
type Choice struct {
	*Market
	Buyer
	// LeftAlone are the offers that were cooling down when the last plan was made.
	LeftAlone []refusal.Offering
}

// For returns a choice for a Workspace.
func (m *Market) For(buyer Buyer) *Choice { return &Choice{Market: m, Buyer: buyer} }
