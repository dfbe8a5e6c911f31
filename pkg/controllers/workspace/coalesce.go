// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/modelberth/modelberth/api/v1beta1"
)

const (
	// progressPeriod is the shortest time from a write of a Workspace's status to one with mere progress. A start has
	// a dozen stages, many of them a second apart, and each write costs the API server some milliseconds.
	progressPeriod = 10 * time.Second
	// mostStatusWrites bounds how many Workspaces have the time of their last write remembered. Progress of the
	// others is written at once.
	mostStatusWrites = 10_000
)

// progressWait returns how long progress of a Workspace has to wait; 0 if it may be written now. The time of the
// last write may be lost: progress is then written at once.
func progressWait(writes *cache.LRUExpireCache, workspace types.UID, now time.Time) time.Duration {
	value, _ := writes.Get(workspace)
	last, isKnown := value.(time.Time)
	if !isKnown {
		return 0
	}
	return max(0, progressPeriod-now.Sub(last))
}

// isProgress reports whether two statuses differ only in the progress of machines and pods. Nobody waits for such
// news: plans, machines, answers and problems are no mere progress.
func isProgress(before, after *v1beta1.WorkspaceStatus) bool {
	return equality.Semantic.DeepEqual(withoutProgress(before), withoutProgress(after))
}

// withoutProgress drops from a status the stages of the startup, of machines and of pods, and all messages.
func withoutProgress(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := status.DeepCopy()
	out.Startup, out.WorkerNodes = nil, nil
	for i := range out.Attempts {
		for j := range out.Attempts[i].Claims {
			out.Attempts[i].Claims[j].Stage = ""
		}
	}
	for i := range out.Conditions {
		condition := &out.Conditions[i]
		condition.Message = ""
		switch condition.Type {
		case v1beta1.ConditionNodeClaimReady, v1beta1.ConditionNodesReady: // ResourceReady sums them up
			*condition = metav1.Condition{Type: condition.Type, ObservedGeneration: condition.ObservedGeneration}
		case v1beta1.ConditionInferenceReady:
			if condition.Reason == v1beta1.ReasonUnschedulable { // most often the scheduler has not seen the node yet
				condition.Reason = v1beta1.ReasonInferencePending
			}
		case v1beta1.ConditionResourceReady, v1beta1.ConditionReady: // their reasons are those of other conditions
			if condition.Status == metav1.ConditionFalse {
				condition.Reason = ""
			}
		}
	}
	return out
}
