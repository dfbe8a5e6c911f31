// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
	"github.com/modelberth/modelberth/pkg/request"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/wording"
)

// mostMessage is the longest message of a condition. The API server admits 32768 characters.
const mostMessage = 2048

// mostFailure is the longest explanation of a failed rollout: an Event with it must have at most 1024 characters.
const mostFailure = 900

// facts are the inputs of a set's status.
type facts struct {
	*pass
	// failure is the reason of a failed write; empty if all writes succeeded.
	failure problem
}

// count summarizes the views.
type count struct {
	live, ready, updated, updatedReady, leaving int
	nodes                                       int
	price                                       float64
	// Each is the first unready replica of its kind, or nil. unready includes all of them. blocked waits for a person,
	// money or a machine. stalled waits for a person. stuck is also stalled, and has the current template.
	blocked, stalled, stuck, unready *view
}

func (f *facts) count() count {
	var c count
	for i := range f.views {
		v := &f.views[i]
		c.price += v.HourlyPrice
		c.nodes += v.Nodes
		if v.IsLeaving {
			c.leaving++
			continue
		}
		c.live++
		c.ready += one(v.IsReady)
		c.updated += one(v.isUpdated)
		c.updatedReady += one(v.IsCurrent && v.IsReady)
		if v.IsReady {
			continue
		}
		c.unready = first(c.unready, v, true)
		c.blocked = first(c.blocked, v, v.blocked != (problem{}))
		c.stalled = first(c.stalled, v, v.isStalled)
		c.stuck = first(c.stuck, v, v.isStalled && v.IsCurrent)
	}
	return c
}

// first returns found if it is set, or else next if isOne is true.
func first(found, next *view, isOne bool) *view {
	if found == nil && isOne {
		return next
	}
	return found
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// status returns the status of a set after a pass.
func (f *facts) status(now metav1.Time) v1beta1.InferenceSetStatus {
	c := f.count()
	out := *f.set.Status.DeepCopy()
	out.ObservedGeneration = f.set.Generation
	out.Replicas, out.ReadyReplicas, out.UpdatedReplicas = int32(c.live), int32(c.ready), int32(c.updated)
	out.Selector = v1beta1.LabelInferenceSet + "=" + f.set.Name
	out.CurrentRevision, out.Rollout, out.Canary = f.current, f.rollout, f.canary
	out.HourlyPrice = ""
	if c.price > 0 {
		out.HourlyPrice = request.Price(c.price)
	}
	for _, condition := range f.conditions(c) {
		if condition.Status == "" {
			meta.RemoveStatusCondition(&out.Conditions, condition.Type)
			continue
		}
		condition.ObservedGeneration, condition.LastTransitionTime = f.set.Generation, now
		condition.Message = wording.Clip(condition.Message, mostMessage)
		meta.SetStatusCondition(&out.Conditions, condition)
	}
	return out
}

// conditions returns the conditions of a set, except Autoscaling, which another controller sets. status removes
// conditions without a status.
func (f *facts) conditions(c count) []metav1.Condition {
	if !f.set.DeletionTimestamp.IsZero() {
		message := fmt.Sprintf("waiting until %s and all machines are deleted", workspaces(c.live+c.leaving))
		return []metav1.Condition{
			no(v1beta1.ConditionReady, v1beta1.ReasonInferenceSetDeleted, message),
			no(v1beta1.ConditionInferenceSetReady, v1beta1.ReasonInferenceSetDeleted, message),
			no(v1beta1.ConditionAvailable, v1beta1.ReasonInferenceSetDeleted, message),
			yes(v1beta1.ConditionInferenceSetDeleting, v1beta1.ReasonInferenceSetDeleted, message),
		}
	}
	ready := f.ready(c)
	kaito := ready
	kaito.Type, kaito.Reason = v1beta1.ConditionInferenceSetReady, v1beta1.ReasonInferenceSetReady
	if ready.Status != metav1.ConditionTrue {
		kaito.Reason = v1beta1.ReasonInferenceSetNotReady
	}
	out := []metav1.Condition{ready, kaito, f.available(c), f.stalled(c), f.limited(c), f.autoUpgrade()}
	if f.views != nil {
		out = append(out, zoneSpread(f.set, f.target.any, f.children, f.views))
	}
	return out
}

// ready returns the condition Ready. It is True if as many replicas answer as the spec requires, and under
// RollingUpdate, if all of them have the current template.
func (f *facts) ready(c count) metav1.Condition {
	want := f.set.DesiredReplicas()
	state := fmt.Sprintf("%d/%d replicas are ready", c.ready, want)
	if c.price > 0 {
		state += ", for " + usd.PerHour(c.price) + " in all"
	}
	switch {
	case f.failure != (problem{}):
		return no(v1beta1.ConditionReady, f.failure.Reason, state+". "+f.failure.Message)
	case f.isRolledBack():
		return no(v1beta1.ConditionReady, v1beta1.ReasonRolledBack, state+". "+f.rolledBack()+f.waitsFor(c))
	case f.decision.IsRolling && c.stuck != nil:
		return no(v1beta1.ConditionReady, v1beta1.ReasonRolloutStopped, state+". "+f.stopped(c))
	case c.blocked != nil:
		return no(v1beta1.ConditionReady, v1beta1.ReasonReplicaBlocked, state+". "+c.blocked.words(c.blocked.blocked))
	case f.decision.IsRolling:
		return no(v1beta1.ConditionReady, v1beta1.ReasonRollingOut,
			fmt.Sprintf("%s, %d of them with the current template: replacing the others%s", state, c.updatedReady, f.waitsFor(c)+f.comparedWords()))
	case c.live > want:
		return no(v1beta1.ConditionReady, v1beta1.ReasonScalingDown, fmt.Sprintf("%s: deleting %s", state, workspaces(c.live-want)))
	case f.decision.IsLimited:
		return no(v1beta1.ConditionReady, v1beta1.ReasonNodeCountLimit, state+". "+f.limitWords(c))
	case c.ready < want:
		return no(v1beta1.ConditionReady, v1beta1.ReasonReplicasNotReady, state+f.waitsFor(c))
	default:
		return yes(v1beta1.ConditionReady, v1beta1.ReasonReplicasReady, state+f.canaryWords(c)+f.comparedWords())
	}
}

// canaryWords returns the end of a sentence about the requests for the new template; empty without a canary.
func (f *facts) canaryWords(c count) string {
	if f.canary == nil {
		return ""
	}
	if f.canary.Weight == nil {
		return fmt.Sprintf(". The router compares the new template (on %d of %d replicas) with the previous one", c.updated, c.live)
	}
	return fmt.Sprintf(". The router sends %d%% of the requests to the new template (on %d of %d replicas)", *f.canary.Weight, c.updated, c.live)
}

// waitsFor returns the end of a sentence, with the reason of the first unready replica.
func (f *facts) waitsFor(c count) string {
	if c.unready == nil || c.unready.notReady == (problem{}) {
		return ""
	}
	return ". " + c.unready.words(c.unready.notReady)
}

func (f *facts) stopped(c count) string {
	return fmt.Sprintf("The rollout has stopped, and the replicas that it did not reach keep the previous template. %s. "+
		"Fix the cause, or set spec.template back to the previous template", strings.TrimSuffix(c.stuck.words(c.stuck.blocked), "."))
}

// rolledBack explains why the template of the replicas differs from the one in the spec.
func (f *facts) rolledBack() string {
	progress := "have the previous template again"
	if f.decision.IsRolling || f.fails() {
		progress = "return to the previous template"
	}
	return fmt.Sprintf("spec.template failed, and the replicas %s. %s. Correct spec.template, or set it back to the previous template",
		progress, strings.TrimSuffix(f.rollout.Message, "."))
}

// failureWords explains the failure of a rollout.
func (p *pass) failureWords(failure replicas.Failure) string {
	i := slices.IndexFunc(p.views, func(v view) bool { return v.Name == failure.Replica })
	v := &p.views[i]
	text := v.words(v.notReady)
	switch {
	case v.blocked != (problem{}):
		text = v.words(v.blocked)
	case failure.IsLate:
		lack := "does not answer"
		if least := minReadyOf(p.set); least > 0 {
			lack = fmt.Sprintf("did not stay ready for %s", least)
		}
		text = fmt.Sprintf("Workspace %s has had its machines for %s and %s: %s", v.Name, deadlineOf(p.set), lack, v.notReady.Message)
	}
	return text
}

func (f *facts) available(c count) metav1.Condition {
	switch {
	case c.ready > 0:
		return yes(v1beta1.ConditionAvailable, v1beta1.ReasonReplicaAvailable,
			fmt.Sprintf("http://%s.%s leads to %d of %d replicas", f.set.Name, f.set.Namespace, c.ready, c.live))
	case f.set.DesiredReplicas() == 0:
		return no(v1beta1.ConditionAvailable, v1beta1.ReasonScaledToZero, "spec.replicas is 0: no replicas run, and no machines are kept")
	default:
		return no(v1beta1.ConditionAvailable, v1beta1.ReasonNoReplicaAvailable, "no replica is ready"+f.waitsFor(c))
	}
}

// stalled returns the condition Stalled, which is True if nothing more happens until a person acts.
func (f *facts) stalled(c count) metav1.Condition {
	switch {
	case f.failure != (problem{}) && f.failure.Reason != v1beta1.ReasonProgressing:
		return yes(v1beta1.ConditionStalled, f.failure.Reason, f.failure.Message)
	case f.isRolledBack():
		return yes(v1beta1.ConditionStalled, v1beta1.ReasonRolledBack, f.rolledBack())
	case f.decision.IsRolling && c.stuck != nil:
		return yes(v1beta1.ConditionStalled, v1beta1.ReasonRolloutStopped, f.stopped(c))
	case c.stalled != nil && c.live >= f.set.DesiredReplicas():
		return yes(v1beta1.ConditionStalled, v1beta1.ReasonReplicaBlocked, c.stalled.words(c.stalled.blocked))
	case f.decision.IsLimited && f.decision.IsIdle() && c.nodes > 0:
		return yes(v1beta1.ConditionStalled, v1beta1.ReasonNodeCountLimit, f.limitWords(c))
	default:
		return metav1.Condition{Type: v1beta1.ConditionStalled}
	}
}

func (f *facts) limited(c count) metav1.Condition {
	switch {
	case f.set.Spec.NodeCountLimit <= 0:
		return metav1.Condition{Type: v1beta1.ConditionScalingLimited}
	case f.decision.IsLimited || c.nodes > f.set.Spec.NodeCountLimit:
		return yes(v1beta1.ConditionScalingLimited, v1beta1.ReasonNodeCountLimit, f.limitWords(c))
	default:
		return no(v1beta1.ConditionScalingLimited, v1beta1.ReasonWithinLimits,
			fmt.Sprintf("the replicas use %d of the %d machines that spec.nodeCountLimit allows", c.nodes, f.set.Spec.NodeCountLimit))
	}
}

func (f *facts) limitWords(c count) string {
	if c.nodes == 0 {
		return fmt.Sprintf("spec.nodeCountLimit is %d: the set creates no further replica until the first one has a plan, which states the number of machines per replica",
			f.set.Spec.NodeCountLimit)
	}
	return fmt.Sprintf("the number of machines in use is %d, and another replica would exceed spec.nodeCountLimit (%d): raise the limit, or lower spec.replicas",
		c.nodes, f.set.Spec.NodeCountLimit)
}

// autoUpgrade returns the condition that reports an unsupported spec.autoUpgrade. A new version of the controller never
// restarts a model.
func (f *facts) autoUpgrade() metav1.Condition {
	if f.set.Spec.AutoUpgrade == nil || !f.set.Spec.AutoUpgrade.Enabled {
		return metav1.Condition{Type: v1beta1.ConditionAutoUpgrade}
	}
	return no(v1beta1.ConditionAutoUpgrade, v1beta1.ReasonNotSupported,
		"spec.autoUpgrade has no effect, because Modelberth never upgrades a running "+
			"model on its own: remove spec.autoUpgrade, and edit spec.template to upgrade, for example inference.engine.image")
}

func workspaces(n int) string {
	if n == 1 {
		return "1 Workspace"
	}
	return fmt.Sprintf("%d Workspaces", n)
}
