// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestAgentPools runs the stories of gpu-provisioner's machines. The provisioner never gives up, so the controller
// must.
func TestAgentPools(t *testing.T) {
	stories := []ladderStory{
		{"a quota is read in the words of Azure, and the next machine type serves", agentPoolQuota},
		{"a machine that is not launched in time is given up", agentPoolHangs},
		{"zones cannot be chosen, which is said before anything is bought", agentPoolZones},
	}
	w := enter(t)
	for _, story := range stories {
		story.runWith(t, w, func(t *testing.T, c *climber) {
			o := c.options()
			o.NodeClasses = []v1beta1.NodeClassReference{{Group: "kaito.sh", Kind: "KaitoNodeClass", Name: "agent-pools"}}
			c.life = c.beginWith(t, faults.NewRecorder(), c.clock, o)
		})
	}
}

func agentPoolQuota(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuota)
	ws := eitherForm(c.namespace(t), "chat")
	ws.Resource.Placement.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacityOnDemand, v1beta1.CapacitySpot}
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	if got := ws.Status.Attempts[0]; !strings.Contains(got.Message, "Insufficient vcpu quota") || !strings.Contains(got.Fix, "ask Azure") {
		t.Errorf("message %q, fix %q; want Azure's words and what to do", got.Message, got.Fix)
	}
	if got := ws.Status.Attempts[1].CapacityType; got != v1beta1.CapacityOnDemand {
		t.Errorf("bought as %s: gpu-provisioner sells on demand only", got)
	}
	c.checkHeld(t, most)
	c.passes(t, c.life, ws, 2)
	writes := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if all := c.life.recorder.Writes(); len(all) != writes {
		t.Errorf("a settled Workspace cost writes: %v", all[writes:])
	}
	c.remove(t, ws)
}

func agentPoolHangs(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.Hangs)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.until(t, ws, "1 "+cheap)
	eventually(t, "the machine is asked for", func() (bool, string) { return c.karpenter.ClaimsEver(ws.UID) == 1, "not yet" })
	c.later(t, ws, 9*time.Minute)
	c.passes(t, c.life, ws, 2)
	c.until(t, ws, "1 "+cheap)
	c.later(t, ws, 2*time.Minute)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" TimedOut", "2 "+dear)
	c.remove(t, ws)
}

func agentPoolZones(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	ws.Resource.Placement.Zones = []string{"eastus-1"}
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonSpecInvalid)
	const want = "nothing is bought yet: resource.placement.zones: gpu-provisioner cannot choose a zone (eastus-1): leave zones out"
	if got := condition(ws, v1beta1.ConditionStalled).Message; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := c.karpenter.ClaimsEver(ws.UID); got != 0 {
		t.Errorf("NodeClaims ever made: %d, want none", got)
	}
	c.remove(t, ws)
}
