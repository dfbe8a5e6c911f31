// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Objective holds the limits of a plan's price above the cheapest hour, for one value of optimizeFor.
type Objective struct {
	// Name is the value of optimizeFor.
	Name v1beta1.OptimizeFor `json:"name"`
	// Premium is the largest surcharge on the cheapest price per hour, as a part of it.
	Premium float64 `json:"premium,omitempty"`
	// Gain is the part by which a surcharge must lower the price of a token.
	Gain float64 `json:"gain,omitempty"`
	// Saving is the part of the hour that several machines must save against fewer ones.
	Saving Saving `json:"saving,omitzero"`
	// LeastModelLen is the length in tokens down to which sequences of an unset length become shorter before a second
	// machine or a dearer class of GPU is bought; 0 means that they do not.
	LeastModelLen int `json:"leastModelLen,omitempty"`
}

// Saving is the least saving of several machines, by the network between them.
type Saving struct {
	RDMA    float64 `json:"rdma,omitempty"`
	Network float64 `json:"network,omitempty"`
}

// Objective returns the limits for an aim; zero limits mean the cheapest per hour.
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
