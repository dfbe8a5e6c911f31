// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// Adapters are low-rank adapters to serve with the model.
type Adapters struct {
	// Count of them.
	Count int
	// Ranks known before their files exist; as many as adapters if all are known.
	Ranks []int
}

// rank returns the highest rank, and whether one had to be assumed.
func (a Adapters) rank() (highest int, assumed bool) {
	for _, rank := range a.Ranks {
		highest = max(highest, rank)
	}
	if len(a.Ranks) < a.Count {
		return max(highest, assumedRank), true
	}
	return highest, false
}

// assumedRank is used for unknown ranks. Most published adapters have 8 to 64; with too low a rank an engine does not
// start, with too high a one it wastes a little memory.
const assumedRank = 64

// rankFlag is the engine's flag for the highest rank of an adapter.
const rankFlag = "max-lora-rank"

// adapters returns the engine's room for adapters: slots for all at the highest rank, or the user's choice.
func adapters(r Request, e *catalog.Engine) (physics.Adapters, []string, error) {
	if r.Adapters.Count == 0 {
		return physics.Adapters{}, nil, nil
	}
	told := r.Constraints.Engine
	highest, assumed := r.Adapters.rank()
	out := physics.Adapters{Slots: cmp.Or(told.AdapterSlots, r.Adapters.Count), Rank: cmp.Or(told.AdapterRank, highest)}
	var warnings []string
	switch {
	case told.AdapterRank == 0 && assumed && e.Split == catalog.SplitTensor:
		warnings = append(warnings, fmt.Sprintf("inference.adapters: some ranks are unknown until the files are fetched, so the plan has room "+
			"for rank %d: set %s in inference.engine.args if one is higher, or to save memory if all are lower", highest, rankFlag))
	case told.AdapterRank > 0 && told.AdapterRank < highest && !assumed:
		out.Rank = highest
		warnings = append(warnings, fmt.Sprintf("%s: %d is replaced by %d, the rank of an adapter", rankFlag, told.AdapterRank, highest))
	}
	var err error
	out.Rank, err = servedRank(out.Rank, e)
	return out, warnings, err
}

// servedRank returns the engine's least rank for adapters of a rank.
func servedRank(rank int, e *catalog.Engine) (int, error) {
	known := e.Flags[rankFlag].Values
	if len(known) == 0 {
		return rank, nil
	}
	ranks := make([]int, 0, len(known))
	for _, text := range known {
		number, _ := strconv.Atoi(text) // other text serves none
		ranks = append(ranks, number)
	}
	slices.Sort(ranks)
	for _, served := range ranks {
		if served >= rank {
			return served, nil
		}
	}
	return 0, &InfeasibleError{
		Reason: v1beta1.ReasonSpecInvalid,
		Message: fmt.Sprintf("inference.adapters: an adapter has rank %d, but engine %s serves ranks up to %d: leave it out",
			rank, e.Name, ranks[len(ranks)-1]),
	}
}
