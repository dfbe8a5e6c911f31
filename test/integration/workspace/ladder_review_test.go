// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestLadderKeepsWhatItHolds runs the stories of machines that must stay, and of the messages about released ones.
func TestLadderKeepsWhatItHolds(t *testing.T) {
	stories := []ladderStory{
		{"an attempt that has recorded nothing of its machine keeps it", unrecorded},
		{"an edit keeps the machine although others are refused its type", editedWhileOthersWait},
		{"a pass from an old Workspace lets nothing of a newer attempt go", oldPass},
		{"what is told is why the plan has to wait, not what was refused before", othersRefused},
	}
	w := enter(t)
	for _, story := range stories {
		story.run(t, w)
	}
}

// keeps checks that a Workspace continues with its only machine.
func (c *climber) keeps(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	during(t, "the machine is kept", 3*time.Second, func() (bool, string) {
		claims := c.claims(t, ws)
		isKept := len(claims) == 1 && claims[0].DeletionTimestamp.IsZero()
		return isKept && c.karpenter.ClaimsEver(ws.UID) == 1, saying(ws)
	})
	c.untilServing(t, ws)
}

func unrecorded(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	ws.Resource.Placement.Zones = []string{"z-1", "z-2"}
	c.create(t, ws)
	c.untilServing(t, ws)
	c.life.end(t)
	c.read(t, ws)
	if len(ws.Status.Attempts) != 1 {
		t.Fatalf("%d attempts, want 1", len(ws.Status.Attempts))
	}
	a := ws.Status.Attempts[0]
	ws.Status.Attempts[0] = v1beta1.Attempt{
		Number: a.Number, InstanceType: a.InstanceType, NodeClaims: a.NodeClaims, CapacityType: a.CapacityType, StartTime: a.StartTime,
		Zone: a.Zone, Revision: a.Revision,
	}
	if err := c.client.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.clock.step(time.Hour)
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.keeps(t, ws)
	c.until(t, ws, "1 "+cheap)
	eventually(t, "the attempt is recorded again", func() (bool, string) { // everything else is true from the start
		c.read(t, ws)
		return ws.Status.Attempts[0].ReadyTime != nil, saying(ws)
	})
	got := ws.Status.Attempts[0]
	if got.ReadyTime.Sub(a.StartTime.Time) > patience {
		t.Errorf("asked for at %s, usable at %s; want when the machine was, not when it was looked at", a.StartTime, got.ReadyTime)
	}
	if got.Zone != a.Zone || got.Revision != a.Revision {
		t.Errorf("zone %q of revision %q, want %q of %q", got.Zone, got.Revision, a.Zone, a.Revision)
	}
	c.remove(t, ws)
}

func editedWhileOthersWait(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.karpenter.Script(cheap, sim.NoQuota)
	other := kaitoForm(ws.Namespace, "other")
	other.Resource.InstanceType = cheap
	c.create(t, other)
	c.untilCondition(t, other, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.read(t, ws)
	former := ws.Status.Plan.Revision
	c.patch(t, ws, func() { ws.Inference.Objectives = &v1beta1.ObjectivesSpec{Concurrency: new(int32(2))} })
	eventually(t, "another plan", func() (bool, string) {
		c.read(t, ws)
		return ws.Status.Plan.Revision != former, saying(ws)
	})
	c.keeps(t, ws)
	if got := ws.Status.Plan.InstanceType; got != cheap {
		t.Errorf("planned for %s, want %s", got, cheap)
	}
	c.remove(t, ws)
	c.remove(t, other)
}

// oldPass has the controller see the Workspace and its plans as they were before the newest attempt.
func oldPass(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	c.karpenter.Script(dear, sim.NoQuota)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.untilReleased(t, ws)
	beside := c.freeze(t, c.life, ws)
	plans := &appsv1.ControllerRevisionList{}
	if err := c.client.List(t.Context(), plans, client.InNamespace(ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for i := range plans.Items {
		known[plans.Items[i].Name] = true
	}
	c.life.recorder.Hide(plans, func(plan client.Object) bool {
		return plan.GetNamespace() == ws.Namespace && !known[plan.GetName()]
	})
	c.karpenter.Script(cheap, sim.Works)
	c.clock.step(11 * time.Minute) // the quota is left alone for an hour
	c.passesBy(t, c.life, ws, beside, 1)
	eventually(t, "the third machine", func() (bool, string) {
		return c.karpenter.ClaimsEver(ws.UID) == 3, fmt.Sprintf("%d NodeClaims", c.karpenter.ClaimsEver(ws.UID))
	})
	c.passesBy(t, c.life, ws, beside, 2)
	during(t, "the third machine is kept", 3*time.Second, func() (bool, string) {
		claims := c.claims(t, ws)
		return len(claims) == 1 && claims[0].DeletionTimestamp.IsZero(), fmt.Sprintf("%d NodeClaims", len(claims))
	})
	c.life.recorder.Thaw(client.ObjectKeyFromObject(ws))
	c.life.recorder.Show(plans)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear+" Quota", "3 "+cheap)
	c.remove(t, ws)
}

// othersRefused: the cloud refuses a machine type to another Workspace, before a Workspace loses its machine of that
// type.
func othersRefused(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.karpenter.Script(dear, sim.NoQuota)
	other := kaitoForm(ws.Namespace, "other")
	other.Resource.InstanceType = dear
	c.create(t, other)
	c.untilCondition(t, other, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.loseMachine(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear+" Lost")
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	message := condition(ws, v1beta1.ConditionResourceReady).Message
	if !strings.Contains(message, "a larger quota") || strings.Contains(message, "the last refusal") {
		t.Errorf("message %q; want what would help, and no words about anything else", message)
	}
	c.remove(t, ws)
	c.remove(t, other)
}
