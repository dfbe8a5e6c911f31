// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/events"
)

// EventCache selects the events to cache: Karpenter's warnings.
func EventCache() cache.ByObject {
	return events.Kept(fields.Set{"source": "karpenter", "type": corev1.EventTypeWarning})
}

// WorkspaceOf returns the name of the Workspace of an event's pool or pod; empty if there is none.
func (p *Provisioner) WorkspaceOf(ctx context.Context, event client.Object) types.NamespacedName {
	pod, pool := &corev1.Pod{}, &karpv1.NodePool{}
	switch {
	case events.Involved(ctx, p.cached, event, "Pod", pod):
		return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1beta1.LabelWorkspace]}
	case events.Involved(ctx, p.cached, event, "NodePool", pool):
		owner := nodeclaim.OwnerOf(pool.Labels)
		return types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	default:
		return types.NamespacedName{}
	}
}

// listen adds to awaited machines Karpenter's explanation of why it creates no claim. For a pool that is not ready,
// this state stays the reason, because Karpenter skips such a pool, whatever its earlier events say.
func (p *Provisioner) listen(ctx context.Context, owner capacity.Owner, slots []slot) error {
	heard := map[string]refusal.Condition{} // by pool
	for i := range slots {
		s := &slots[i]
		if !p.listens || s.pool == nil || s.Words.Launched.Reason != refusal.ReasonNoNodeClaim {
			continue
		}
		said, isKnown := heard[s.pool.Name]
		if !isKnown {
			var err error
			if said, err = p.said(ctx, owner, s.pool); err != nil {
				return err
			}
			heard[s.pool.Name] = said
		}
		if said.Reason != "" {
			s.Words.Launched, s.Reason, s.Message = said, said.Reason, said.Message
		}
	}
	return nil
}

// said returns Karpenter's last message about a pool, or about the pods for which the pool exists.
func (p *Provisioner) said(ctx context.Context, owner capacity.Owner, pool *karpv1.NodePool) (refusal.Condition, error) {
	all, err := events.Watched(ctx, p.cached, string(pool.UID))
	if err != nil {
		return refusal.Condition{}, err
	}
	pods := &corev1.PodList{}
	err = p.cached.List(ctx, pods, client.InNamespace(owner.Namespace), client.MatchingLabels{v1beta1.LabelWorkspace: owner.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return refusal.Condition{}, fmt.Errorf("listing the pods of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			continue
		}
		about, err := events.Watched(ctx, p.cached, string(pods.Items[i].UID))
		if err != nil {
			return refusal.Condition{}, err
		}
		all = slices.Concat(all, about)
	}
	return answer(all, pool), nil
}

// answer returns why Karpenter creates no machine from a pool; empty if there is no such event since the pool's
// creation.
func answer(all []corev1.Event, pool *karpv1.NodePool) refusal.Condition {
	last := events.Newest(all, func(event *corev1.Event) bool {
		return wordsOf(event, pool.Name) != "" && !events.LastSeen(event).Before(pool.CreationTimestamp.Time)
	})
	if last == nil {
		return refusal.Condition{}
	}
	return refusal.Condition{
		Status: refusal.StatusUnknown, Reason: last.Reason, Message: wordsOf(last, pool.Name), Since: events.LastSeen(last),
	}
}

// wordsOf returns the part of an event's message about a pool; empty if there is none (sigs.k8s.io/karpenter v1.12.1,
// pkg/controllers/provisioning/scheduling/events.go).
func wordsOf(event *corev1.Event, pool string) string {
	switch event.Reason {
	case refusal.ReasonNoInstanceTypes:
		return events.Text(event)
	case refusal.ReasonFailedScheduling:
		_, why, _ := strings.Cut(events.Text(event), "Failed to schedule pod, ")
		return aboutPool(why, pool)
	default:
		return ""
	}
}

var (
	// named matches the name of a pool in Karpenter's sentences. Earlier versions used the last two forms.
	named = regexp.MustCompile(`(?:karpenter\.sh/nodepool In \[|NodePool=|\bnodepool "|\bnodepool: ")([a-z0-9.-]+)`)
	// unnamed matches sentences that do not name their pool. They are about pools whose labels or taints do not suit
	// our pods. They can be about our pool only before it exists, or in an event that also names it.
	unnamed = regexp.MustCompile(`^(?:incompatible requirements, |did not tolerate |nodepool requirements filtered out all )`)
	// limits matches sentences about the limits of a pool. Karpenter reports these for every pod that has no room on
	// the launching machines, and for a group's pods until the first machine has determined the zone.
	limits = regexp.MustCompile(`exceed limits for nodepool|limits have been exhausted for nodepool`)
)

// aboutPool filters the reasons why a pod cannot be scheduled, which have one sentence for each pool. It keeps the
// sentences about this pool or about the pod itself.
func aboutPool(why, pool string) string {
	sentences := slices.DeleteFunc(strings.Split(why, "; "), func(sentence string) bool {
		if name := named.FindStringSubmatch(sentence); name != nil {
			return name[1] != pool || limits.MatchString(sentence)
		}
		return unnamed.MatchString(sentence)
	})
	return strings.Join(sentences, "; ")
}
