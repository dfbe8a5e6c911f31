// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// rejection turns the API server's rejection of something other than the template into a waitError.
func rejection(err error, what string) error {
	if !isRejected(err) {
		return err
	}
	return &waitError{problem: problem{v1beta1.ReasonReplicaRefused, "The API server rejects " + what + ": " + err.Error()}, after: refused}
}

// asWait turns an error that a person must fix, or that passes soon, into a waitError.
func asWait(err error) error {
	if taken, ok := errors.AsType[*apply.TakenError](err); ok {
		return &waitError{problem: problem{v1beta1.ReasonNameTaken, taken.Error()}, after: refused}
	}
	if former, ok := errors.AsType[*apply.TerminatingError](err); ok {
		return &waitError{problem: problem{v1beta1.ReasonProgressing, former.Error()}, after: leaving}
	}
	if isRejected(err) {
		why := "The API server rejects Workspaces made from this template: " + err.Error()
		return &waitError{problem{v1beta1.ReasonReplicaRefused, why}, refused, apierrors.IsInvalid(err) || isDenied(err)}
	}
	return err
}

// isRejected reports whether the API server would reject the same object again.
func isRejected(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || isDenied(err)
}

// isDenied reports whether a policy or a webhook rejects the content of an object. A quota or missing permissions also
// forbid a write, but their errors lack these words. A webhook chooses the code of its answer; the default is 400.
func isDenied(err error) bool {
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		return false
	}
	return strings.Contains(err.Error(), "denied the request") || strings.Contains(err.Error(), "denied request")
}

// decideRefusal decides, after the writes of a pass, whether the rollout fails because the API server rejects the
// template. As with other failures, that has to last. It returns the error to report.
func (p *pass) decideRefusal(err error, now metav1.Time, settling time.Duration) error {
	if p.rollout == nil || p.rollout.FailedTime != nil {
		return err
	}
	if was := p.set.Status.Rollout; len(p.decision.Update) > 0 && !p.hasUpdated { // a rejected update restarts nothing
		p.rollout.UpdateTime = nil
		if was != nil && was.Revision == p.rollout.Revision {
			p.rollout.UpdateTime = was.UpdateTime
		}
	}
	wait, ok := errors.AsType[*waitError](err)
	switch {
	case !ok || !wait.blamesTemplate:
		p.rollout.RefusedTime = nil
		return err
	case p.rollout.RefusedTime == nil:
		p.rollout.RefusedTime = &now
		return err
	case now.Before(&metav1.Time{Time: p.rollout.RefusedTime.Add(settling)}):
		return err
	}
	p.fail(now, wait.problem.Message)
	return nil
}
