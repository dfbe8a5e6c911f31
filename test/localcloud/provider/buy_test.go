// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/script"
)

// scripted refuses like a cloud with the script.
func scripted(s script.Script) func(cloud.Request) error {
	player := script.NewPlayer(s)
	codes := map[script.Outcome]cloud.Code{
		script.NoCapacity: cloud.CodeNoCapacity, script.Quota: cloud.CodeQuota,
		script.APIError: cloud.CodeUnavailable, script.Hang: cloud.CodeSilent,
	}
	return func(r cloud.Request) error {
		answer := player.Answer(script.Request{
			Offer: script.Offer{SKU: r.SKU, Zone: r.Zone, CapacityType: r.CapacityType}, Claim: r.Claim, Attempt: r.Attempt,
		})
		code, refused := codes[answer.Rule.Outcome]
		if !refused {
			return nil
		}
		return &cloud.Error{
			Code: code, Message: answer.Refusal.Message, Cloud: answer.Rule.Cloud, Refusal: &answer.Refusal, Delay: answer.Rule.Delay.Duration,
		}
	}
}

// TestScriptedRefusals asks twice for a claim with a choice of two zones: a provider's second answer is part of the
// clouds' habits.
func TestScriptedRefusals(t *testing.T) {
	const allOut = "insufficient capacity, all requested instance types were unavailable during launch; all requested instance types were unavailable during launch"
	dry := func(zone string) string {
		return "InsufficientInstanceCapacity: We currently do not have sufficient small capacity in the Availability Zone you requested (" + zone +
			"). Our system will be working on provisioning additional capacity."
	}
	zonal := func(zone string) string {
		return "unable to allocate resources in the selected zone (" + zone + "). (will try a different zone to fulfill your request)"
	}
	type said struct{ Kind, Condition, Error string }
	for _, test := range []struct {
		reason string
		script script.Script
		want   []said
	}{
		{
			"AWS: all that a fleet says in one event, and the claim goes",
			script.Script{Cloud: script.AWS, Rules: []script.Rule{{Outcome: script.NoCapacity}}},
			[]said{{"InsufficientCapacity", "", "insufficient capacity, with fleet error(s), " + dry("r-1") + "; " + dry("r-2")}},
		},
		{
			"Azure: a condition first, and then the claim goes without a word about why",
			script.Script{Cloud: script.Azure, Rules: []script.Rule{{Outcome: script.NoCapacity}}},
			[]said{{"Create ZonalAllocationFailure", zonal("r-2"), "creating nodeclaim, " + zonal("r-1") + "; " + zonal("r-2")}, {"InsufficientCapacity", "", allOut}},
		},
		{
			"one zone that is out leaves the other",
			script.Script{Cloud: script.Azure, Rules: []script.Rule{{Zone: "r-1", Outcome: script.NoCapacity}}},
			[]said{{}},
		},
		{
			"gpu-provisioner: an error, again and again",
			script.Script{Cloud: script.GPUProvisioner, Rules: []script.Rule{{Outcome: script.Quota, Message: "no"}}},
			[]said{{"other", "", "no; no"}, {"other", "", "no; no"}},
		},
		{
			"an API that fails is not asked for another zone, and heals",
			script.Script{Cloud: script.AWS, Rules: []script.Rule{{Times: 1, Outcome: script.APIError}}},
			[]said{{"Create RequestLimitExceeded", "Request limit exceeded", "creating nodeclaim, Request limit exceeded"}, {}},
		},
	} {
		t.Run(test.reason, func(t *testing.T) {
			p := newTestProvider(&fakeCloud{refuse: scripted(test.script)}, nodeClass(metav1.ConditionTrue))
			var got []said
			for range test.want {
				_, err := p.Create(t.Context(), claim(demand("node.kubernetes.io/instance-type", "small"), demand(karpv1.CapacityTypeLabelKey, "on-demand")))
				outcome := said{Kind: kindOf(err)}
				if create, ok := errors.AsType[*cloudprovider.CreateError](err); ok {
					outcome.Condition = create.ConditionMessage
				}
				if err != nil {
					outcome.Error = err.Error()
				}
				got = append(got, outcome)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}

// answering is a cloud with its answers due after answered.
type answering struct {
	fakeCloud

	answered time.Duration
}

func (a *answering) Create(ctx context.Context, r cloud.Request) (cloud.Machine, error) {
	m, err := a.fakeCloud.Create(ctx, r)
	m.Answered = time.Now().Add(a.answered)
	return m, err
}

func TestCreateWaits(t *testing.T) {
	until := func(end time.Time) func(cloud.Request) error {
		return func(cloud.Request) error {
			if time.Now().Before(end) {
				return &cloud.Error{Code: cloud.CodeSilent}
			}
			return nil
		}
	}
	for _, test := range []struct {
		reason string
		cloud  func() Cloud
		// patience of the caller.
		patience time.Duration
		want     time.Duration
		kind     string
	}{
		{"for a sale that takes its time", func() Cloud { return &answering{answered: time.Minute} }, time.Hour, time.Minute, ""},
		{"for a refusal that takes its time", func() Cloud {
			slow := metav1.Duration{Duration: 20 * time.Second}
			return &fakeCloud{refuse: scripted(script.Script{Rules: []script.Rule{{Outcome: script.NoCapacity, Delay: slow}}})}
		}, time.Hour, 20 * time.Second, "InsufficientCapacity"},
		{"for a cloud that is silent, until it speaks", func() Cloud { return &fakeCloud{refuse: until(time.Now().Add(10 * time.Minute))} }, time.Hour, 10 * time.Minute, ""},
		{"and no longer than the caller", func() Cloud { return &fakeCloud{refuse: until(time.Now().Add(time.Hour))} }, time.Minute, time.Minute, "other"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTestProvider(test.cloud(), nodeClass(metav1.ConditionTrue))
				ctx, cancel := context.WithTimeout(t.Context(), test.patience)
				defer cancel()
				began := time.Now()
				_, err := p.Create(ctx, claim(demand("node.kubernetes.io/instance-type", "large")))
				if diff := cmp.Diff(test.kind, kindOf(err)); diff != "" {
					t.Errorf("kind of error (-want +got):\n%s\nerror: %v", diff, err)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("it took %s, want %s", took, test.want)
				}
			})
		})
	}
}
