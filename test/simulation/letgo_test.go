// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
)

// late is the longest time of an unwanted machine.
const late = time.Hour

// mustGo requires that a machine requested too late be wanted or released after a while. Nothing keeps it from
// launching.
func (r *rules) mustGo(claim *karpv1.NodeClaim) {
	r.world.after(late, func() {
		known, _ := r.world.server.objects[claims][nameOf(claim.Name)].(*karpv1.NodeClaim)
		if known == nil || known.UID != claim.UID || !known.DeletionTimestamp.IsZero() {
			return
		}
		var held *v1beta1.Attempt
		if ws := r.ownerOf(known); ws != nil {
			held = attemptIn(ws, r.attemptOf(known))
		}
		if held == nil || held.Reason != "" {
			r.world.fail("%s came late, and nobody wants it or lets it go", claim.Name)
		}
	})
}

// judged is the end of a machine's last deadline: those of launch, registration and initialization, and an hour for an
// absent or late controller.
const judged = 2 * time.Hour

// mustBeJudged requires the release of a machine that never became usable, whatever happened to its spec.
func (r *rules) mustBeJudged(claim *karpv1.NodeClaim) {
	r.world.after(judged, func() {
		known, _ := r.world.server.objects[claims][nameOf(claim.Name)].(*karpv1.NodeClaim)
		isStuck := known != nil && known.UID == claim.UID && known.DeletionTimestamp.IsZero() &&
			!isTrue(known, karpv1.ConditionTypeInitialized)
		if isStuck {
			r.world.fail("%s never became usable, and nobody lets go of it", claim.Name)
		}
	})
}

// checkSuspended reports a Workspace with an unchanged suspended spec and machines.
func (r *rules) checkSuspended(before *v1beta1.Workspace) {
	for _, claim := range r.of(before.UID) {
		ws := r.ownerOf(claim)
		isAsked := ws != nil && ws.Suspend && ws.Generation == before.Generation+1 && ws.DeletionTimestamp.IsZero()
		if isAsked && claim.DeletionTimestamp.IsZero() {
			r.world.fail("%s is held although %s is suspended", claim.Name, ws.Name)
		}
	}
}

// lets notes the release of a machine by the controller.
func (r *rules) lets(claim *karpv1.NodeClaim) {
	ws := r.ownerOf(claim)
	if ws == nil || !ws.DeletionTimestamp.IsZero() || ws.Suspend || !claim.DeletionTimestamp.IsZero() {
		return
	}
	a := attemptIn(ws, r.attemptOf(claim))
	if a != nil && a.Reason == "" && isLost(a, claim) {
		return
	}
	if isForIll(a) {
		return
	}
	r.letsOthers(ws, claim, a)
	if a != nil && a.Reason == "" && slices.Contains(a.NodeClaims, claim.Name) && isAskedBy(a, claim) && !r.isApart(claim) {
		r.world.fail("%s was let go although attempt %d holds it", claim.Name, a.Number)
	}
	if r.hasSuccessor(ws, claim) {
		return
	}
	if ws.Generation == r.wanted[claim.UID] {
		r.letsWanted(ws, claim, a)
	}
	if a != nil && a.ReadyTime != nil && r.works(ws, claim) && r.hasAnswering(claim) && !isRecreated(a) {
		r.world.fail("%s was let go although it serves and nothing has taken its place: %s", claim.Name, a.Message)
	}
}

// isLost reports whether an open attempt has recorded the loss of a machine.
func isLost(a *v1beta1.Attempt, claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(a.Claims, func(known v1beta1.AttemptClaim) bool {
		return known.Lost != nil && known.Lost.UID == string(claim.UID)
	})
}

// letsOthers notes the release of a working machine that serves on its own, because another one of its attempt was lost.
func (r *rules) letsOthers(ws *v1beta1.Workspace, claim *karpv1.NodeClaim, a *v1beta1.Attempt) {
	isApart := ws.Inference.Template != nil && ws.Generation == r.wanted[claim.UID]
	if a != nil && isApart && a.ReadyTime != nil && a.Reason == v1beta1.ReasonLost && r.world.isWorking(claim) && !arrivedLate(a, claim) {
		r.world.fail("%s works by itself, and was let go because another machine of attempt %d was lost", claim.Name, a.Number)
	}
}

// arrivedLate reports whether a machine became usable only after its attempt had ended. The end was decided and written
// down while no machine was usable; the next controller carries it out.
func arrivedLate(a *v1beta1.Attempt, claim *karpv1.NodeClaim) bool {
	usable := claim.StatusConditions().Get(karpv1.ConditionTypeInitialized)
	return a.EndTime != nil && usable != nil && usable.LastTransitionTime.After(a.EndTime.Time)
}

// letsWanted notes the release of a machine bought for the current spec. It must not happen if all machines of its
// attempt work, or come in time, unless money is short: neither a lost status nor lagging caches are a reason.
func (r *rules) letsWanted(ws *v1beta1.Workspace, claim *karpv1.NodeClaim, a *v1beta1.Attempt) {
	switch {
	case r.works(ws, claim):
		r.world.fail("%s was let go although it works and is wanted", claim.Name)
	case a != nil && a.Reason != "" && !isRecreated(a) && !isOverLimit(a) && r.areSound(a):
		r.world.fail("%s was let go although it is on its way and wanted: %s", claim.Name, a.Message)
	}
}

// isOverLimit reports whether an attempt ended because of the price, by its own message.
func isOverLimit(a *v1beta1.Attempt) bool {
	return strings.Contains(a.Message, "ceiling") || strings.Contains(a.Message, "may no longer be bought")
}

// isRecreated reports whether an attempt ended to make room for the next one, by its own message.
func isRecreated(a *v1beta1.Attempt) bool {
	return strings.Contains(a.Message, "are released before others are bought")
}

// hasSuccessor reports whether a later attempt got its machines, in exchange for these.
func (r *rules) hasSuccessor(ws *v1beta1.Workspace, claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool {
		return a.Number > r.attemptOf(claim) && a.ReadyTime != nil
	}) || slices.ContainsFunc(r.of(ws.UID), func(other *karpv1.NodeClaim) bool {
		return r.attemptOf(other) > r.attemptOf(claim) && r.works(ws, other)
	})
}

// isApart reports whether a machine is in another zone than others of its attempt.
func (r *rules) isApart(claim *karpv1.NodeClaim) bool {
	zone := func(of *karpv1.NodeClaim) string { return of.Labels[corev1.LabelTopologyZone] }
	return slices.ContainsFunc(all[karpv1.NodeClaim](r.world.server), func(other *karpv1.NodeClaim) bool {
		isPeer := other.Labels[v1beta1.LabelWorkspaceUID] == claim.Labels[v1beta1.LabelWorkspaceUID] && r.attemptOf(other) == r.attemptOf(claim)
		return isPeer && zone(other) != "" && zone(other) != zone(claim)
	})
}

// isAskedBy reports whether a machine is of an attempt's kind: a late request of a previous controller may give its
// name to another kind.
func isAskedBy(a *v1beta1.Attempt, claim *karpv1.NodeClaim) bool {
	machine := nodeclaim.MachineOf(claim)
	return machine.InstanceType == a.InstanceType && machine.CapacityType == a.CapacityType
}

// hasAnswering reports whether a pod answers on a machine.
func (r *rules) hasAnswering(claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(all[corev1.Pod](r.world.server), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == nodeName(claim) && isReady(pod)
	})
}

// soonest is the first of the controller's own deadlines for a machine.
const soonest = 10 * time.Minute

// areSound reports whether all machines of an attempt exist, and none has been refused, has failed or is
// late.
func (r *rules) areSound(a *v1beta1.Attempt) bool {
	return len(a.NodeClaims) > 0 && !slices.ContainsFunc(a.NodeClaims, func(name string) bool {
		claim, isThere := r.world.server.objects[claims][nameOf(name)].(*karpv1.NodeClaim)
		return !isThere || !claim.DeletionTimestamp.IsZero() || r.world.lives[claim.UID].isTroubled ||
			r.world.now().Sub(claim.CreationTimestamp.Time) > soonest
	})
}

// checkEnds reports attempts that claim a refusal or a loss, without a fault of their machines.
func (r *rules) checkEnds(before, after *v1beta1.Workspace) {
	for i := range after.Status.Attempts {
		a := &after.Status.Attempts[i]
		was := attemptIn(before, a.Number)
		isEnd := a.Reason != "" && a.Reason != "Released" && was != nil && was.Reason == ""
		if was != nil {
			r.checkMark(after, was, a)
		}
		if isEnd && isForIll(a) {
			r.checkCannotServe(after, was, a)
			continue
		}
		if isEnd && r.areSound(a) {
			r.world.fail("attempt %d of %s is said to have ended with %s, and nothing is wrong with its machines: %s", a.Number, after.Name, a.Reason, a.Message)
		}
	}
}

// works reports whether all machines of the attempt of a claim work.
func (r *rules) works(ws *v1beta1.Workspace, claim *karpv1.NodeClaim) bool {
	working := 0
	for _, other := range r.of(ws.UID) {
		if r.attemptOf(other) == r.attemptOf(claim) && r.world.isWorking(other) {
			working++
		}
	}
	return working > 0 && working == r.planned(ws.UID, instanceType(claim))
}
