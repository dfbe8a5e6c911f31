// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// denied is a webhook's answer.
func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "rules.team" denied the request: no such config`,
	}}
}

// TestRejectedTemplateIsRolledBack: the API server rejects each Workspace with the template, and none is changed.
func TestRejectedTemplateIsRolledBack(t *testing.T) {
	for _, edit := range []struct {
		reason string
		change func(*v1beta1.InferenceSetSpec)
	}{{"in place", breaks}, {"by a surplus replica", fixed}} {
		t.Run(edit.reason, func(t *testing.T) {
			s := newStage(t)
			s.goOn(t)
			s.reject = func(ws *v1beta1.Workspace) error {
				if ws.Inference.Config == "broken" {
					return denied(400)
				}
				return nil
			}
			s.edit(t, edit.change)
			for range 2 {
				if result := s.goOn(t); result.RequeueAfter != refused {
					t.Errorf("the next try is in %s, want %s", result.RequeueAfter, refused)
				}
				s.expect(t, v1beta1.ReasonReplicaRefused, "", "")
				s.clock.Step(refused)
			}
			s.goOn(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "")
			rollout := s.set(t).Status.Rollout
			if !strings.Contains(rollout.Message, "no such config") || rollout.UpdateTime != nil || rollout.RefusedTime != nil {
				t.Errorf("the failed rollout has %+v", rollout)
			}
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(3)) })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "", "") // a new replica has the template that the API server accepts
		})
	}
}

// TestRefusalThatIsNotTheTemplates: a rollout goes on when the refusal ends.
func TestRefusalThatIsNotTheTemplates(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), "chat", errors.New(why))
	}
	tests := []struct {
		reason  string
		refusal error
		lasts   time.Duration
	}{
		{"a quota is used up", forbidden("exceeded quota: workspaces, requested: 1, used: 2, limited: 2"), 24 * time.Hour},
		{"the controller has no right", forbidden(`User "system:serviceaccount:berth:controller" cannot patch resource "workspaces"`), 24 * time.Hour},
		{"a webhook changes its mind", denied(403), refused},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newStage(t)
			s.broken = answering()
			s.goOn(t)
			s.reject = func(*v1beta1.Workspace) error { return test.refusal }
			s.edit(t, fixed)
			s.goOn(t)
			s.clock.Step(test.lasts)
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicaRefused, "", "")
			s.reject = nil
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "broken", "broken")
		})
	}
}

// TestProtectedReplicaIsNotTheTemplates: a webhook that denies the deletion of a former replica only delays the rollout.
func TestProtectedReplicaIsNotTheTemplates(t *testing.T) {
	s := newStage(t)
	s.broken = answering()
	s.goOn(t)
	s.protects = denied(403)
	s.edit(t, fixed)
	s.goOn(t)
	s.clock.Step(24 * time.Hour)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicaRefused, "", "", "broken")
	s.protects = nil
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "broken", "broken")
}

// TestRefusalIsForgotten: a refusal counts from the last time when it began.
func TestRefusalIsForgotten(t *testing.T) {
	began := metav1.NewTime(time.Unix(1_800_000_000, 0))
	p := newPass(set())
	p.rollout = &v1beta1.RolloutStatus{RefusedTime: &began}
	now := metav1.NewTime(began.Add(usualSettling))
	if err := p.decideRefusal(nil, now, usualSettling); err != nil || p.rollout.RefusedTime != nil {
		t.Errorf("error %v and rollout %+v after a pass without a refusal", err, p.rollout)
	}
	if err := p.decideRefusal(asWait(denied(400)), now, usualSettling); err == nil || !now.Equal(p.rollout.RefusedTime) {
		t.Errorf("error %v and rollout %+v after the next refusal", err, p.rollout)
	}
}
