// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// State of a paid machine.
type State int

// The states. A machine starts until a model answers on it for the first time. If it ends before, its time is wasted. A
// leaked machine has no Workspace and is not being deleted.
const (
	Starting State = iota
	Serving
	Idle
	Wasted
	Leaked
	states
)

// States lists all states.
func States() []State { return []State{Starting, Serving, Idle, Wasted, Leaked} }

// String is the name in reports and metrics.
func (s State) String() string {
	return [...]string{"starting", "serving", "idle", "wasted", "leaked"}[s]
}

// Others is the Workspace, or namespace, of accounts merged to keep the ledger small.
const Others = "(others)"

// Key identifies an account. A change of any field opens another account, so each has one price.
type Key struct {
	Namespace, Workspace string
	// Labels of the Workspace for grouping costs, as KEY=VALUE, joined by commas and sorted.
	Labels       string
	InstanceType string
	CapacityType string
	// Price of one machine in millionths of a dollar per hour; Unpriced if it is unknown.
	Price int64
	// Source of the price.
	Source string
}

// Unpriced is the price of a machine without a known one. Its time counts, and it costs nothing.
const Unpriced = -1

// mostPrice keeps sums in range: a million dollars per hour.
const mostPrice = 1_000_000_000_000

// MicroUSD converts a price in USD per hour; a negative one is Unpriced.
func MicroUSD(price float64) int64 {
	if !(price >= 0) {
		return Unpriced
	}
	return int64(min(price*1e6+0.5, mostPrice))
}

// Label returns the value of one of the account's labels.
func (k *Key) Label(name string) string {
	for pair := range strings.SplitSeq(k.Labels, ",") {
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value
		}
	}
	return ""
}

// Labels joins a Workspace's labels for grouping costs.
func Labels(of map[string]string, names []string) string {
	var pairs []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if value := of[name]; value != "" {
			pairs = append(pairs, name+"="+value)
		}
	}
	return strings.Join(pairs, ",")
}

func (k *Key) compare(other *Key) int {
	return cmp.Or(
		strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Workspace, other.Workspace),
		strings.Compare(k.Labels, other.Labels), strings.Compare(k.InstanceType, other.InstanceType),
		strings.Compare(k.CapacityType, other.CapacityType), cmp.Compare(k.Price, other.Price), strings.Compare(k.Source, other.Source),
	)
}

// Amount is machine time and its cost.
type Amount struct {
	Millis int64 `json:"ms"`
	// Nanos are billionths of a dollar.
	Nanos int64 `json:"nusd,omitzero"`
}

// USD is the cost in dollars, for people.
func (a Amount) USD() float64 { return float64(a.Nanos) / 1e9 }

// Hours of machine time, for people.
func (a Amount) Hours() float64 { return float64(a.Millis) / 3_600_000 }

func (a Amount) plus(b Amount) Amount {
	return Amount{Millis: sum(a.Millis, b.Millis), Nanos: sum(a.Nanos, b.Nanos)}
}

// sum adds two non-negative amounts. On overflow, the sum stays at the largest value: a negative one would damage all
// accounts of the shard.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// amount is the cost of some time at a price in microdollars per hour.
func amount(millis, price int64) Amount {
	if price <= 0 || millis <= 0 {
		return Amount{Millis: max(millis, 0)}
	}
	// micro/h x ms / 3,600,000 is microdollars, and a thousand times that is nanodollars.
	hi, lo := bits.Mul64(uint64(price), uint64(millis))
	if hi >= nanosPerPrice {
		return Amount{Millis: millis, Nanos: mostNanos}
	}
	nanos, _ := bits.Div64(hi, lo, nanosPerPrice)
	return Amount{Millis: millis, Nanos: int64(min(nanos, mostNanos))}
}

const (
	nanosPerPrice = 3_600
	mostNanos     = 1 << 60
)

// Cells are the amounts of one account in one period.
type Cells struct {
	Starting Amount `json:"starting,omitzero"`
	Serving  Amount `json:"serving,omitzero"`
	Idle     Amount `json:"idle,omitzero"`
	Wasted   Amount `json:"wasted,omitzero"`
	Leaked   Amount `json:"leaked,omitzero"`
	// Unsure is the unobserved part of the time above, before a machine was found gone.
	Unsure int64 `json:"unsureMs,omitzero"`
	// Prompt and Output are tokens.
	Prompt int64 `json:"promptTokens,omitzero"`
	Output int64 `json:"outputTokens,omitzero"`
}

// Of returns the amount of a state.
func (c *Cells) Of(s State) Amount { return *c.of(s) }

func (c *Cells) of(s State) *Amount {
	return [...]*Amount{&c.Starting, &c.Serving, &c.Idle, &c.Wasted, &c.Leaked}[s]
}

// Total of all states.
func (c *Cells) Total() Amount {
	var total Amount
	for _, s := range States() {
		total = total.plus(c.Of(s))
	}
	return total
}

// Add adds other cells.
func (c *Cells) Add(other *Cells) {
	for _, s := range States() {
		*c.of(s) = c.of(s).plus(other.Of(s))
	}
	c.Unsure = sum(c.Unsure, other.Unsure)
	c.Prompt = sum(c.Prompt, other.Prompt)
	c.Output = sum(c.Output, other.Output)
}

// periods are the cells of an account by the label of their period.
type periods map[string]*Cells

func (p periods) at(label string) *Cells {
	cells := p[label]
	if cells == nil {
		cells = &Cells{}
		p[label] = cells
	}
	return cells
}

// move merges the cells of one period into another.
func (p periods) move(from, to string) {
	if from == to {
		return
	}
	p.at(to).Add(p[from])
	delete(p, from)
}

// last is the label of the last period. The label of a coarser period sorts before its parts.
func (p periods) last() string {
	last := ""
	for label := range p {
		last = max(last, label)
	}
	return last
}

func (p periods) clone() periods {
	out := make(periods, len(p))
	for label, cells := range p {
		kept := *cells
		out[label] = &kept
	}
	return out
}

// sortedKeys are the accounts in the order of the encoding.
func sortedKeys(accounts map[Key]periods) []Key {
	return slices.SortedFunc(maps.Keys(accounts), func(a, b Key) int { return a.compare(&b) })
}
