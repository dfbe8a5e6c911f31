// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cooldown_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// attemptsOf returns ten attempts of each of many Workspaces, at forty machine types.
func attemptsOf(workspaces int) []refusal.Attempt {
	var out []refusal.Attempt
	for w := range workspaces {
		for n := range 10 {
			a := refusedFor(fmt.Sprintf("type-%d", (w+n)%40), time.Hour)
			a.Workspace = types.UID(fmt.Sprintf("workspace-%d", w))
			a.Started = start.Add(time.Duration(n)*2*time.Hour + time.Duration(w)*time.Millisecond)
			a.Ended = a.Started.Add(time.Minute)
			out = append(out, a)
		}
	}
	return out
}

func catalogueOffers() []refusal.Offering {
	var out []refusal.Offering
	for n := range 150 {
		for _, capacityType := range []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacityReserved, v1beta1.CapacitySpot} {
			o := offer(fmt.Sprintf("type-%d", n))
			o.CapacityType = capacityType
			out = append(out, o)
		}
	}
	return out
}

func BenchmarkMemory(b *testing.B) {
	for _, workspaces := range []int{1000, 10000} {
		attempts := attemptsOf(workspaces)
		memory := &cooldown.Memory{}
		memory.Learn(start, attempts...)
		now := attempts[len(attempts)-1].Ended
		b.Run(fmt.Sprintf("known/%d", workspaces), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				at := i * 10 % len(attempts)
				memory.Learn(start, attempts[at:at+10]...)
			}
		})
		b.Run(fmt.Sprintf("new/%d", workspaces), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				a := attempts[i%len(attempts)]
				a.Ended = now.Add(time.Duration(i) * time.Millisecond)
				memory.Learn(start, a)
			}
		})
		b.Run(fmt.Sprintf("exclusions/%d", workspaces), func(b *testing.B) {
			offers := catalogueOffers()
			for w := range workspaces { // all of them request machines, as after a restart
				a := refusal.Attempt{Asker: refusal.Asker{Workspace: types.UID(fmt.Sprintf("workspace-%d", w))}, Offering: offers[w%60], Started: start}
				memory.Learn(start, a)
			}
			b.ResetTimer()
			for b.Loop() {
				memory.Exclusions(now.Add(12*time.Hour), refusal.Asker{Workspace: "me"}, slices.Values(offers))
			}
		})
	}
}
