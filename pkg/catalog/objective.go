// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Objective limits how far a plan's hourly price may exceed the cheapest, for one value of optimizeFor.
type Objective struct {
	// Name is the value of optimizeFor.
	Name v1beta1.OptimizeFor `json:"name"`
	// Premium is the largest surcharge, as a part of the cheapest price per hour.
	Premium float64 `json:"premium,omitempty"`
	// Gain is the part by which a surcharge must at least lower the price of a token.
	Gain float64 `json:"gain,omitempty"`
	// Saving is the part of the hourly price that several machines must save compared with fewer machines.
	Saving Saving `json:"saving,omitzero"`
	// LeastModelLen is the shortest sequence length in tokens to accept, if the length is unset, before the plan takes
	// a second machine or a dearer class of GPU. 0 means that sequences never become shorter.
	LeastModelLen int `json:"leastModelLen,omitempty"`
}

// Saving is the least saving of several machines, by the network between them.
type Saving struct {
	RDMA    float64 `json:"rdma,omitempty"`
	Network float64 `json:"network,omitempty"`
}

// Objective returns the limits for a value of optimizeFor. Zero limits mean the cheapest price per hour.
func (c *Catalog) Objective(aim v1beta1.OptimizeFor) Objective {
	return c.objectives[aim]
}

// validateObjective checks one objective.
func validateObjective(o Objective) error {
	var c check
	switch {
	case o.Name != v1beta1.OptimizeForBalanced && o.Name != v1beta1.OptimizeForCost && o.Name != v1beta1.OptimizeForLatency:
		c.fail("name", fmt.Sprintf("%q", o.Name), "must be Balanced, Cost or Latency")
	case o.Name == v1beta1.OptimizeForCost && o.Premium != 0:
		c.fail("premium", o.Premium, "must be 0, because Cost always takes the cheapest plan")
	case o.Name != v1beta1.OptimizeForBalanced && o.Gain != 0:
		c.fail("gain", o.Gain, "must be 0, because only Balanced pays more for cheaper tokens")
	case o.Name == v1beta1.OptimizeForLatency && o.LeastModelLen != 0:
		c.fail("leastModelLen", o.LeastModelLen, "must be 0, because Latency does not rank by the length of sequences")
	}
	c.within("leastModelLen", float64(o.LeastModelLen), 0, 1e8)
	c.within("premium", o.Premium, 0, 10)
	c.within("gain", o.Gain, 0, 0.9)
	c.within("saving.rdma", o.Saving.RDMA, 0, 0.9)
	c.within("saving.network", o.Saving.Network, 0, 0.9)
	return c.err
}

func (m *merger) indexObjectives(c *Catalog) error {
	for _, o := range m.objectives.sorted() {
		c.objectives[o.entry.Name] = o.entry
	}
	return nil
}
