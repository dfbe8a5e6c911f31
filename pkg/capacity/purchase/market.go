// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package purchase chooses the plan to buy for a Workspace. Its offers are not cooling down, its machines can become useful,
// and its price is within the limits of the day and the money left. The package reserves the money and buys nothing. It
// must not know why an attempt begins or ends (package acquire does), or how machines are made.
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

// Limits of the administrator on plans. Ceilings are the Ledger's.
type Limits struct {
	// MaxHourlyPrice of Workspaces without one, in USD; 0 is none.
	MaxHourlyPrice float64
	// InstanceTypes on sale, as patterns of path.Match; empty means all.
	InstanceTypes []string
	// HostPaths are the allowed directories of nodes for weights; empty means none.
	HostPaths []string
}

// Market holds the offers for all Workspaces.
type Market struct {
	// Catalog has the machine types.
	Catalog Catalog
	// Planner and Planning make plans.
	Planner  planning.Planner
	Planning *planning.Pipeline
	// Memory holds the refusals of all Workspaces. Ledger grants the money.
	Memory *cooldown.Memory
	Ledger *ledger.Ledger
	Limits Limits
	// Costs are what namespaces spend in a month; nil if no cost ledger is kept.
	Costs Costs
	// OneMachine returns why no model of a namespace may be spread over several machines; empty if it may.
	OneMachine func(namespace string) string
	// Preflight checks purchases.
	Preflight *preflight.Checker
	// Objects are read past the caches.
	Objects planning.Objects
	Clock   clock.PassiveClock
	// NodeClasses for Workspaces to name. The first is the installation's.
	NodeClasses []v1beta1.NodeClassReference
	// Names returns the names of the machines of an attempt.
	Names func(owner capacity.Owner, attempt int32, count int) ([]string, error)

	skus func() []sku.SKU
}

// Costs are what namespaces spend.
type Costs interface {
	// Month returns the costs of a namespace in the month of a moment (UTC), and up to when they are known; an error if they
	// are unknown.
	Month(namespace string, now time.Time) (spent cost.Month, asOf time.Time, err error)
}

// Catalog has machine types.
type Catalog interface {
	ResolveSKU(name string) (sku.SKU, error)
	SKUs() []sku.SKU
}

// New returns a Market. The catalogue makes its machine types again for each caller, so they are kept.
func New(market Market) *Market {
	market.skus = sync.OnceValue(func() []sku.SKU { return market.Catalog.SKUs() })
	return &market
}

// Choice is one choice of a Workspace.
type Choice struct {
	*Market
	Buyer
	// LeftAlone are the offers in a cooldown when the last plan was made.
	LeftAlone []refusal.Offering
}

// For returns a choice of a Workspace.
func (m *Market) For(buyer Buyer) *Choice { return &Choice{Market: m, Buyer: buyer} }
