// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/events"
)

// Reasons of cluster autoscaler's events about a pod, and about a node group without a scale-up
// (kubernetes/autoscaler, cluster-autoscaler/processors/status/eventing_scale_up_processor.go,
// core/scaleup/orchestrator/executor.go, clusterstate/clusterstate.go; GKE adds FailedScaleUp).
const (
	triggered     = v1beta1.ReasonTriggeredScaleUp
	notTriggered  = v1beta1.ReasonNotTriggerScaleUp
	failedForPod  = "FailedScaleUp"
	failedGroup   = "FailedToScaleUpGroup"
	groupFailed   = "ScaleUpFailed"
	groupTimedOut = "ScaleUpTimedOut"
)

// inBackoff is part of a message about an earlier failure of the cloud, without the reason.
const inBackoff = "in backoff after failed scale-up"

// autoscaler is the source of its events.
const autoscaler = "cluster-autoscaler"

// aboutGroups is the subject of all events about node groups; cluster autoscaler publishes them about its
// ConfigMap.
const aboutGroups = "groups"

// EventCache selects the events to cache.
func EventCache() cache.ByObject { return events.Kept(fields.Set{"source": autoscaler}) }

// Subject returns the index key of an event: its pod's UID, or aboutGroups.
func Subject(object client.Object) []string {
	if event, ok := object.(*corev1.Event); ok && event.InvolvedObject.Kind == "ConfigMap" {
		return []string{aboutGroups}
	}
	return events.Subject(object)
}

// WorkspaceOf returns the name of the Workspace of an event's pod; empty if there is none.
func (p *Provisioner) WorkspaceOf(ctx context.Context, event client.Object) types.NamespacedName {
	pod := &corev1.Pod{}
	if !events.Involved(ctx, p.cached, event, "Pod", pod) {
		return types.NamespacedName{} // not one of ours: the cache has no others
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1beta1.LabelWorkspace]}
}

func (p *Provisioner) events(ctx context.Context, subject string) ([]corev1.Event, error) {
	if p.isDeaf {
		return nil, nil
	}
	return events.Watched(ctx, p.cached, subject)
}

// answerOf returns the last event about a waiting pod: that a node was requested, or why not, with the cloud's own
// message if there is one. It is empty without such an event.
func answerOf(own, groups []corev1.Event) refusal.Condition {
	last := events.Newest(own, func(e *corev1.Event) bool { return e.Reason == triggered || e.Reason == notTriggered })
	if last == nil {
		return refusal.Condition{}
	}
	said := refusal.Condition{
		Status: refusal.StatusUnknown, Reason: last.Reason, Message: tidy(events.Text(last)), Since: events.LastSeen(last),
	}
	if last.Reason != notTriggered || !strings.Contains(said.Message, inBackoff) {
		return said
	}
	if why := failure(own, groups); why != nil {
		said.Reason, said.Message = why.Reason, tidy(events.Text(why))
	}
	return said
}

// failure returns the event that explains why a requested node did not join, or nil.
func failure(own, groups []corev1.Event) *corev1.Event {
	if said := events.Newest(own, func(e *corev1.Event) bool { return e.Reason == failedForPod }); said != nil {
		return said
	}
	asking := events.Newest(own, func(e *corev1.Event) bool { return e.Reason == triggered })
	if asking == nil {
		return nil
	}
	return events.Newest(groups, func(e *corev1.Event) bool {
		isFailure := e.Reason == failedGroup || e.Reason == groupFailed || e.Reason == groupTimedOut
		return isFailure && !events.LastSeen(e).Before(asking.CreationTimestamp.Time) && isAbout(e, asking.Message)
	})
}

// group matches a node group in the event about a requested node: {group 0->1 (max: 3)}.
var group = regexp.MustCompile(`\{(\S+) \d+->\d+ \(max: \d+\)\}`)

// isAbout reports whether an event names one of the requested node groups.
func isAbout(event *corev1.Event, asking string) bool {
	words := strings.FieldsFunc(event.Message, func(r rune) bool { return r == ' ' })
	return slices.ContainsFunc(group.FindAllStringSubmatch(asking, -1), func(match []string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.TrimSuffix(word, ":") == match[1] })
	})
}

// The parts of a message are in any order and begin with a number of node groups.
var partBreak = regexp.MustCompile(`, (\d+ )`)

// tidy removes the parts of a message that change with each repetition.
func tidy(message string) string {
	head, rest, ok := strings.Cut(message, "scale-up: ")
	if !ok || !strings.HasPrefix(message, "pod didn't trigger") {
		return message
	}
	parts := strings.Split(partBreak.ReplaceAllString(rest, "\n$1"), "\n")
	slices.Sort(parts)
	return head + "scale-up: " + strings.Join(parts, ", ")
}
