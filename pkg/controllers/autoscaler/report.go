// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/wording"
)

const (
	// mostCondition is the longest message of the condition. The API server admits 32768 characters.
	mostCondition = 2048
	// settling is how long a different verdict must hold before it is reported. Otherwise a demand near a bound would
	// write the status at each look.
	settling = time.Minute
	// lastChange begins the part of a message that describes the last change.
	lastChange = ". Last change at "
)

// verdict is the content of the condition Autoscaling; the zero value removes the condition.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func invalid(err error) verdict {
	message := err.Error() + ". Until you correct the policy, spec.replicas keeps its value"
	return verdict{metav1.ConditionFalse, v1beta1.ReasonPolicyInvalid, message}
}

func standsBack(rival string) verdict {
	return verdict{
		metav1.ConditionFalse, v1beta1.ReasonAnotherAutoscaler,
		rival + " targets this InferenceSet, so spec.autoscaling has no effect: delete that object, or remove spec.autoscaling",
	}
}

// refused returns the verdict after the API server refused a write. Each look tries the write again.
func refused(err error) verdict {
	text := err.Error()
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		text = status.ErrStatus.Message
	}
	return verdict{
		metav1.ConditionFalse, v1beta1.ReasonScaleRefused,
		"the API server rejects the new number of replicas: " + text,
	}
}

// verdictOf describes a decision in words that hold as long as the kind of the decision. Current figures are in events
// and metrics.
func verdictOf(policy *autoscale.Policy, decision *autoscale.Decision, seen *observed) verdict {
	switch {
	case len(seen.silent) > 0:
		return verdict{
			metav1.ConditionFalse, v1beta1.ReasonSignalsMissing,
			fmt.Sprintf("Workspace %s %s: its load is unknown, so it counts as busy, and low demand deletes no replica",
				seen.silent[0].replica, seen.silent[0].problem),
		}
	case decision.Reason == autoscale.NoSignals:
		return verdict{
			metav1.ConditionFalse, v1beta1.ReasonSignalsMissing,
			"no engine reports a metric of the policy, so spec.replicas keeps its value: set spec.autoscaling.targets to metrics that the engine reports",
		}
	case decision.Reason == autoscale.AtMaximum && decision.Replicas == 0:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonAtMaximum,
			"no replica runs, because the maximum is 0 at present: raise the maximum, or wait for the end of the schedule that sets it",
		}
	case decision.Replicas == 0 && decision.Reason != autoscale.AtPriceCap:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonAtZero,
			"no replica runs until a request arrives: the router, or the annotation " + v1beta1.AnnotationWake + ", starts one",
		}
	case decision.Reason == autoscale.AtMaximum:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonAtMaximum,
			fmt.Sprintf("the demand exceeds the maximum, currently %s: raise the maximum, or accept a queue", count(decision.Replicas)),
		}
	case decision.Reason == autoscale.AtPriceCap && seen.signals.ReplicaPrice <= 0:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonAtPriceCap,
			"no replica is added until the first one has a plan, because the price of a replica is unknown until " +
				"then, and maxHourlyPrice limits the total",
		}
	case decision.Reason == autoscale.AtPriceCap:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonAtPriceCap,
			fmt.Sprintf("more than %s would cost more than maxHourlyPrice: raise maxHourlyPrice, or accept a queue", count(decision.Replicas)),
		}
	default:
		return verdict{
			metav1.ConditionTrue, v1beta1.ReasonFollowsDemand,
			fmt.Sprintf("the number of replicas follows the demand, between %d and %d", policy.Min, policy.Max),
		}
	}
}

// changeWords describes a change for the condition.
func changeWords(at time.Time, from int, decision *autoscale.Decision) string {
	return fmt.Sprintf("%s%s: from %d to %s, %s: %s", lastChange, at.UTC().Format(time.RFC3339), from, count(decision.Replicas),
		decision.Reason, decision.Message)
}

func count(replicas int) string {
	if replicas == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", replicas)
}

// report writes the condition if it differs from the stored one. m is nil if the set has no memory.
func (r *Reconciler) report(ctx context.Context, set *v1beta1.InferenceSet, m *memory, v verdict) error {
	stored := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionAutoscaling)
	if m != nil {
		v = m.steady(stored, v, set.Generation, r.Clock.Now())
	}
	before := set.DeepCopy()
	if v == (verdict{}) {
		meta.RemoveStatusCondition(&set.Status.Conditions, v1beta1.ConditionAutoscaling)
	} else {
		meta.SetStatusCondition(&set.Status.Conditions, metav1.Condition{
			Type: v1beta1.ConditionAutoscaling, Status: v.status, Reason: v.reason, Message: wording.Clip(v.message, mostCondition),
			ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	}
	if equality.Semantic.DeepEqual(before.Status, set.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// steady returns the verdict to report. Without a change of the spec, a verdict that differs from the stored condition
// must hold for some time first. After a restart, steady takes the description of the last change from the condition,
// only to show it.
func (m *memory) steady(stored *metav1.Condition, v verdict, generation int64, now time.Time) verdict {
	isRefused := v.reason == v1beta1.ReasonScaleRefused && stored != nil && stored.Reason != v.reason
	if stored == nil || stored.ObservedGeneration != generation || !isOfDemand(stored.Reason) || isRefused {
		m.pending = ""
		return m.withChange(v)
	}
	said, change, hasChange := strings.Cut(stored.Message, lastChange)
	if m.lastChange == "" && hasChange {
		m.lastChange = lastChange + change
	}
	if said == v.message && stored.Reason == v.reason {
		m.pending = ""
		return m.withChange(v)
	}
	if m.pending != v.message {
		m.pending, m.pendingSince = v.message, now
	}
	if waited := now.Sub(m.pendingSince); waited >= settling || waited < 0 {
		m.pending = ""
		return m.withChange(v)
	}
	return m.withChange(verdict{stored.Status, stored.Reason, said})
}

// isOfDemand reports whether a reason may change with the demand, not only with the spec or another autoscaler.
func isOfDemand(reason string) bool {
	return reason != v1beta1.ReasonPolicyInvalid && reason != v1beta1.ReasonAnotherAutoscaler
}

func (m *memory) withChange(v verdict) verdict {
	v.message += m.lastChange
	return v
}
