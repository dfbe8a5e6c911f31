// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"errors"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
)

// TestReadyIsNeverStalled computes statuses from random facts, and checks that Stalled is never True while Ready is.
func TestReadyIsNeverStalled(t *testing.T) {
	stalls := []*progress.StalledError{
		nil,
		{Reason: v1beta1.ReasonMisconfigured, Message: "mend it"},
		{Reason: v1beta1.ReasonSpecInvalid, Message: "change it"},
		{Reason: v1beta1.ReasonNameTaken, Message: "rename it"},
	}
	others := []error{nil, errors.New("the API server is away"), &progress.WaitingError{Message: "a machine is on its way"}}
	ready, stalled, both := 0, 0, 0
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 0))
		maybe := func(change func()) {
			if random.IntN(2) == 0 {
				change()
			}
		}
		s := scope.New(workspaceObject())
		s.IsPlanned, s.HasService = random.IntN(2) == 0, random.IntN(4) > 0
		maybe(func() { s.Revision = accepted(1) })
		maybe(func() {
			s.StatefulSet, s.Pods, s.Endpoints = readySet(), []corev1.Pod{podReady()}, []types.UID{podReady().UID}
		})
		maybe(func() { s.Machines = []capacity.Machine{machine()} })
		if s.Revision != nil {
			maybe(func() { surging(s) })
			maybe(func() { s.Revision.Plan.InstanceType = "Standard_ND96asr_v4" })
			maybe(func() { s.EndAttempt(refused(refusal.Misconfigured), now.Time) })
		}
		s.PlanErr = stalls[random.IntN(len(stalls))]
		err := others[random.IntN(len(others))]
		if stall := stalls[random.IntN(len(stalls))]; stall != nil {
			maybe(func() { err = stall })
			maybe(func() { s.CapacityErr = stall })
		}
		maybe(func() { s.PlanErr = nil })
		status, _ := s.Status(err, now)
		isReady, isStalled := meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionReady), meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStalled)
		if isReady {
			ready++
		}
		if isStalled {
			stalled++
		}
		if isReady && isStalled {
			both++
			t.Logf("seed %d: %s", seed, meta.FindStatusCondition(status.Conditions, v1beta1.ConditionStalled).Message)
		}
	}
	if both > 0 || ready == 0 || stalled == 0 {
		t.Errorf("Ready %d times, Stalled %d times, both %d times; want some of each, and never both", ready, stalled, both)
	}
}

// TestStricterCheckDoesNotStallWhatServes upgrades to a version that refuses a spec that was accepted before.
func TestStricterCheckDoesNotStallWhatServes(t *testing.T) {
	for _, test := range []struct {
		reason string
		serves bool
	}{
		{"its pods serve on, as planned", true},
		{"nothing serves: the check counts", false},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspaceObject()
			ws.Generation, ws.Status.ObservedGeneration = 1, 1
			// This version refuses the spec: the template cannot be read, so no pod could be rendered from it.
			ws.Inference = &v1beta1.InferenceSpec{TemplateError: "unknown field"}
			ws.Status.Plan = &v1beta1.PlanStatus{Revision: "chat-former"}
			ws.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionPlanned, Status: metav1.ConditionTrue}}
			beside, err := revision.ContextHash(revision.Inputs(ws, ""))
			if err != nil {
				t.Fatal(err)
			}
			pinned := revisionOf(ws, "chat-former", 1)
			pinned.Annotations = map[string]string{v1beta1.AnnotationContext: beside}
			pinned.Data.Raw = []byte(`{"plan":{"instanceType":"Standard_NC24ads_A100_v4","nodes":1}}`)
			kube := server(t, ws, pinned)
			r := New(Config{Client: kube, Live: kube, Provisioner: live{}, Clock: testclock.NewFakePassiveClock(now.Time)})
			s := scope.New(ws)
			if err := r.observer.observe(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if test.serves {
				s.StatefulSet = readySet()
			}
			err = r.ensurePlan(t.Context(), s)
			if hasPlan := err == nil && s.PlanErr == nil && s.Revision != nil && s.Revision.Name == "chat-former"; hasPlan != test.serves {
				t.Errorf("planned as before: %v (error %v, %v), want %v", hasPlan, err, s.PlanErr, test.serves)
			}
		})
	}
}
