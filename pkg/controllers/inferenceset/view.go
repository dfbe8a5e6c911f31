// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/replicas"
	"github.com/modelberth/modelberth/pkg/workload"
)

// view is one Workspace of a set: a replica, and its reported state.
type view struct {
	replicas.Replica
	// blocked explains why the Workspace waits for a person, money or a machine; empty if it does not.
	blocked problem
	// isStalled: nothing happens to it until a person acts.
	isStalled bool
	// readySince is when it became ready; zero if it is not.
	readySince time.Time
	// isUpdated: it has the template of the spec. After a rollback, that is not the current one.
	isUpdated bool
	// isLabelled: its label shows the router that it has the template of the spec.
	isLabelled bool
	// isOffSpot: it may use no spot machines.
	isOffSpot bool
	// notReady is why it does not answer; empty if it does.
	notReady problem
	// node is its first node; empty if it has none.
	node string
	// noMachine is why the allowed zones have no machine for it; empty if it has one, or may still get one there.
	noMachine problem
	// rechosen are the zones that it gets in this pass; nil if it keeps those that it has.
	rechosen *choice
}

// problem is the reason and the message of a condition.
type problem struct{ Reason, Message string }

// viewOf reads a Workspace. Only conditions for its current spec count.
func viewOf(ws, desired *v1beta1.Workspace) view {
	out := view{Replica: replicas.Replica{
		Name: ws.Name, Created: ws.CreationTimestamp.Time, IsLeaving: !ws.DeletionTimestamp.IsZero(),
		IsCurrent: isCurrent(ws, desired), CanUpdate: canUpdate(ws, desired), Nodes: int(ws.Status.TargetNodeCount),
		StaysReady: staysReady(ws, desired),
	}}
	ready := current(ws, v1beta1.ConditionReady)
	out.IsReady = ready != nil && ready.Status == metav1.ConditionTrue
	if out.IsReady {
		out.readySince = ready.LastTransitionTime.Time
	}
	if ready != nil && !out.IsReady {
		out.notReady = problem{ready.Reason, ready.Message}
	}
	if stalled := current(ws, v1beta1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
		out.isStalled, out.blocked = true, problem{stalled.Reason, stalled.Message}
	}
	if resource := current(ws, v1beta1.ConditionResourceReady); resource != nil && resource.Status != metav1.ConditionTrue {
		out.LacksMachine, out.GainsByDeletion = isShortage(resource.Reason)
		if out.LacksMachine && out.blocked == (problem{}) {
			out.blocked = problem{resource.Reason, resource.Message}
		}
	}
	out.node, out.noMachine = nodeOf(ws), noMachineFor(ws)
	out.Starting = startingSince(ws)
	out.IsFailing = blamesTemplate(out.notReady.Reason) || out.isStalled && hasNoPlan(ws)
	if plan := ws.Status.Plan; plan != nil {
		out.HourlyPrice, _ = strconv.ParseFloat(plan.HourlyPrice, 64) // empty without a known price
	}
	return out
}

// staysReady reports whether a Workspace continues to answer while it gets the current template.
func staysReady(ws, desired *v1beta1.Workspace) bool {
	return equality.Semantic.DeepEqual(machinesOf(ws.Resource), machinesOf(desired.Resource)) && hasMetadata(ws, desired) &&
		workload.TakesAdapters(ws, desired.Inference)
}

// nodeOf returns the first node of a Workspace; empty if it has none.
func nodeOf(ws *v1beta1.Workspace) string {
	if len(ws.Status.WorkerNodes) == 0 {
		return ""
	}
	return ws.Status.WorkerNodes[0]
}

// noMachineFor returns why a Workspace without nodes finds no machine in its zones: every suitable type was refused
// there, or no existing node there is suitable. A ceiling or a quota does not depend on zones.
func noMachineFor(ws *v1beta1.Workspace) problem {
	ready := current(ws, v1beta1.ConditionReady)
	isOpen := func(attempt v1beta1.Attempt) bool { return attempt.EndTime == nil }
	if ready == nil || ready.Status == metav1.ConditionTrue || nodeOf(ws) != "" || slices.ContainsFunc(ws.Status.Attempts, isOpen) {
		return problem{}
	}
	refused := unmet(ws, v1beta1.ConditionResourceReady, v1beta1.ReasonNoCapacity, v1beta1.ReasonNotOffered, v1beta1.ReasonTimedOut)
	return cmp.Or(refused, unmet(ws, v1beta1.ConditionPlanned, v1beta1.ReasonNoMachineAllowed, v1beta1.ReasonDoesNotFit))
}

// unmet returns the problem of a condition that is not True for one of some reasons.
func unmet(ws *v1beta1.Workspace, kind string, reasons ...string) problem {
	found := current(ws, kind)
	if found == nil || found.Status == metav1.ConditionTrue || !slices.Contains(reasons, found.Reason) {
		return problem{}
	}
	return problem{found.Reason, found.Message}
}

// words describes a problem of a replica, with the replica's name.
func (v *view) words(p problem) string {
	return fmt.Sprintf("Workspace %s: %s: %s", v.Name, p.Reason, p.Message)
}

// startingSince returns since when a Workspace that does not answer has its machines; zero if it answers or has none. It
// ignores that the Workspace may have answered for a moment since then.
func startingSince(ws *v1beta1.Workspace) time.Time {
	ready, resource := current(ws, v1beta1.ConditionReady), current(ws, v1beta1.ConditionResourceReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || resource == nil || resource.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return resource.LastTransitionTime.Time
}

func hasNoPlan(ws *v1beta1.Workspace) bool {
	planned := current(ws, v1beta1.ConditionPlanned)
	return planned != nil && planned.Status == metav1.ConditionFalse
}

// blamesTemplate reports whether an engine fails in a way that neither a restart nor another machine repairs.
func blamesTemplate(reason string) bool {
	return diagnosis.IsHopeless(reason) && !slices.Contains([]string{
		v1beta1.ReasonGPUUnusable, v1beta1.ReasonUnschedulable, v1beta1.ReasonPodRefused,
	}, reason)
}

// isShortage reports whether a Workspace waits for money or a machine, and whether the deletion of another replica may
// free machines for it. A deletion neither refunds a monthly budget nor makes a cloud sell a machine type, and an
// unknown refusal may have any cause. A provider that gives no reason may have no capacity.
func isShortage(reason string) (lacksMachine, gainsByDeletion bool) {
	switch reason {
	case v1beta1.ReasonSpendingCeiling, v1beta1.ReasonResourceQuotaExceeded, v1beta1.ReasonQuota, v1beta1.ReasonNoCapacity,
		v1beta1.ReasonTimedOut:
		return true, true
	case v1beta1.ReasonMonthlyBudget, v1beta1.ReasonNotOffered, v1beta1.ReasonUnknown:
		return true, false
	}
	return false, false
}

// current returns a condition if it is about the current spec, or nil.
func current(ws *v1beta1.Workspace, kind string) *metav1.Condition {
	found := meta.FindStatusCondition(ws.Status.Conditions, kind)
	if found == nil || found.ObservedGeneration != ws.Generation {
		return nil
	}
	return found
}

// replicasOf returns the replicas of views.
func replicasOf(views []view) []replicas.Replica {
	out := make([]replicas.Replica, len(views))
	for i := range views {
		out[i] = views[i].Replica
	}
	return out
}

// policyOf reads a set's spec. The API server has validated the spec; a value that only older rules admitted counts as
// its default.
func policyOf(set *v1beta1.InferenceSet) replicas.Policy {
	out := replicas.Policy{
		Replicas: set.DesiredReplicas(), NodeLimit: max(0, set.Spec.NodeCountLimit), MaxUnavailable: 1,
		OnDelete: set.Spec.UpdateStrategy.Type == v1beta1.UpdateOnDelete,
	}
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil {
		return out
	}
	if rolling.Partition != nil {
		out.Partition = int(*rolling.Partition)
	}
	if rolling.MaxUnavailable != nil {
		value, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, out.Replicas, true)
		if err == nil && value >= 0 {
			out.MaxUnavailable = value
		}
	}
	return out
}
