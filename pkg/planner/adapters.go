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

// Adapters are the low-rank (LoRA) adapters to serve with the model.
type Adapters struct {
	// Count is the number of adapters.
	Count int
	// Ranks are the ranks known before the adapters' files exist. If all ranks are known, len(Ranks) is Count.
	Ranks []int
	// IsLive: the adapters may change while the engine runs, so there may be none at its start.
	IsLive bool
}

// rank returns the highest rank, and whether it includes an assumption for unknown ranks.
func (a Adapters) rank() (highest int, assumed bool) {
	for _, rank := range a.Ranks {
		highest = max(highest, rank)
	}
	if len(a.Ranks) < a.Count || a.Count == 0 {
		return max(highest, assumedRank), true
	}
	return highest, false
}

// assumedRank stands in for unknown ranks. Most published adapters have rank 8 to 64. If the assumption is too low, the
// engine does not start. If it is too high, the engine wastes a little memory.
const assumedRank = 64

// rankFlag is the engine's flag for the highest rank of an adapter.
const rankFlag = "max-lora-rank"

// adapters returns the slots and the rank for which the engine reserves memory: a slot for every adapter, at the
// highest rank. The user may choose both.
func adapters(r Request, e *catalog.Engine) (physics.Adapters, []string, error) {
	if r.Adapters.Count == 0 && (!r.Adapters.IsLive || !e.RuntimeAdapters) {
		return physics.Adapters{}, nil, nil
	}
	told := r.Constraints.Engine
	highest, assumed := r.Adapters.rank()
	out := physics.Adapters{Slots: cmp.Or(told.AdapterSlots, r.Adapters.Count, 1), Rank: cmp.Or(told.AdapterRank, highest)}
	var warnings []string
	switch {
	case told.AdapterRank == 0 && assumed && e.Split == catalog.SplitTensor:
		warnings = append(warnings, fmt.Sprintf("inference.adapters: some ranks are unknown until the files are fetched, so the plan has room "+
			"for rank %d: set %s in inference.engine.args if a rank is higher, or to save memory if all ranks are lower", highest, rankFlag))
	case told.AdapterRank > 0 && told.AdapterRank < highest && !assumed:
		out.Rank = highest
		warnings = append(warnings, fmt.Sprintf("%s: %d is replaced by %d, the rank of an adapter", rankFlag, told.AdapterRank, highest))
	}
	var err error
	out.Rank, err = servedRank(out.Rank, e)
	return out, warnings, err
}

// servedRank returns the lowest rank that the engine supports for adapters of the given rank.
func servedRank(rank int, e *catalog.Engine) (int, error) {
	known := e.Flags[rankFlag].Values
	if len(known) == 0 {
		return rank, nil
	}
	ranks := make([]int, 0, len(known))
	for _, text := range known {
		number, _ := strconv.Atoi(text) // text that is no number supports no rank
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
		Message: fmt.Sprintf("inference.adapters: an adapter has rank %d, but engine %s serves ranks up to %d: leave this adapter out",
			rank, e.Name, ranks[len(ranks)-1]),
	}
}
