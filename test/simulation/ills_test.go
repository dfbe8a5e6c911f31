// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// failureDeadline is how long pods may fail permanently before their machines are released.
const failureDeadline = 30 * time.Minute

// idleDeadline is how long machines may wait for a first ready pod: short, because people soon mend everything.
const idleDeadline = 20 * time.Minute

// ill is a fault of a Workspace's pods, from a moment on and until another; zero until is forever. The cluster refuses the
// pods, or their engine crashes: with words that no signature knows, or with those of a permanent error.
type ill struct {
	refused, unknown bool
	since, until     time.Time
}

// relapse is how soon after a fault another one may come before any pod is ready.
const relapse = 2 * time.Minute

// ills are the faults of Workspaces.
type ills map[types.UID]*ill

// of returns the current fault of the pods of an object's controller; nil if there is none.
func (known ills) of(object metav1.Object) *ill {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return nil
	}
	if is := known[owner.UID]; is != nil && is.until.IsZero() {
		return is
	}
	return nil
}

// fallIll makes the cluster refuse the pods of a Workspace, or its engine crash with a permanent error.
func (p *people) fallIll(ws *v1beta1.Workspace) {
	w := p.world
	if known := w.ills[ws.UID]; known != nil && known.until.IsZero() {
		p.cure(ws.UID)
		return
	}
	is := &ill{since: w.now()}
	is.refused, is.unknown = one(w, true, false), one(w, true, false)
	if known := w.ills[ws.UID]; known != nil && w.now().Sub(known.until) < relapse {
		is.since = known.since
	}
	w.ills[ws.UID] = is
	w.tell("the pods of %s fail from now on: refused %t, words unknown %t", ws.Name, is.refused, is.unknown)
	for _, set := range all[appsv1.StatefulSet](w.server) {
		if w.ills.of(set) == nil || is.refused {
			continue
		}
		for _, pod := range all[corev1.Pod](w.server) {
			if metav1.IsControlledBy(pod, set) && isReady(pod) {
				w.kubelets.ready(pod)
			}
		}
	}
	w.after(failureDeadline+late, func() { w.rules.checkFailing(ws.UID, is) })
	w.after(idleDeadline+late, func() { w.rules.checkIdle(ws.UID, is) })
}

// cure ends the fault of a Workspace's pods.
func (p *people) cure(ws types.UID) {
	w := p.world
	is := w.ills[ws]
	if is == nil || !is.until.IsZero() {
		return
	}
	is.until = w.now()
	w.unsettled = true
	w.tell("the pods of %s would run now", ws)
	for _, pod := range all[corev1.Pod](w.server) {
		if isCrashing(pod) {
			w.after(time.Minute, func() { w.kubelets.ready(pod) })
		}
	}
}

func isCrashing(pod *corev1.Pod) bool { return len(pod.Status.ContainerStatuses) > 0 }

// illOf is the fault of a pod: its set's controller is its Workspace. Members of a group do not crash; that is another
// story.
func (k *kubelets) illOf(pod *corev1.Pod) *ill {
	if pod.Annotations[v1beta1.AnnotationGroup] != "" {
		return nil
	}
	for _, set := range all[appsv1.StatefulSet](k.world.server) {
		if metav1.IsControlledBy(pod, set) {
			return k.world.ills.of(set)
		}
	}
	return nil
}

// crash ends the engine of a pod.
func (is *ill) crash(p *corev1.Pod, at time.Time) {
	ended := corev1.ContainerStateTerminated{ExitCode: 2, Message: "error: invalid argument: --no-such-flag", FinishedAt: metav1.NewTime(at).Rfc3339Copy()}
	if is.unknown {
		ended.Message = "RuntimeError: it did not work"
	}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(at).Rfc3339Copy(),
	}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: p.Spec.Containers[0].Name, RestartCount: 5,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &ended},
	}}
}

// refuse publishes that the cluster does not let a set create a pod, at each try of its controller.
func (k *kubelets) refuse(set *appsv1.StatefulSet) {
	w := k.world
	name := fmt.Sprintf("%s.refused", set.UID)
	if w.server.objects[events][types.NamespacedName{Namespace: set.Namespace, Name: name}] != nil {
		return
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: set.Namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{UID: set.UID}, Type: corev1.EventTypeWarning, Reason: "FailedCreate",
		Message:       "create Pod in StatefulSet failed error: pods is forbidden: exceeded quota: gpus",
		LastTimestamp: metav1.NewTime(w.now()).Rfc3339Copy(),
	}
	_ = w.server.create(event)
	w.after(10*time.Minute, func() { // the next try
		w.server.remove(event)
		w.unsettled = true
	})
}

// checkCannotServe reports machines released for pods that do not fail, or have not failed for long, and machines released
// as idle that have ever served. Was is the attempt before its end.
func (r *rules) checkCannotServe(ws *v1beta1.Workspace, was, a *v1beta1.Attempt) {
	const lag = 15 * time.Minute // of watches, and of a request that came late
	is, shortest, isIdle := r.world.ills[ws.UID], failureDeadline-relapse, isForIdle(a)
	if isIdle {
		shortest = idleDeadline - lag // its pods may have been ready for less than the lag, and no watch showed it
	}
	switch {
	case is == nil || r.world.now().Before(is.since.Add(shortest)):
		r.world.fail("attempt %d of %s ended for pods that have not failed for long: %s", a.Number, ws.Name, a.Message)
	case !is.until.IsZero() && r.world.now().After(is.until.Add(lag)):
		r.world.fail("attempt %d of %s ended for pods that do not fail any more: %s", a.Number, ws.Name, a.Message)
	case isIdle && was.AnsweredTime != nil:
		r.world.fail("attempt %d of %s ended as idle, and it answered at %s", a.Number, ws.Name, was.AnsweredTime.Format(time.TimeOnly))
	case isIdle && (was.IdleTime == nil || r.world.now().Before(was.IdleTime.Add(idleDeadline))):
		r.world.fail("attempt %d of %s ended as idle, which it had been since %s", a.Number, ws.Name, was.IdleTime)
	case isIdle:
		r.idled++
	default:
		r.released++
	}
}

// checkMark reports an attempt that has lost the record of its answer.
func (r *rules) checkMark(ws *v1beta1.Workspace, was, a *v1beta1.Attempt) {
	if r.world.isWriting && was.AnsweredTime != nil && was.StartTime.Equal(&a.StartTime) && !was.AnsweredTime.Equal(a.AnsweredTime) {
		r.world.fail("attempt %d of %s answered at %s, and its record says %s", a.Number, ws.Name, was.AnsweredTime, a.AnsweredTime)
	}
}

// checkFailing reports a machine whose pods have failed permanently for far longer than allowed.
func (r *rules) checkFailing(uid types.UID, is *ill) {
	r.checkReleased(uid, is, "its pods have failed", failureDeadline, func(a *v1beta1.Attempt) *metav1.Time { return a.FailingTime })
}

// checkIdle reports a machine that has been idle for far longer than allowed.
func (r *rules) checkIdle(uid types.UID, is *ill) {
	r.checkReleased(uid, is, "no pod was ready", idleDeadline, func(a *v1beta1.Attempt) *metav1.Time { return a.IdleTime })
}

func (r *rules) checkReleased(uid types.UID, is *ill, why string, deadline time.Duration, since func(*v1beta1.Attempt) *metav1.Time) {
	if !is.until.IsZero() || r.world.process == nil {
		return
	}
	for _, claim := range r.of(uid) {
		ws := r.ownerOf(claim)
		if ws == nil || !claim.DeletionTimestamp.IsZero() || !ws.DeletionTimestamp.IsZero() || isSpoiled(ws) {
			continue
		}
		a := attemptIn(ws, r.attemptOf(claim))
		isOverdue := a != nil && a.Reason == "" && since(a) != nil && r.world.now().Sub(since(a).Time) > deadline+20*time.Minute
		isHeld := slices.ContainsFunc(ws.Status.Attempts, func(b v1beta1.Attempt) bool { return b.Reason == "" && b.Number != a.Number })
		if isOverdue && !isHeld {
			r.world.fail("%s is kept: %s since %s", claim.Name, why, since(a).Format(time.TimeOnly))
		}
	}
}

// isForIll reports whether an attempt ended because its pods failed.
func isForIll(a *v1beta1.Attempt) bool {
	return a != nil && a.Reason == v1beta1.ReasonCannotServe && strings.Contains(a.Message, "released")
}

// isForIdle reports whether an attempt ended because no pod was ever ready on its machines.
func isForIdle(a *v1beta1.Attempt) bool {
	return isForIll(a) && strings.Contains(a.Message, "no pod was ready on them")
}
