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

// State is the state of a paid machine.
type State int

// The states. A machine is starting until a model answers on it for the first time. If it ends before that, its time is
// wasted. A leaked machine has no Workspace and is not being deleted.
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

// String returns the name in reports and metrics.
func (s State) String() string {
	return [...]string{"starting", "serving", "idle", "wasted", "leaked"}[s]
}

// Others is the Workspace or the namespace of accounts that were merged to keep the ledger small.
const Others = "(others)"

// Key identifies an account. If any field changes, another account begins, so each account has one price.
type Key struct {
	Namespace, Workspace string
	// Labels are the Workspace's labels for grouping costs: KEY=VALUE pairs, sorted and joined by commas.
	Labels       string
	InstanceType string
	CapacityType string
	// Price is the price of one machine in millionths of a USD per hour; Unpriced if it is unknown.
	Price int64
	// Source is where the price comes from.
	Source string
}

// Unpriced is the price of a machine whose price is unknown. Its time counts, but has no cost.
const Unpriced = -1

// mostPrice is the highest price: a million USD per hour. It keeps sums in range.
const mostPrice = 1_000_000_000_000

// MicroUSD converts a price in USD per hour to millionths of a USD. A negative price becomes Unpriced.
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

// Labels returns a Workspace's labels with the given names, as KEY=VALUE pairs joined by commas.
func Labels(of map[string]string, names []string) string {
	var pairs []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if value := of[name]; value != "" {
			pairs = append(pairs, name+"="+value)
		}
	}
	return strings.Join(pairs, ",")
}

func (k *Key) name() Name { return Name{Namespace: k.Namespace, Workspace: k.Workspace} }

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

// USD returns the cost in USD, for people.
func (a Amount) USD() float64 { return float64(a.Nanos) / 1e9 }

// Hours returns the machine time in hours, for people.
func (a Amount) Hours() float64 { return float64(a.Millis) / 3_600_000 }

func (a Amount) plus(b Amount) Amount {
	return Amount{Millis: sum(a.Millis, b.Millis), Nanos: sum(a.Nanos, b.Nanos)}
}

// sum adds two non-negative numbers. On overflow, it returns the largest number: a negative sum would damage all
// accounts of the shard.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// amount returns the cost of a time in milliseconds, at a price in microdollars per hour.
func amount(millis, price int64) Amount {
	if price <= 0 || millis <= 0 {
		return Amount{Millis: max(millis, 0)}
	}
	// Microdollars per hour × ms / 3,600,000 is the cost in microdollars. The cost in nanodollars is 1,000 times that.
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
	// Unsure is the part of the time, in milliseconds, for which machines are charged although no controller observed them
	// before they were found gone: at most mostGuess per machine.
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

// Total returns the sum of all states.
func (c *Cells) Total() Amount {
	var total Amount
	for _, s := range States() {
		total = total.plus(c.Of(s))
	}
	return total
}

// bound limits the unsure time to the whole time. Earlier versions counted time there that they did not charge.
func (c *Cells) bound() { c.Unsure = min(c.Unsure, c.Total().Millis) }

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

// last returns the label of the last period. The label of a coarser period sorts before the labels of its parts.
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

// sortedKeys returns the accounts in the order of the encoding.
func sortedKeys(accounts map[Key]periods) []Key {
	return slices.SortedFunc(maps.Keys(accounts), func(a, b Key) int { return a.compare(&b) })
}
