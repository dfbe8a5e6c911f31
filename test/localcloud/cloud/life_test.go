// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/test/script"
)

func after(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// look describes the only machine, as the service and its runner show it.
func look(s *Service, runner *fakeRunner) string {
	machines := s.List()
	if len(machines) == 0 {
		return "gone"
	}
	m := machines[0]
	out := fmt.Sprintf("%s, shows %d of %d GPUs, started %d times", m.State, m.ShownGPUs(), m.GPUs, runner.started(m.Name))
	if m.Due {
		out += ", due"
	}
	if !m.Ends.IsZero() {
		out += ", ends in " + time.Until(m.Ends).String()
	}
	return out
}

func TestFates(t *testing.T) {
	const sane = "Running, shows 2 of 2 GPUs, started 1 times"
	type moment struct {
		at     time.Duration
		delete bool
		want   string
	}
	for _, test := range []struct {
		reason  string
		rule    script.Rule
		moments []moment
	}{
		{"no fate", script.Rule{Outcome: script.Accept}, []moment{{at: time.Hour, want: sane}, {delete: true, want: "gone"}}},
		{
			"a slow machine",
			script.Rule{Outcome: script.Slow, Delay: after(time.Minute)},
			[]moment{{at: time.Second, want: "Starting, shows 2 of 2 GPUs, started 0 times"}, {at: 2 * time.Minute, want: sane}},
		},
		{
			"a slow sale",
			script.Rule{Outcome: script.SlowCreate, Delay: after(time.Minute)},
			[]moment{{at: time.Second, want: "Starting, shows 2 of 2 GPUs, started 0 times"}, {at: 2 * time.Minute, want: sane}},
		},
		{
			"a machine that never registers is paid for",
			script.Rule{Outcome: script.NeverRegisters},
			[]moment{{at: time.Hour, want: "Running, shows 2 of 2 GPUs, started 0 times"}, {delete: true, want: "gone"}},
		},
		{"no GPUs", script.Rule{Outcome: script.NoGPUs}, []moment{{at: time.Hour, want: "Running, shows 0 of 2 GPUs, started 1 times"}}},
		{"too few GPUs", script.Rule{Outcome: script.NoGPUs, GPUs: 1}, []moment{{at: time.Hour, want: "Running, shows 1 of 2 GPUs, started 1 times"}}},
		{"never more than there are", script.Rule{Outcome: script.NoGPUs, GPUs: 9}, []moment{{at: time.Hour, want: sane}}},
		{
			"death",
			script.Rule{Outcome: script.Dies, After: after(time.Minute)},
			[]moment{{at: 59 * time.Second, want: sane}, {at: 61 * time.Second, want: "gone"}},
		},
		{
			"eviction",
			script.Rule{Outcome: script.Evicted, After: after(time.Minute), Notice: after(30 * time.Second)},
			[]moment{{at: 59 * time.Second, want: sane}, {at: 61 * time.Second, want: sane + ", due, ends in 29s"}, {at: 91 * time.Second, want: "gone"}},
		},
		{
			"an evicted machine that is deleted within the notice",
			script.Rule{Outcome: script.Evicted, After: after(time.Minute), Notice: after(time.Hour)},
			[]moment{{at: 61 * time.Second, want: sane + ", due, ends in 59m59s"}, {at: 62 * time.Second, delete: true, want: "gone"}},
		},
		{
			"the cloud knows nothing of a silent kubelet",
			script.Rule{Outcome: script.NotReady, After: after(time.Minute)},
			[]moment{{at: time.Hour, want: sane + ", due"}, {delete: true, want: "gone"}},
		},
		{
			"nor of broken GPUs",
			script.Rule{Outcome: script.GPUFault, After: after(time.Minute)},
			[]moment{{at: 59 * time.Second, want: sane}, {at: time.Hour, want: sane + ", due"}},
		},
		{
			"a deletion that takes its time",
			script.Rule{Outcome: script.Stuck, Delay: after(time.Minute)},
			[]moment{
				{at: time.Second, delete: true, want: "Stopping, shows 2 of 2 GPUs, started 1 times"},
				{at: 30 * time.Second, delete: true, want: "Stopping, shows 2 of 2 GPUs, started 1 times"},
				{at: 62 * time.Second, want: "gone"},
			},
		},
		{
			"a deletion that never ends",
			script.Rule{Outcome: script.Stuck},
			[]moment{{at: time.Second, delete: true, want: "Stopping, shows 2 of 2 GPUs, started 1 times"}, {at: 24 * time.Hour, want: "Stopping, shows 2 of 2 GPUs, started 1 times"}},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, runner, rules := newTestService(t)
				rules.Rules = []script.Rule{test.rule}
				m, err := s.Create(request("gpu"))
				if err != nil {
					t.Fatal(err)
				}
				for _, moment := range test.moments {
					<-time.After(time.Until(m.Created.Add(moment.at)))
					if moment.delete {
						if err := s.Delete(m.ID); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
					if diff := cmp.Diff(moment.want, look(s, runner)); diff != "" {
						t.Errorf("%s after the sale (-want +got):\n%s", moment.at, diff)
					}
				}
				s.Close()
				if left := s.List(); len(left) > 0 {
					t.Errorf("these outlived the cloud: %v", names(left))
				}
			})
		})
	}
}

func TestSlowSaleSaysWhenItIsAnswered(t *testing.T) {
	s, _, rules := newTestService(t)
	rules.Rules = []script.Rule{{Outcome: script.SlowCreate, Delay: after(time.Hour)}}
	first, err := s.Create(request("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if got := first.Answered.Sub(first.Created); got != time.Hour {
		t.Errorf("the sale is answered after %s, want 1h", got)
	}
	rules.Rules = nil
	second, err := s.Create(request("gpu"))
	if err != nil || !second.Answered.Equal(first.Answered) {
		t.Errorf("whoever asks again is answered at %s (%v), want %s", second.Answered, err, first.Answered)
	}
}

func TestSlowSaleOnAzureKeepsOnlyClaimsWithoutPoolWaiting(t *testing.T) {
	s, _, rules := newTestService(t)
	for i, test := range []struct {
		reason string
		cloud  script.Cloud
		pool   string
		want   bool
	}{
		{"a claim of nobody's pool", script.Azure, "", true},
		{"a claim of a pool", script.Azure, "parked", false},
		{"before its provider named reasons", script.AzureARM, "parked", false},
		{"another cloud makes no difference", script.Plain, "parked", true},
	} {
		t.Run(test.reason, func(t *testing.T) {
			rules.Rules = []script.Rule{{Outcome: script.SlowCreate, Cloud: test.cloud, Delay: after(time.Hour)}}
			asked := request(fmt.Sprintf("gpu-%d", i))
			if test.pool != "" {
				asked.Labels = map[string]string{labelNodePool: test.pool}
			}
			m, err := s.Create(asked)
			if err != nil {
				t.Fatal(err)
			}
			if got := !m.Answered.IsZero(); got != test.want {
				t.Errorf("kept waiting: %v, want %v", got, test.want)
			}
			if m.startsAfter() != time.Hour {
				t.Errorf("the machine starts after %s, want 1h", m.startsAfter())
			}
		})
	}
}

func TestScriptCountsClaimsAndNotZones(t *testing.T) {
	s, _, rules := newTestService(t)
	rules.Rules = []script.Rule{{SKU: "A", Times: 1, Outcome: script.NoCapacity}}
	var got []bool
	for _, asked := range []struct{ claim, attempt, zone string }{{"a", "1", "r-1"}, {"a", "1", "r-2"}, {"b", "2", "r-1"}} {
		r := request(asked.claim)
		r.Claim, r.Attempt, r.Zone = asked.claim, asked.attempt, asked.zone
		_, err := s.Create(r)
		got = append(got, err == nil)
	}
	if want := []bool{false, false, true}; !slices.Equal(want, got) {
		t.Errorf("sold: %v, want %v", got, want)
	}
}
