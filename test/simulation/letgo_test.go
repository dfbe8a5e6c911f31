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
)

// late is how long a machine may stand that nobody wants any more.
const late = time.Hour

// mustGo has a machine that nobody may ask for any more, but whose request was on its way, be wanted or let go
// after a while. Nothing keeps it from coming.
func (r *rules) mustGo(claim *karpv1.NodeClaim) {
	r.world.after(late, func() {
		known, _ := r.world.server.objects[claims][nameOf(claim.Name)].(*karpv1.NodeClaim)
		if known == nil || known.UID != claim.UID || !known.DeletionTimestamp.IsZero() {
			return
		}
		ws := r.ownerOf(known)
		if ws == nil || !slices.ContainsFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool {
			return a.Reason == "" && a.Number == r.attemptOf(known)
		}) {
			r.world.fail("%s came late, and nobody wants it or lets it go", claim.Name)
		}
	})
}

// checkSuspended says that a Workspace whose spec has not changed since it was suspended still holds machines.
func (r *rules) checkSuspended(before *v1beta1.Workspace) {
	for _, claim := range r.of(before.UID) {
		ws := r.ownerOf(claim)
		isAsked := ws != nil && ws.Suspend && ws.Generation == before.Generation+1 && ws.DeletionTimestamp.IsZero()
		if isAsked && claim.DeletionTimestamp.IsZero() {
			r.world.fail("%s is held although %s is suspended", claim.Name, ws.Name)
		}
	}
}

// lets says that the controller lets go of a machine: not before the status says so, and not where all machines of the
// attempt work and are wanted, or serve and are not in the way, until others have taken their place. Neither a status
// that was lost nor caches that lag are a reason.
func (r *rules) lets(claim *karpv1.NodeClaim) {
	ws := r.ownerOf(claim)
	if ws == nil || !ws.DeletionTimestamp.IsZero() || ws.Suspend || !claim.DeletionTimestamp.IsZero() {
		return
	}
	a := attemptIn(ws, r.attemptOf(claim))
	if a != nil && a.Reason == "" && slices.Contains(a.NodeClaims, claim.Name) && !r.isApart(claim) {
		r.world.fail("%s was let go although attempt %d holds it", claim.Name, a.Number)
	}
	if r.hasSuccessor(ws, claim) {
		return
	}
	switch {
	case !r.works(ws, claim):
	case ws.Generation == r.wanted[claim.UID]:
		r.world.fail("%s was let go although it works and is wanted", claim.Name)
	case a != nil && a.ReadyTime != nil && r.hasAnswering(claim) && !isRecreated(a):
		r.world.fail("%s was let go although it serves and nothing has taken its place: %s", claim.Name, a.Message)
	}
}

// isRecreated says that an attempt was ended to make room for the next one, which it says.
func isRecreated(a *v1beta1.Attempt) bool { return strings.Contains(a.Message, "are let go first") }

// hasSuccessor says whether a later attempt got its machines, in whose favour one is let go.
func (r *rules) hasSuccessor(ws *v1beta1.Workspace, claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool {
		return a.Number > r.attemptOf(claim) && a.ReadyTime != nil
	}) || slices.ContainsFunc(r.of(ws.UID), func(other *karpv1.NodeClaim) bool {
		return r.attemptOf(other) > r.attemptOf(claim) && r.works(ws, other)
	})
}

// isApart says whether a machine is in another zone than others of its attempt.
func (r *rules) isApart(claim *karpv1.NodeClaim) bool {
	zone := func(of *karpv1.NodeClaim) string { return of.Labels[corev1.LabelTopologyZone] }
	return slices.ContainsFunc(all[karpv1.NodeClaim](r.world.server), func(other *karpv1.NodeClaim) bool {
		isPeer := other.Labels[v1beta1.LabelWorkspaceUID] == claim.Labels[v1beta1.LabelWorkspaceUID] && r.attemptOf(other) == r.attemptOf(claim)
		return isPeer && zone(other) != "" && zone(other) != zone(claim)
	})
}

// hasAnswering says whether a pod answers on a machine.
func (r *rules) hasAnswering(claim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(all[corev1.Pod](r.world.server), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == nodeName(claim) && isReady(pod)
	})
}

// works says whether all machines of the attempt of a claim work.
func (r *rules) works(ws *v1beta1.Workspace, claim *karpv1.NodeClaim) bool {
	working := 0
	for _, other := range r.of(ws.UID) {
		if r.attemptOf(other) == r.attemptOf(claim) && r.world.isWorking(other) {
			working++
		}
	}
	return working > 0 && working == r.planned(ws.UID, instanceType(claim))
}
