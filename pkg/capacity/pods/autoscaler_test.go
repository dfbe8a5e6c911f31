// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// said returns an event this many seconds after the start.
func said(seconds int, reason, message string) corev1.Event {
	at := metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
	return corev1.Event{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}, Reason: reason, Message: message, FirstTimestamp: at, LastTimestamp: at,
	}
}

func TestAnswerOf(t *testing.T) {
	const (
		asking  = "pod triggered scale-up: [{aks-gpu-1-vmss 0->1 (max: 3)} {aks-gpu-2-vmss 1->2 (max: 3)}]"
		backoff = "pod didn't trigger scale-up: 1 in backoff after failed scale-up, 3 node(s) didn't match Pod's node affinity/selector"
		refused = "Failed adding 1 nodes to group aks-gpu-2-vmss due to OtherError.x; source errors: AllocationFailed"
	)
	unknown := func(seconds int, reason, message string) refusal.Condition {
		return refusal.Condition{
			Status: refusal.StatusUnknown, Reason: reason, Message: message, Since: start.Add(time.Duration(seconds) * time.Second),
		}
	}
	tests := []struct {
		reason      string
		own, groups []corev1.Event
		want        refusal.Condition
	}{
		{"nobody has answered", nil, nil, refusal.Condition{}},
		{"somebody has, about something else", []corev1.Event{said(1, "ScaleDown", "node removed by cluster autoscaler")}, nil, refusal.Condition{}},
		{"a node was asked for", []corev1.Event{said(1, triggered, asking)}, nil, unknown(1, triggered, asking)},
		{
			"the parts come in any order, and are told in one",
			[]corev1.Event{said(1, notTriggered, "pod didn't trigger scale-up: 3 max node group size reached, 12 node(s) had taint {a: b}, that the pod didn't tolerate")},
			nil,
			unknown(1, notTriggered, "pod didn't trigger scale-up: 12 node(s) had taint {a: b}, that the pod didn't tolerate, 3 max node group size reached"),
		},
		{
			"similar events were combined",
			[]corev1.Event{said(1, notTriggered, "(combined from similar events): "+backoff)},
			nil,
			unknown(1, notTriggered, backoff),
		},
		{
			"what could not be done at first was done later",
			[]corev1.Event{said(1, notTriggered, "pod didn't trigger scale-up: 1 max node group size reached"), said(9, triggered, asking)},
			nil,
			unknown(9, triggered, asking),
		},
		{
			"what happened at once is taken for the better",
			[]corev1.Event{said(1, triggered, asking), said(1, notTriggered, backoff)},
			nil,
			unknown(1, triggered, asking),
		},
		{
			"the cloud refused a group that this pod asked for",
			[]corev1.Event{said(1, triggered, asking), said(20, notTriggered, backoff)},
			[]corev1.Event{said(10, groupFailed, refused)},
			unknown(20, groupFailed, refused),
		},
		{
			"the call was refused, and the group ends with a colon",
			[]corev1.Event{said(1, triggered, asking), said(20, notTriggered, backoff)},
			[]corev1.Event{said(10, failedGroup, "Scale-up failed for group aks-gpu-1-vmss: AccessDenied")},
			unknown(20, failedGroup, "Scale-up failed for group aks-gpu-1-vmss: AccessDenied"),
		},
		{
			"another group was refused",
			[]corev1.Event{said(1, triggered, asking), said(20, notTriggered, backoff)},
			[]corev1.Event{said(10, groupFailed, "Failed adding 1 nodes to group aks-gpu-2-vmss2 due to x; source errors: y")},
			unknown(20, notTriggered, backoff),
		},
		{
			"the group was refused before this pod asked",
			[]corev1.Event{said(15, triggered, asking), said(20, notTriggered, backoff)},
			[]corev1.Event{said(10, groupFailed, refused)},
			unknown(20, notTriggered, backoff),
		},
		{
			"another pod's asking was refused",
			[]corev1.Event{said(20, notTriggered, backoff)},
			[]corev1.Event{said(10, groupFailed, refused)},
			unknown(20, notTriggered, backoff),
		},
		{
			"GKE tells it on the pod",
			[]corev1.Event{said(1, triggered, asking), said(9, failedForPod, "failed: GCE quota exceeded."), said(20, notTriggered, backoff)},
			nil,
			unknown(20, failedForPod, "failed: GCE quota exceeded."),
		},
		{
			"GKE tries another zone",
			[]corev1.Event{said(1, triggered, asking), said(9, failedForPod, "failed: GCE out of resources.")},
			nil,
			unknown(1, triggered, asking),
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, answerOf(test.own, test.groups)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnswersAreClassified: every refusing event has a rule.
func TestAnswersAreClassified(t *testing.T) {
	rules, err := refusal.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "pod didn't trigger scale-up: "
	tests := []struct {
		reason, message string
		cause           refusal.Cause
		breadth         refusal.Breadth
	}{
		{notTriggered, prefix + "12 node(s) didn't match Pod's node affinity/selector, 3 max node group size reached", refusal.Quota, refusal.SKU},
		{notTriggered, prefix + "1 in backoff after failed scale-up, 2 node(s) didn't match Pod's node affinity/selector", refusal.NoCapacity, refusal.OneOffering},
		{notTriggered, prefix + "3 node(s) didn't match Pod's node affinity/selector", refusal.NotOffered, refusal.SKU},
		{notTriggered, prefix + "1 node(s) had untolerated taint {team: research}", refusal.NotOffered, refusal.SKU},
		{notTriggered, prefix + "1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector", refusal.NotOffered, refusal.SKU},
		{notTriggered, prefix + "max total nodes in cluster reached", refusal.Quota, refusal.Everything},
		{notTriggered, prefix + "1 max cluster nvidia.com/gpu limit reached", refusal.Quota, refusal.SKU},
		{notTriggered, prefix, refusal.NotOffered, refusal.Everything},
		{failedForPod, "Node scale up in zones us-central1-a associated with this pod failed: GCE quota exceeded. Pod is at risk of not being scheduled.", refusal.Quota, refusal.SKU},
		{failedForPod, "Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources. Pod is at risk of not being scheduled.", refusal.NoCapacity, refusal.OneOffering},
		{groupTimedOut, "Nodes added to group gpu failed to register within 15m0s", refusal.NoCapacity, refusal.OneOffering},
		{failedGroup, "Scale-up failed for group gpu: OperationNotAllowed: exceeding approved standardNCADSA100v4Family Cores quota. Current Limit: 0", refusal.Quota, refusal.SKU},
	}
	for _, test := range tests {
		t.Run(test.reason+" "+test.message, func(t *testing.T) {
			o := refusal.Observation{
				Provider: refusal.ClusterAutoscaler, UID: "set-0", CreatedAt: start,
				Offering: refusal.Offering{InstanceType: "Standard_NC24ads_A100_v4", CapacityType: "on-demand"},
				Launched: refusal.Condition{Status: refusal.StatusUnknown, Reason: test.reason, Message: test.message, Since: start},
			}
			got := rules.Classify(o, refusal.Deadlines{Registered: 20 * time.Minute}, start.Add(time.Second))
			if !got.Final || got.Cause != test.cause || got.Scope.Breadth != test.breadth {
				t.Errorf("final %v, %s about %s by rule %q; want final, %s about %s",
					got.Final, got.Cause, got.Scope.Breadth, got.Rule, test.cause, test.breadth)
			}
			o.Noted = []refusal.Note{{Reason: test.reason, Message: test.message, At: start}}
			o.Launched = refusal.Condition{Status: refusal.StatusUnknown, Reason: triggered, Message: "pod triggered scale-up", Since: start.Add(time.Minute)}
			if got := rules.Classify(o, refusal.Deadlines{Registered: 20 * time.Minute}, start.Add(2*time.Minute)); got.Cause != refusal.None {
				t.Errorf("once a node is asked for: %s (%s), want nothing held against it", got.Cause, got.Message)
			}
		})
	}
}
