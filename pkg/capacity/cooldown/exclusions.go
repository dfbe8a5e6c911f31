// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cooldown

import (
	"slices"
	"sort"
	"time"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Exclusion is an excluded offer.
type Exclusion struct {
	Offering refusal.Offering
	Until    time.Time
	Cause    refusal.Cause
}

// Reopens returns the earliest time at which a plan is possible again: isEnough is called with the remaining
// exclusions. Zero means that no single exclusion is the obstacle.
func Reopens(excluded []Exclusion, isEnough func(excluded []Exclusion) bool) time.Time {
	var moments []time.Time
	for _, e := range excluded {
		moments = append(moments, e.Until)
	}
	slices.SortFunc(moments, time.Time.Compare)
	moments = slices.CompactFunc(moments, time.Time.Equal)
	// The later, the less is excluded.
	i := sort.Search(len(moments), func(i int) bool {
		return isEnough(slices.DeleteFunc(slices.Clone(excluded), func(e Exclusion) bool { return !e.Until.After(moments[i]) }))
	})
	if i == len(moments) {
		return time.Time{}
	}
	return moments[i]
}
