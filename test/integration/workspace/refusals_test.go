// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
	cloudscript "github.com/modelberth/modelberth/test/script"
)

// TestRefusalsOfOtherBackEnds repeats the stories of TestLadder for back ends with other results.
func TestRefusalsOfOtherBackEnds(t *testing.T) {
	pools := func(isStatic bool) func(*testing.T, *climber) {
		return func(t *testing.T, c *climber) { c.life = c.beginPools(t, c.clock, faults.NewRecorder(), isStatic) }
	}
	agentPools := func(t *testing.T, c *climber) {
		o := c.options()
		withAgentPools(&o)
		c.life = c.beginWith(t, faults.NewRecorder(), c.clock, o)
	}
	w := enter(t)
	for _, test := range []struct {
		begin func(*testing.T, *climber)
		story ladderStory
	}{
		{pools(true), ladderStory{"static pools: one of two machines is refused, once: the other one is let go, too", poolGroupRefused}},
		{pools(false), ladderStory{"dynamic pools: one of two machines is refused, once: the other one is let go, too", poolGroupRefused}},
		{pools(false), ladderStory{"pools: a quota that only an event tells of is named as one", quotaInEvent}},
		{pools(false), ladderStory{"pools: a quota is named as one, and the next machine type serves", quotaNamed}},
		{agentPools, ladderStory{"agent pools: one of two machines is refused: the other one is let go, too", agentGroupRefused}},
	} {
		test.story.runWith(t, w, test.begin)
	}
}

// poolGroupRefused has Karpenter be refused one of two machines, and get it when it tries again on its own.
func poolGroupRefused(t *testing.T, c *climber) {
	ws := templateForm(c.namespace(t))
	ws.Resource.InstanceType, ws.Resource.Count = dear, new(2)
	c.karpenter.Play(ws.Namespace, cloudscript.Script{Rules: []cloudscript.Rule{
		{SKU: dear, Skip: 1, Times: 1, Outcome: cloudscript.NoCapacity},
	}})
	c.create(t, ws)
	pools := c.watchPools(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonNoCapacity)
	c.untilReleased(t, ws)
	if got := len(c.pools(t, ws)); got != 0 {
		t.Errorf("NodePools after the refusal: %d, want none", got)
	}
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" NoCapacity", "2 "+dear)
	if most, ever := pools(); most != 1 || ever != 2 {
		t.Errorf("NodePools: %d at once, %d ever; want 1 and 2", most, ever)
	}
	c.remove(t, ws)
}

func agentGroupRefused(t *testing.T, c *climber) {
	c.karpenter.ScriptOrdinal(dear, "1", sim.NoQuota)
	ws := templateForm(c.namespace(t))
	ws.Resource.InstanceType, ws.Resource.Count = dear, new(2)
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.untilReleased(t, ws)
	c.passes(t, c.life, ws, 2)
	c.until(t, ws, "1 "+dear+" Quota")
	if first, second := c.karpenter.ClaimsEverOf(ws.UID, "0"), c.karpenter.ClaimsEverOf(ws.UID, "1"); first != 1 || second != 1 {
		t.Errorf("NodeClaims ever made: %d and %d, want one each", first, second)
	}
	c.remove(t, ws)
}

// TestPodsCrashInAFallback kills a controller with pending pods on the way from a full node group to the next one,
// after a write: at every fourth one, for time's sake. With a step of 1 it takes two minutes.
func TestPodsCrashInAFallback(t *testing.T) {
	const step = 4
	w := enter(t)
	begin := func(t *testing.T, recorder *faults.Recorder) *life {
		return w.beginWith(t, recorder, &stepClock{}, w.podOptions())
	}
	for number, crashed := 1, true; crashed && !t.Failed(); number += step {
		var c *crash
		t.Run(fmt.Sprintf("write %d", number), func(t *testing.T) {
			c = w.crashAt(t, number, faults.After, begin)
			ws := eitherForm(w.namespace(t), "chat")
			w.autoscaler.Serve(ws.Namespace, w.group(t, cheap, sim.Full), w.group(t, dear, sim.Scales))
			count := w.attemptsOf(t, ws)
			w.create(t, ws)
			c.untilReady(t, ws)
			for _, a := range ws.Status.Attempts {
				if a.InstanceType == cheap && a.Reason != v1beta1.ReasonQuota {
					t.Errorf("attempt %d, %s: ended with %q %q, want the refusal that it was", a.Number, a.InstanceType, a.Reason, a.Message)
				}
			}
			c.untilDeleted(t, ws)
			w.checkNothingLeft(t, ws)
			if most, ever := count(); most != 1 || ever != 2 || ws.Status.Plan.InstanceType != dear {
				t.Errorf("pods of %d attempts at once, %d pods ever, serving on %s; want 1, 2 and %s", most, ever, ws.Status.Plan.InstanceType, dear)
			}
		})
		if c == nil { // -run has left it out
			return
		}
		crashed = c.came
		if !crashed && number < 12 {
			t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
		}
	}
}
