// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"sort"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
)

// LeastMin returns the trial of a policy with the smallest minimum of replicas that reaches the goal. It returns false if
// not even the maximum reaches it.
func (t *Tuner) LeastMin(policy autoscale.Policy) (Trial, bool) {
	var out Trial
	from := policy.Min + 1
	i := sort.Search(policy.Max-policy.Min, func(i int) bool {
		next := policy
		next.Min = from + i
		trial := Try(t.Setting, t.Trace, next, t.Goal)
		isReached := trial.Attained >= t.Goal.Share
		if isReached {
			out = trial
		}
		return isReached
	})
	return out, i < policy.Max-policy.Min
}

// LongestStartUp returns the longest start-up time, of a half, a quarter and an eighth of the present one, with which a
// policy reaches the goal. It returns false if none does.
func (t *Tuner) LongestStartUp(policy autoscale.Policy) (time.Duration, Trial, bool) {
	setting := t.Setting
	for range 3 {
		setting.StartUp /= 2
		trial := Try(setting, t.Trace, policy, t.Goal)
		if trial.Attained >= t.Goal.Share {
			return setting.StartUp, trial, true
		}
	}
	return 0, Trial{}, false
}
