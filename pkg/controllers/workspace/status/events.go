// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Event is an event to publish.
type Event struct {
	// IsWarning selects the type Warning instead of Normal.
	IsWarning bool
	Reason    string
	Message   string
}

// Reasons of events that are not reasons of conditions.
const (
	eventCreated  = "NodeClaimCreated"
	eventFallback = "FallingBack"
	// eventRecreating means that the serving machines are released before others are requested.
	eventRecreating = "Recreating"
	// eventExposed means that pods can read the metadata of their machine.
	eventExposed = "MetadataExposed"
)

// changes returns an event for each important transition between two statuses.
func changes(before, after *v1beta1.WorkspaceStatus) []Event {
	var events []Event
	for _, kind := range []string{
		v1beta1.ConditionPlanned, v1beta1.ConditionResourceReady, v1beta1.ConditionInferenceReady, v1beta1.ConditionStalled,
	} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
			continue
		}
		isLost := is.Status == metav1.ConditionFalse && was != nil && was.Status == metav1.ConditionTrue
		isStalled := kind == v1beta1.ConditionStalled
		if is.Status == metav1.ConditionTrue || isLost || isStalled {
			isWarning := isLost || isStalled || is.Reason == v1beta1.ReasonFaultRepeats
			events = append(events, Event{IsWarning: isWarning, Reason: is.Reason, Message: is.Message})
		}
	}
	return events
}

// Refusals compares two lists of attempts. It returns an event for each attempt that a refusal has ended, and for each
// machine that an attempt lost while it kept the others.
func Refusals(before, after []v1beta1.Attempt) []Event {
	var events []Event
	for i := range after {
		a := &after[i]
		isTold := refusal.Cause(a.Reason).NeedsPerson() // the condition Stalled reports it
		if a.Reason == "" || a.Reason == v1beta1.ReasonReleased || isTold || hasEnded(before, a.Number) {
			continue
		}
		message := fmt.Sprintf("attempt %d, %s: %s", a.Number, a.InstanceType, a.Message)
		if a.Fix != "" {
			message += "; " + a.Fix
		}
		events = append(events, Event{IsWarning: true, Reason: a.Reason, Message: message})
	}
	return append(events, losses(before, after)...)
}

// hasEnded reports whether the attempt of this number had ended.
func hasEnded(attempts []v1beta1.Attempt, number int32) bool {
	return slices.ContainsFunc(attempts, func(a v1beta1.Attempt) bool { return a.Number == number && a.Reason != "" })
}

// losses returns the events about machines that an attempt lost, between two statuses, while it kept the others.
func losses(before, after []v1beta1.Attempt) []Event {
	var events []Event
	for i := range after {
		for _, claim := range after[i].Claims {
			if claim.Lost == nil || after[i].Reason != "" || wasLost(before, claim.Lost) {
				continue
			}
			events = append(events, Event{IsWarning: true, Reason: claim.Lost.Reason, Message: fmt.Sprintf(
				"attempt %d, %s: machine %s is lost, the others stay: %s", after[i].Number, after[i].InstanceType, claim.Name, claim.Lost.Message)})
		}
	}
	return events
}

func wasLost(before []v1beta1.Attempt, lost *v1beta1.LostClaim) bool {
	return slices.ContainsFunc(before, func(a v1beta1.Attempt) bool {
		return slices.ContainsFunc(a.Claims, func(claim v1beta1.AttemptClaim) bool {
			return equality.Semantic.DeepEqual(claim.Lost, lost)
		})
	})
}

// happened returns the events of this pass, without the refusals that the stored status already has.
func (p pass) happened() []Event {
	events := Refusals(p.Stored.Attempts, p.Attempts.All)
	if p.Pass.ReplacesGroup && !meta.IsStatusConditionTrue(p.Stored.Conditions, v1beta1.ConditionInferenceReady) {
		events = append(events, Event{IsWarning: true, Reason: v1beta1.ReasonGroupReplaced, Message: p.Pods.Replacement})
	}
	if p.Pass.FellBackFrom != "" {
		message := fmt.Sprintf("the new plan is %s, instead of %s", p.Plan.Plan.Summary(), p.Pass.FellBackFrom)
		events = append(events, Event{Reason: eventFallback, Message: message})
	}
	if p.Pass.Recreates != "" {
		events = append(events, Event{Reason: eventRecreating, Message: p.Pass.Recreates})
	}
	if len(p.Pass.Created) > 0 {
		last := p.Attempts.All[len(p.Attempts.All)-1]
		events = append(events, Event{
			Reason: eventCreated, Message: fmt.Sprintf("requested %s: %v", last.InstanceType, p.Pass.Created),
		})
	}
	if p.Pass.Exposed != "" {
		events = append(events, Event{IsWarning: true, Reason: eventExposed, Message: p.Pass.Exposed})
	}
	return events
}
