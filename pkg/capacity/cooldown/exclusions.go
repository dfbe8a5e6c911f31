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

// Reopens returns the earliest time at which a plan is possible again. isEnough reports whether a plan is possible
// with the remaining exclusions. Reopens returns zero if none is possible even after all exclusions have ended.
func Reopens(excluded []Exclusion, isEnough func(excluded []Exclusion) bool) time.Time {
	var moments []time.Time
	for _, e := range excluded {
		moments = append(moments, e.Until)
	}
	slices.SortFunc(moments, time.Time.Compare)
	moments = slices.CompactFunc(moments, time.Time.Equal)
	// The later the time, the fewer offers are excluded.
	i := sort.Search(len(moments), func(i int) bool {
		return isEnough(slices.DeleteFunc(slices.Clone(excluded), func(e Exclusion) bool { return !e.Until.After(moments[i]) }))
	})
	if i == len(moments) {
		return time.Time{}
	}
	return moments[i]
}
