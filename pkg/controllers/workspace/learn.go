// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// noteAttempts counts what became of attempts of a Workspace and has all Workspaces learn from it,
// once it is written down.
func (r *Reconciler) noteAttempts(who refusal.Asker, before, after []v1beta1.Attempt) {
	r.Metrics.count(before, after)
	r.learn(who, before, after)
}

// learnUnanswered has all Workspaces learn from attempts whose write failed but may have been done: the next
// pass would find nothing new in them. One that the API server refused was made from an old Workspace.
func (r *Reconciler) learnUnanswered(err error, who refusal.Asker, before, after []v1beta1.Attempt) {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		r.learn(who, before, after)
	}
}

// learn has all Workspaces learn from what is new of attempts. Those that wait for an offer that is open since look
// again.
func (r *Reconciler) learn(who refusal.Asker, before, after []v1beta1.Attempt) {
	changed := slices.DeleteFunc(slices.Clone(after), func(a v1beta1.Attempt) bool {
		return slices.ContainsFunc(before, func(b v1beta1.Attempt) bool { return equality.Semantic.DeepEqual(a, b) })
	})
	if len(changed) == 0 {
		return
	}
	opened := r.Memory.Learn(r.Clock.Now(), r.market.Remember(who, changed)...)
	if last := &after[len(after)-1]; last.Reason != "" || last.ReadyTime != nil {
		opened = append(opened, r.Memory.Forget(who.Workspace)...)
	}
	r.wakeFor(opened)
}

// learnLaunch has all Workspaces learn that the cloud has launched a machine of an attempt, before the status says so:
// that disproves a refusal for want of quota.
func (r *Reconciler) learnLaunch(who refusal.Asker, open *v1beta1.Attempt) {
	if open.ReadyTime == nil && acquire.HasLaunched(open, "") {
		r.wakeFor(r.Memory.Learn(r.Clock.Now(), r.market.Remember(who, []v1beta1.Attempt{*open})...))
	}
}

// wakeFor has those look again that wait for what has opened.
func (r *Reconciler) wakeFor(opened []refusal.Scope) {
	now := r.Clock.Now()
	r.waiting.WakeFor(opened, func(who refusal.Asker, offers []refusal.Offering) bool { return r.Memory.IsOpen(now, who, offers) })
}

// asker is who asks for the machines of a Workspace.
func asker(ws *v1beta1.Workspace) refusal.Asker {
	return refusal.Asker{Workspace: ws.UID, Namespace: ws.Namespace}
}
