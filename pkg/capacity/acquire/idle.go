// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/usd"
)

// Machines may serve nobody for a reason that no rule recognises: an image that does not exist, a scheduler that does
// not run, a crash with an unknown message. So an attempt ends after a deadline if no pod has ever been ready on its
// machines. This never ends an attempt that has answered. The deadline cannot count from the creation of the machines,
// or depend on the last ready revision: an edit or an upgrade would then at once release machines that have served for
// months.

// NoteAnswered records that a pod is ready on the usable machines of an open attempt. While the pods move from one
// attempt to the next, a ready pod counts only after the rollout. Then all pods are on the machines of the pinned
// attempt.
func (a Attempts) NoteAnswered(pinned int32, isRolledOut bool, now time.Time) {
	open := a.Open()
	if len(open) == 0 {
		return
	}
	answers := open[0]
	if last := open[len(open)-1]; pinned > answers.Number && last != answers {
		if !isRolledOut {
			return
		}
		answers = last
	}
	if answers.ReadyTime != nil && answers.AnsweredTime == nil {
		answers.AnsweredTime = new(Seconds(now))
	}
}

// HasAnswered reports whether a pod was ever ready on the machines of an attempt. Attempts of earlier versions do not
// record this. Then only the condition InferenceReady can show it, if no other attempt ever had usable machines: the
// condition is True, or it changed after these machines became usable, so it was True before.
func HasAnswered(status *v1beta1.WorkspaceStatus, attempt *v1beta1.Attempt) bool {
	if attempt.AnsweredTime != nil {
		return true
	}
	isOther := func(other v1beta1.Attempt) bool { return other.Number != attempt.Number && other.ReadyTime != nil }
	if attempt.ReadyTime == nil || slices.ContainsFunc(status.Attempts, isOther) {
		return false
	}
	answers := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionInferenceReady)
	return answers != nil && (answers.Status == metav1.ConditionTrue || answers.LastTransitionTime.After(attempt.ReadyTime.Time))
}

// Of returns the newest attempt that names a machine, or nil.
func (a Attempts) Of(machine string) *v1beta1.Attempt {
	for i := range slices.Backward(a) {
		if slices.Contains(a[i].NodeClaims, machine) {
			return &a[i]
		}
	}
	return nil
}

// NoteIdle records since when the machines of the open attempt wait for a first answer, and returns the time to the
// next look; 0 for never. The deadline begins anew with an edit, and after weights have been fetched. It never begins
// before this controller has seen the wait: an attempt of an earlier version has no record of its answers.
func (s *Snapshot) NoteIdle(open *v1beta1.Attempt) time.Duration {
	now := s.Judge.Now
	if s.Pods.IsReady { // the machines may be usable since a moment ago
		s.Attempts.NoteAnswered(s.Pods.Pinned, s.Pods.IsRolledOut, now)
	}
	switch {
	case !s.mayBeIdle(open) || s.isFetching():
		open.IdleTime = nil
		return 0
	case open.IdleTime == nil || s.isEdited():
		open.IdleTime = new(Seconds(now))
	}
	if proof := s.Pods.FetchProof; proof.After(now) {
		return proof.Sub(now)
	}
	if deadline := s.Judge.IdleDeadline; deadline > 0 {
		return open.IdleTime.Add(deadline).Sub(now)
	}
	return 0
}

// isEdited reports whether the stored status is from before an edit. An edit without a plan counts once, too, because
// a person has acted.
func (s *Snapshot) isEdited() bool {
	return s.Workspace.Status.ObservedGeneration != s.Workspace.Generation
}

// mayBeIdle reports whether no pod has answered on the usable machines of an attempt. While another attempt serves,
// the latest is not idle: the pods have yet to move.
func (s *Snapshot) mayBeIdle(open *v1beta1.Attempt) bool {
	return open.ReadyTime != nil && open.AnsweredTime == nil && s.Surge.Serving == 0 && !s.Pods.IsReady
}

// isFetching reports whether a fetch of weights has proven its progress.
func (s *Snapshot) isFetching() bool {
	return !s.Pods.FetchProof.IsZero() && !s.Judge.Now.Before(s.Pods.FetchProof)
}

// idle returns the verdict on an open attempt without an answer for longer than the deadline; zero before. A fetch of
// weights that began recently may be making progress, so there is no verdict while it runs.
func (s *Snapshot) idle(open *v1beta1.Attempt) refusal.Verdict {
	deadline := s.Judge.IdleDeadline
	if deadline <= 0 || open.IdleTime == nil || !s.mayBeIdle(open) || s.isEdited() || !s.Pods.FetchProof.IsZero() ||
		s.Judge.Now.Before(open.IdleTime.Add(deadline)) {
		return refusal.Verdict{}
	}
	cost := ""
	if spent := s.spent(open); spent > 0 {
		cost = fmt.Sprintf(", at a cost of about %s", usd.Significant(spent))
	}
	waited := s.Judge.Now.Sub(open.IdleTime.Time).Truncate(time.Minute)
	return refusal.Verdict{
		Cause: refusal.CannotServe, Final: true,
		Message: fmt.Sprintf("the machines are released because no pod was ready on them for %s%s: %s",
			waited, cost, cmp.Or(s.Lookup.Fault(), "the pods reported no fault")),
	}
}

// spent returns the cost in USD of the machines of an attempt; 0 if a price is unknown.
func (s *Snapshot) spent(open *v1beta1.Attempt) float64 {
	sum := 0.0
	for _, machine := range s.Machines.Of(open) {
		if machine.HourlyPrice < 0 || machine.CreatedAt.IsZero() {
			return 0
		}
		sum += machine.HourlyPrice * max(0, s.Judge.Now.Sub(machine.CreatedAt)).Hours()
	}
	return sum
}
