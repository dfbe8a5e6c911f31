// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

const (
	idleDeadline = 6 * time.Hour
	// months is far longer than any deadline.
	months = 90 * 24 * time.Hour
)

// TestIdleMachines runs the stories of machines without a ready pod.
func TestIdleMachines(t *testing.T) {
	stories := []ladderStory{
		{"machines that never serve are released once, and a restart does not begin anew", neverServes},
		{"machines that have served are kept", servedOnce},
		{"machines of a former version's attempt are marked while they serve", markedWhileServing},
		{"machines of a former version's attempt are not released at once", unmarkedDown},
	}
	w := enter(t)
	for _, story := range stories {
		story.runWith(t, w, beginIdle)
	}
}

// beginIdle begins a controller that releases idle machines.
func beginIdle(t *testing.T, c *climber) {
	t.Helper()
	o := c.options()
	o.FailureDeadline, o.IdleDeadline = 30*time.Minute, idleDeadline
	c.life = c.beginWith(t, faults.NewRecorder(), c.clock, o)
}

// lacksImage is the status of a pod whose image may be pushed later: not a permanent failure.
func lacksImage() corev1.PodStatus {
	return corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "chat", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ErrImagePull", Message: "manifest unknown",
			}},
		}},
	}
}

// untilAttempt waits until the last attempt of a Workspace is as it should be.
func (c *climber) untilAttempt(t *testing.T, ws *v1beta1.Workspace, what string, holds func(*v1beta1.Attempt) bool) {
	t.Helper()
	eventually(t, what, func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		last := len(ws.Status.Attempts) - 1
		return last >= 0 && holds(&ws.Status.Attempts[last]), saying(ws)
	})
}

// checkKept checks twice that the Workspace still has the first machine.
func (c *climber) checkKept(t *testing.T, ws *v1beta1.Workspace, why string) {
	t.Helper()
	c.passes(t, c.life, ws, 2)
	if got := c.claims(t, ws); len(got) != 1 || c.karpenter.ClaimsEver(ws.UID) != 1 || !got[0].DeletionTimestamp.IsZero() {
		t.Fatalf("%d NodeClaims and %d ever, want the first one to stay: %s; %s", len(got), c.karpenter.ClaimsEver(ws.UID), why, saying(ws))
	}
}

func neverServes(t *testing.T, c *climber) {
	ws := named(c.namespace(t), "chat", cheap)
	c.workloads.Script(client.ObjectKeyFromObject(ws), lacksImage())
	c.create(t, ws)
	c.untilAttempt(t, ws, "the wait recorded", func(a *v1beta1.Attempt) bool { return a.ReadyTime != nil && a.IdleTime != nil })
	c.untilCondition(t, ws, v1beta1.ConditionInferenceReady, metav1.ConditionFalse, v1beta1.ReasonImagePullError)
	c.clock.step(idleDeadline - time.Hour)
	c.checkKept(t, ws, "an hour is left")
	c.life.end(t)
	beginIdle(t, c)
	c.checkKept(t, ws, "the controller began anew, and an hour is left")
	if writes := c.life.recorder.Writes(); len(writes) != 0 {
		t.Errorf("it wrote %v, want that a settled wait costs no writes", writes)
	}
	c.clock.step(time.Hour)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" CannotServe")
	c.untilReleased(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonCannotServe)
	message := condition(ws, v1beta1.ConditionStalled).Message
	for _, part := range []string{
		"no pod was ready on them for 6h", "at a cost of about $", "the registry does not have the image", "change the spec, suspend and resume the Workspace",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition %q does not contain %q", message, part)
		}
	}
	c.clock.step(months)
	begun := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 2)
	if writes := c.life.recorder.Writes()[begun:]; len(writes) != 0 || c.karpenter.ClaimsEver(ws.UID) != 1 {
		t.Errorf("it wrote %v and bought %d times, want that it waits for an edit", writes, c.karpenter.ClaimsEver(ws.UID))
	}
	c.workloads.Heal(client.ObjectKeyFromObject(ws))
	c.patch(t, ws, func() { ws.Suspend = true })
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonSuspended)
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" CannotServe", "2 "+cheap)
	c.remove(t, ws)
}

// serveOnce makes a Workspace that has served and then fails.
func (c *climber) serveOnce(t *testing.T) *v1beta1.Workspace {
	t.Helper()
	ws := named(c.namespace(t), "chat", cheap)
	c.create(t, ws)
	c.untilServing(t, ws)
	if a := ws.Status.Attempts[0]; a.AnsweredTime == nil || a.IdleTime != nil {
		t.Errorf("the status that says Ready has the attempt answered %v, idle since %v", a.AnsweredTime, a.IdleTime)
	}
	return ws
}

// breakDown has the pod of a Workspace lack its image.
func (c *climber) breakDown(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	key := client.ObjectKeyFromObject(ws)
	c.workloads.Script(key, lacksImage())
	t.Cleanup(func() { c.workloads.Heal(key) })
	pod := c.deletePod(t, ws)
	eventually(t, "a pod without its image", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
		return err == nil && len(pod.Status.ContainerStatuses) > 0, "it has it"
	})
}

// deletePod deletes the pod of a Workspace, and another one takes its place.
func (c *climber) deletePod(t *testing.T, ws *v1beta1.Workspace) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, Name: ws.Name + "-0"}}
	if err := c.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	return pod
}

// unmark makes the attempt of a Workspace like one of a former version.
func (c *climber) unmark(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	c.read(t, ws)
	ws.Status.Attempts[0].AnsweredTime = nil
	if err := c.client.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
}

func servedOnce(t *testing.T, c *climber) {
	ws := c.serveOnce(t)
	c.breakDown(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonImagePullError)
	for range 3 {
		c.clock.step(months)
		c.checkKept(t, ws, "it has answered")
	}
	c.remove(t, ws)
}

func markedWhileServing(t *testing.T, c *climber) {
	ws := c.serveOnce(t)
	c.life.end(t)
	c.unmark(t, ws)
	c.clock.step(months)
	beginIdle(t, c)
	c.passes(t, c.life, ws, 2)
	c.untilAttempt(t, ws, "the mark", func(a *v1beta1.Attempt) bool { return a.AnsweredTime != nil && a.IdleTime == nil })
	if diff := cmp.Diff([]string{"patch status of *v1beta1.Workspace"}, c.life.accepted()); diff != "" {
		t.Errorf("an upgrade writes the mark alone, once (-want +got):\n%s", diff)
	}
	c.breakDown(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonImagePullError)
	c.clock.step(months)
	c.checkKept(t, ws, "it has the mark")
	c.remove(t, ws)
}

func unmarkedDown(t *testing.T, c *climber) {
	ws := c.serveOnce(t)
	c.life.end(t)
	c.unmark(t, ws)
	c.breakDown(t, ws)
	c.clock.step(months)
	beginIdle(t, c)
	c.checkKept(t, ws, "the deadline begins with the first pass")
	c.clock.step(idleDeadline - time.Minute)
	c.checkKept(t, ws, "a minute is left")
	c.workloads.Heal(client.ObjectKeyFromObject(ws))
	c.deletePod(t, ws)
	c.untilServing(t, ws)
	c.untilAttempt(t, ws, "the mark", func(a *v1beta1.Attempt) bool { return a.AnsweredTime != nil && a.IdleTime == nil })
	c.clock.step(months)
	c.checkKept(t, ws, "it serves")
	c.remove(t, ws)
}
