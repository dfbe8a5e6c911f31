// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// provider returns the product's provider for a cloud.
func provider(cloud Cloud) refusal.Provider {
	switch cloud {
	case Azure, AzureARM:
		return refusal.KarpenterAzure
	case AWS:
		return refusal.KarpenterAWS
	case GPUProvisioner:
		return refusal.GPUProvisioner
	case Plain:
	}
	return refusal.UnknownProvider
}

// observe returns the product's view of a refusal: a condition, or an event and no claim.
func observe(cloud Cloud, said Refusal, capacityType string) refusal.Observation {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := refusal.Observation{
		Provider: provider(cloud), UID: "u", CreatedAt: at, GPUsWanted: 1,
		Offering: refusal.Offering{InstanceType: "Standard_NC24ads_A100_v4", Family: "A100", Zone: "eastus-1", CapacityType: v1beta1.CapacityType(capacityType)},
	}
	switch said.Ending {
	case Delete:
		o.GoneAt = at.Add(time.Second)
		o.Events = []refusal.Event{{
			UID: "u", Reason: "InsufficientCapacityError", At: at.Add(time.Second),
			Message: "NodeClaim chat-0 event: insufficient capacity, " + cloud.join([]string{said.Message}),
		}}
	case Keep:
		o.Launched = refusal.Condition{Status: refusal.StatusUnknown, Reason: said.Reason, Message: said.Message, Since: at}
	case Error:
		o.Launched = refusal.Condition{Status: refusal.StatusUnknown, Reason: "LaunchFailed", Message: said.Message, Since: at}
	}
	return o
}

// TestWordsMeanWhatTheySay has the product's classifier read every possible refusal of a script.
func TestWordsMeanWhatTheySay(t *testing.T) {
	rules, err := refusal.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	all, err := vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if w.Cloud == Plain || w.Outcome == APIError {
			continue // no cloud's words, and no cloud's refusal
		}
		t.Run(string(w.Cloud)+" "+string(w.Outcome)+" "+w.Kind, func(t *testing.T) {
			want := refusal.NoCapacity
			switch {
			case w.Outcome == Quota:
				want = refusal.Quota
			case w.Kind == "unavailable":
				want = refusal.NotOffered
			}
			capacityType := "on-demand"
			if w.Kind == "spot" {
				capacityType = "spot"
			}
			rule := Rule{Outcome: w.Outcome, Cloud: w.Cloud, Kind: w.Kind}
			said := rule.refusal(Offer{SKU: "Standard_NC24ads_A100_v4", Zone: "eastus-1", CapacityType: capacityType}, false)
			o := observe(w.Cloud, said, capacityType)
			verdict := rules.Classify(o, refusal.Deadlines{}, o.CreatedAt.Add(2*time.Second))
			if verdict.Cause != want || !verdict.Final || verdict.Rule == "" {
				t.Errorf("%+v\nis read as %+v, want %s", said, verdict, want)
			}
		})
	}
}

func TestRefusalSpeaksForItself(t *testing.T) {
	offer := Offer{SKU: "Standard_NC24ads_A100_v4", Zone: "eastus-1", CapacityType: "spot"}
	for _, test := range []struct {
		reason string
		rule   Rule
		want   Refusal
	}{
		{"no cloud's words", Rule{Outcome: NoCapacity}, Refusal{Delete, "", "no capacity for Standard_NC24ads_A100_v4 (spot) in eastus-1"}},
		{"the script's words", Rule{Outcome: Quota, Message: "ask sales"}, Refusal{Keep, "SubscriptionQuotaReached", "ask sales"}},
		{"a reason needs a claim that shows it", Rule{Outcome: APIError, Reason: "Unauthorized"}, Refusal{Keep, "Unauthorized", "the cloud's API is not available"}},
		{"a family", Rule{Outcome: Quota, Cloud: GPUProvisioner, Kind: "zero"}, Refusal{Error, "", "agentPool.BeginCreateOrUpdate failed: ERROR CODE: " +
			`ErrCode_InsufficientVCPUQuota { "code": "ErrCode_InsufficientVCPUQuota", "message": "Insufficient vcpu quota requested 24, ` +
			`remaining 0 for family standardNCadsA100v4Family for region eastus." }`}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.rule.refusal(offer, false)); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}}}}
	now := metav1.Unix(1, 0)
	fault := Rule{Outcome: GPUFault, Cloud: Azure, Condition: Condition{Message: "bus error"}}.FaultCondition()
	if !fault.Apply(node, now) || fault.Apply(node, metav1.Unix(2, 0)) {
		t.Error("a condition is to change the node once")
	}
	want := []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {
		Type: "kubernetes.azure.com/NodeHealthy", Status: "False", Reason: "NvidiaXID79Error", Message: "bus error",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	if diff := cmp.Diff(want, node.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if got := (Rule{Cloud: AWS}).EvictionCondition(); got != nil {
		t.Errorf("on AWS an eviction is told by events, not by %+v", got)
	}
	if got := (Rule{Cloud: Azure}).EvictionCondition(); got == nil || got.Type != "PreemptionScheduled" {
		t.Errorf("on Azure an eviction shows as %+v, want PreemptionScheduled", got)
	}
}

func TestCombine(t *testing.T) {
	type outcome struct {
		Verdict Refusal
		All     string
	}
	del, keep, fail := Refusal{Delete, "", "none here"}, Refusal{Keep, "R", "no quota"}, Refusal{Error, "", "boom"}
	for _, test := range []struct {
		reason string
		cloud  Cloud
		said   []Refusal
		want   outcome
	}{
		{"all out", Plain, []Refusal{del, del}, outcome{Refusal{Delete, "", "none here; none here"}, "none here; none here"}},
		{"a fleet's errors", AWS, []Refusal{del}, outcome{Refusal{Delete, "", "with fleet error(s), none here"}, "with fleet error(s), none here"}},
		{"one that keeps the claim is enough", Plain, []Refusal{keep, del}, outcome{keep, "no quota; none here"}},
		{"and shows its reason before an error", Plain, []Refusal{fail, keep, fail}, outcome{keep, "boom; no quota; boom"}},
		{"an error keeps it too", Plain, []Refusal{del, fail}, outcome{Refusal{Error, "", "none here; boom"}, "none here; boom"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			var got outcome
			got.Verdict, got.All = Combine(test.cloud, test.said)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
