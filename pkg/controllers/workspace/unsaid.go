// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// How long news of mere progress may wait for the next news, so that stages that follow each other closely are one
// write, and how many Workspaces a second have such news written, but for a few at once: where many come up together,
// what somebody waits for or acts on goes first, which is never held back. Nobody waits longer than the last.
const (
	progressDelay = 10 * time.Second
	progressRate  = 2
	progressBurst = 10
	progressLimit = time.Minute
	// progressForgotten is how late news may be; no pass takes that long to come.
	progressForgotten = time.Hour
)

// unsaid remembers what about a Workspace is not written: until when news may wait, and what the pass did that asked for
// the first machines. It may be lost. News is seen again by the next pass. So is a first attempt, by its revision and the
// names of its machines, unless these were refused and have gone meanwhile: then the same is asked for once more.
type unsaid struct {
	mu    sync.Mutex
	due   map[types.UID]time.Time
	first map[types.UID]untold
}

// untold is what there is to tell of the pass that asked for a Workspace's first machines.
type untold struct {
	attempts []v1beta1.Attempt
	events   []event
}

func newUnsaid() *unsaid {
	return &unsaid{due: map[types.UID]time.Time{}, first: map[types.UID]untold{}}
}

// keep remembers what a pass does not tell.
func (u *unsaid) keep(workspace types.UID, what untold) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.first[workspace] = what
}

// recall has a pass know what an earlier one has not told; the attempts, unless a status tells of some by now.
func (u *unsaid) recall(s *scope) {
	u.mu.Lock()
	defer u.mu.Unlock()
	kept, isKept := u.first[s.ws.UID]
	if !isKept {
		return
	}
	s.untold = kept.events
	s.lookAgain(shortestLook) // for what this pass leaves to the next
	if len(s.ws.Status.Attempts) == 0 {
		s.attempts, s.isUntold = cloneAttempts(kept.attempts), true
	}
}

// drop forgets what is told by now.
func (u *unsaid) drop(workspace types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.first, workspace)
}

// hold returns how long news may still wait; 0 says to write what there is.
func (u *unsaid) hold(workspace types.UID, isProgress bool, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	due, waits := u.due[workspace]
	if !isProgress {
		delete(u.due, workspace)
		return 0
	}
	if !waits {
		before := max(u.crowd(now)-progressBurst, 0)
		due = now.Add(min(progressDelay+time.Duration(before)*time.Second/progressRate, progressLimit))
		u.due[workspace] = due
	}
	wait := due.Sub(now)
	if wait <= 0 {
		delete(u.due, workspace)
	}
	return max(wait, 0)
}

// isCrowded says that the news of many Workspaces waits.
func (u *unsaid) isCrowded(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.crowd(now) > progressBurst
}

// crowd counts the Workspaces whose news waits. What was due long ago is not counted: it comes with its Workspace's next
// pass, or the Workspace has vanished without one, and then it is forgotten in the end.
func (u *unsaid) crowd(now time.Time) int {
	count := 0
	for workspace, due := range u.due {
		switch late := now.Sub(due); {
		case late > progressForgotten:
			delete(u.due, workspace)
		case late <= progressLimit:
			count++
		}
	}
	return count
}

// forget drops what is known of a Workspace that is gone.
func (u *unsaid) forget(workspace types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.due, workspace)
	delete(u.first, workspace)
}

// isProgress says whether two statuses that differ do so only in how far something is. Where many Workspaces come up
// together, that one has its machines is no more than that: its pods are there already, and the answer is to follow.
func isProgress(before, after *v1beta1.WorkspaceStatus, isCrowded bool) bool {
	was, is := withoutProgress(before), withoutProgress(after)
	if isCrowded {
		takeMachinesBack(was, is)
	}
	return equality.Semantic.DeepEqual(was, is)
}

// takeMachinesBack leaves out of a status that there are machines now, unless they answer as well.
func takeMachinesBack(before, after *v1beta1.WorkspaceStatus) {
	was, is := find(before.Conditions, v1beta1.ConditionResourceReady), find(after.Conditions, v1beta1.ConditionResourceReady)
	hasCome := was != nil && was.Status == metav1.ConditionFalse && is != nil && is.Status == metav1.ConditionTrue
	if !hasCome || isTrue(after.Conditions, v1beta1.ConditionReady) || len(before.Attempts) != len(after.Attempts) {
		return
	}
	*is = *was
	for i := range after.Attempts {
		after.Attempts[i].ReadyTime = before.Attempts[i].ReadyTime
	}
}

// withoutProgress leaves in a status what somebody waits for or acts on: whether it is planned, has its
// machines and answers, what is wrong with the inference server, the plan, the endpoint once it answers, and of
// attempts all but the stages that their machines have reached.
func withoutProgress(status *v1beta1.WorkspaceStatus) *v1beta1.WorkspaceStatus {
	out := status.DeepCopy()
	out.Startup, out.WorkerNodes = nil, nil
	isReady := isTrue(status.Conditions, v1beta1.ConditionReady)
	if !isReady {
		out.Endpoint = nil // nobody is answered there yet
	}
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
		case v1beta1.ConditionInferenceReady: // pods may be ready before their machines are, and wait for these
			if condition.Status == metav1.ConditionTrue && !isReady || condition.Reason == v1beta1.ReasonUnschedulable {
				condition.Status, condition.Reason = metav1.ConditionFalse, v1beta1.ReasonInferencePending
			}
			condition.LastTransitionTime = metav1.Time{}
		case v1beta1.ConditionResourceReady, v1beta1.ConditionReady: // their reasons are those of others
			if condition.Status == metav1.ConditionFalse {
				condition.Reason = ""
			}
		}
	}
	return out
}
