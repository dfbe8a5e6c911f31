// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolate allows the engines of a group to start once a probe shows that other pods cannot reach the group. It
// must not depend on plans or machines.
package isolate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/workload"
)

const (
	// programmedWithin is how long a network plug-in may take to apply NetworkPolicies to a new pod. Until then, some
	// plug-ins admit all traffic.
	programmedWithin = time.Minute
	// probeAgain is the time to the next probe of a group that may soon be isolated. probeExposed is that time for an
	// exposed group.
	probeAgain   = 5 * time.Second
	probeExposed = time.Minute
)

// Starter allows groups to start.
type Starter struct {
	Client client.Writer
	// Guard decides whether several machines may serve one model; nil always allows it.
	Guard *isolation.Guard
	Clock clock.PassiveClock
}

// Start allows the engines of a group of count members to start, or returns an error that explains why they wait. If
// again is not 0, the caller calls Start again after that time.
func (s *Starter) Start(ctx context.Context, group isolation.Group, all []*corev1.Pod, count int) (again time.Duration, err error) {
	held := slices.DeleteFunc(slices.Clone(all), func(pod *corev1.Pod) bool { return !workload.IsHeld(pod) })
	if len(held) == 0 {
		return 0, nil
	}
	if !s.Guard.HoldsGroups() { // the pods were rendered under another policy
		return 0, writeIsolation(ctx, s.Client, held, v1beta1.IsolationWaived)
	}
	members := membersOf(all)
	if len(members) < count {
		return 0, nil // an event of the missing pods triggers the next pass
	}
	found, isProbed := s.Guard.Check(ctx, group, members)
	if ctx.Err() != nil {
		return 0, fmt.Errorf("probing the pods of a group: %w", ctx.Err())
	}
	switch {
	case !isProbed:
		return probeAgain, nil
	case found.Outcome == isolation.Isolated:
		return 0, writeIsolation(ctx, s.Client, held, v1beta1.IsolationFound)
	case found.Outcome == isolation.Exposed && s.Clock.Since(lastAgent(all)) >= programmedWithin:
		s.Guard.Expose(group, found)
		return 0, &progress.StalledError{
			Reason: v1beta1.ReasonGroupNotIsolated, RetryAfter: probeExposed,
			Message: found.Message + ": the engines do not start, because any client that reaches them could run code in them; delete a " +
				"NetworkPolicy of the namespace that admits other pods, or install a network plug-in that enforces NetworkPolicies, or " +
				"allow a machine type that holds the model alone, or have the administrator set multiNode to Allow",
		}
	default:
		return 0, &progress.WaitingError{
			Reason: v1beta1.ReasonGroupNotIsolated, After: probeAgain,
			Message: "the engines start once the controller has verified that other pods cannot reach them: " + found.Message,
		}
	}
}

// membersOf returns the pods whose agents run.
func membersOf(pods []*corev1.Pod) []isolation.Member {
	var out []isolation.Member
	for _, pod := range pods {
		if pod.Status.PodIP != "" && !agentSince(pod).IsZero() {
			out = append(out, isolation.Member{Name: pod.Name, ID: string(pod.UID), IP: pod.Status.PodIP})
		}
	}
	return out
}

// agentSince returns the start of a pod's agent; zero if it does not run.
func agentSince(pod *corev1.Pod) time.Time {
	at := slices.IndexFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == workload.WeightsContainer(pod.Labels[v1beta1.LabelWorkspace])
	})
	if at < 0 || pod.Status.InitContainerStatuses[at].State.Running == nil {
		return time.Time{}
	}
	return pod.Status.InitContainerStatuses[at].State.Running.StartedAt.Time
}

// lastAgent returns when the last of the pods' agents began to run.
func lastAgent(pods []*corev1.Pod) time.Time {
	var last time.Time
	for _, pod := range pods {
		if since := agentSince(pod); since.After(last) {
			last = since
		}
	}
	return last
}

// writeIsolation writes the finding into the pods, for their agents. A later pass writes it into the successor of a
// vanished pod.
func writeIsolation(ctx context.Context, to client.Writer, pods []*corev1.Pod, found string) error {
	for _, pod := range pods {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": pod.UID, "annotations": map[string]string{v1beta1.AnnotationIsolation: found},
		}})
		if err != nil {
			return fmt.Errorf("writing the isolation of pod %s: %w", pod.Name, err)
		}
		into := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err = to.Patch(ctx, into, client.RawPatch(types.MergePatchType, patch))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return fmt.Errorf("writing the isolation of pod %s: %w", pod.Name, err)
		}
	}
	log.FromContext(ctx).Info("a group may start", "isolation", found, "count", len(pods))
	return nil
}
