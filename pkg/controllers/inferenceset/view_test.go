// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/replicas"
)

func TestViewOf(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "why", ObservedGeneration: generation}
	}
	type seen struct {
		IsReady, IsLeaving, LacksMachine, GainsByDeletion, IsStalled, IsFailing bool
		Blocked, NotReady                                                       string
	}
	tests := []struct {
		reason string
		have   []metav1.Condition
		want   seen
	}{
		{"nothing is known yet", nil, seen{}},
		{"it answers", []metav1.Condition{condition("Ready", "True", "Serving", 2)}, seen{IsReady: true}},
		{"it answered before the edit", []metav1.Condition{condition("Ready", "True", "Serving", 1)}, seen{}},
		{"it starts", []metav1.Condition{condition("Ready", "False", "Progressing", 2)}, seen{NotReady: "Progressing"}},
		{
			"its engine refuses its flags",
			[]metav1.Condition{condition("Ready", "False", v1beta1.ReasonEngineArgsRefused, 2)},
			seen{IsFailing: true, NotReady: v1beta1.ReasonEngineArgsRefused},
		},
		{
			"one GPU is broken, and not the template",
			[]metav1.Condition{condition("Ready", "False", v1beta1.ReasonGPUUnusable, 2)},
			seen{NotReady: v1beta1.ReasonGPUUnusable},
		},
		{"its template has no plan", []metav1.Condition{
			condition("Ready", "False", "ConfigNotFound", 2), condition("Stalled", "True", "ConfigNotFound", 2),
			condition("Planned", "False", "ConfigNotFound", 2),
		}, seen{IsStalled: true, IsFailing: true, Blocked: "ConfigNotFound", NotReady: "ConfigNotFound"}},
		{"it waits for a person", []metav1.Condition{
			condition("Ready", "False", "ConfigNotFound", 2), condition("Stalled", "True", "ConfigNotFound", 2),
		}, seen{IsStalled: true, Blocked: "ConfigNotFound", NotReady: "ConfigNotFound"}},
		{"it waited for a person before the edit", []metav1.Condition{condition("Stalled", "True", "ConfigNotFound", 1)}, seen{}},
		{"it waits for a machine", []metav1.Condition{condition("ResourceReady", "False", "NoCapacity", 2)}, seen{LacksMachine: true, GainsByDeletion: true, Blocked: "NoCapacity"}},
		{"it waits for money", []metav1.Condition{
			condition("ResourceReady", "False", "SpendingCeiling", 2), condition("Stalled", "True", "SpendingCeiling", 2),
		}, seen{LacksMachine: true, GainsByDeletion: true, IsStalled: true, Blocked: "SpendingCeiling"}},
		{"a quota of the account", []metav1.Condition{condition("ResourceReady", "False", "Quota", 2)}, seen{LacksMachine: true, GainsByDeletion: true, Blocked: "Quota"}},
		{"a quota of the namespace", []metav1.Condition{condition("ResourceReady", "False", "ResourceQuotaExceeded", 2)}, seen{LacksMachine: true, GainsByDeletion: true, Blocked: "ResourceQuotaExceeded"}},
		{"the provider gave no reason", []metav1.Condition{condition("ResourceReady", "False", "TimedOut", 2)}, seen{LacksMachine: true, GainsByDeletion: true, Blocked: "TimedOut"}},
		{"the provider gave another reason", []metav1.Condition{condition("ResourceReady", "False", "Unknown", 2)}, seen{LacksMachine: true, Blocked: "Unknown"}},
		{"the next month pays", []metav1.Condition{condition("ResourceReady", "False", "MonthlyBudget", 2)}, seen{LacksMachine: true, Blocked: "MonthlyBudget"}},
		{"no zone sells the type", []metav1.Condition{condition("ResourceReady", "False", "NotOffered", 2)}, seen{LacksMachine: true, Blocked: "NotOffered"}},
		{"a lost machine is bought again", []metav1.Condition{condition("ResourceReady", "False", "Lost", 2)}, seen{}},
		{"a broken machine is replaced", []metav1.Condition{condition("ResourceReady", "False", "NeverInitialized", 2)}, seen{}},
		{"its machine is on the way", []metav1.Condition{condition("ResourceReady", "False", "NodeClaimNotReady", 2)}, seen{}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			ws := childOf(t, set())
			ws.Generation, ws.Status.Conditions = 2, test.have
			v := viewOf(ws, ws)
			got := seen{v.IsReady, v.IsLeaving, v.LacksMachine, v.GainsByDeletion, v.isStalled, v.IsFailing, v.blocked.Reason, v.notReady.Reason}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("view (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPolicyOf(t *testing.T) {
	percent, none := intstr.FromString("30%"), intstr.FromInt32(0)
	tests := []struct {
		reason string
		change func(*v1beta1.InferenceSetSpec)
		want   replicas.Policy
	}{
		{"the default", func(*v1beta1.InferenceSetSpec) {}, replicas.Policy{Replicas: 2, MaxUnavailable: 1}},
		{"no number of replicas", func(s *v1beta1.InferenceSetSpec) { s.Replicas = nil }, replicas.Policy{Replicas: 1, MaxUnavailable: 1}},
		{"OnDelete", func(s *v1beta1.InferenceSetSpec) { s.UpdateStrategy.Type = "OnDelete" }, replicas.Policy{Replicas: 2, MaxUnavailable: 1, OnDelete: true}},
		{"a limit", func(s *v1beta1.InferenceSetSpec) { s.NodeCountLimit = 3 }, replicas.Policy{Replicas: 2, MaxUnavailable: 1, NodeLimit: 3}},
		{"none unavailable, and a canary", func(s *v1beta1.InferenceSetSpec) {
			s.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{Partition: new(int32(1)), MaxUnavailable: &none}
		}, replicas.Policy{Replicas: 2, Partition: 1}},
		{"a percentage is rounded up", func(s *v1beta1.InferenceSetSpec) {
			s.Replicas = new(int32(4))
			s.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{MaxUnavailable: &percent}
		}, replicas.Policy{Replicas: 4, MaxUnavailable: 2}},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			if diff := cmp.Diff(test.want, policyOf(set(func(s *v1beta1.InferenceSet) { test.change(&s.Spec) }))); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAsWait(t *testing.T) {
	broken := errors.New("broken pipe")
	tests := []struct {
		reason string
		err    error
		want   string
	}{
		{"somebody else has the name", &apply.TakenError{Kind: "Service", Name: "chat"}, v1beta1.ReasonNameTaken},
		{"a former object is being deleted", &apply.TerminatingError{Kind: "Service", Name: "chat"}, v1beta1.ReasonProgressing},
		{"a policy refuses a replica", apierrors.NewInvalid(v1beta1.GroupVersion().WithKind("Workspace").GroupKind(), "a", nil), v1beta1.ReasonReplicaRefused},
		{"a quota refuses a replica", apierrors.NewForbidden(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), "a", broken), v1beta1.ReasonReplicaRefused},
		{"a webhook denies a replica with its default code", denied(400), v1beta1.ReasonReplicaRefused},
		{"the API server does not answer", broken, ""},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got := asWait(test.err)
			wait, isWait := errors.AsType[*waitError](got)
			if isWait != (test.want != "") || isWait && (wait.problem.Reason != test.want || wait.after == 0) {
				t.Errorf("%#v, want reason %q", got, test.want)
			}
		})
	}
}
