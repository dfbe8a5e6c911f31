// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// other is a third machine type, for Workspaces that are edited twice.
const other = "Standard_NC8as_T4_v3"

// TestSurge runs the stories of a serving Workspace that needs other machines: the old ones serve until the new ones
// are usable.
func TestSurge(t *testing.T) {
	stories := []ladderStory{
		{"an edit that needs another machine gets it first, and lets the old one go after", editProvisionsFirst},
		{"an edit that the price limit leaves no room for recreates, and says so", editOverPrice},
		{"an edit that a ceiling leaves no room for recreates, and says so", editOverCeiling},
		{"a lower price limit alone takes nothing away", priceLowered},
		{"the new machine is refused, and the next best is got while the old one serves", editFallsBack},
		{"nothing can be had, and the old one serves on until something can", editRefused},
		{"an edit during a surge replaces what is acquired, and never adds a third", editTwice},
		{"an edit that is taken back keeps the old machine and its pod", editTakenBack},
		{"a spec without a plan during a surge stops nothing that serves", editBroken},
		{"a Workspace that is suspended during a surge lets both machines go", surgeSuspended},
		{"a Workspace that is deleted during a surge leaves nothing", surgeDeleted},
		{"a status lost during a surge costs no machine", surgeForgotten},
		{"the machine that serves is lost during a surge, and the new one takes over", surgeLosesOld},
		{"a machine that is about to be taken back is replaced first", evictionProvisionsFirst},
		{"a group moves as a whole", groupProvisionsFirst},
	}
	w := enter(t)
	for _, story := range stories {
		story.run(t, w)
	}
}

// serveOn brings up a Workspace on one machine type.
func (c *climber) serveOn(t *testing.T, instanceType string) *v1beta1.Workspace {
	t.Helper()
	ws := plannerForm(c.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{instanceType}}
	c.create(t, ws)
	c.untilServing(t, ws)
	return ws
}

// edit asks for another machine type.
func (c *climber) edit(t *testing.T, ws *v1beta1.Workspace, instanceType string) {
	t.Helper()
	c.patch(t, ws, func() { ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{instanceType}} })
}

// goOn resumes the hanging claims of a machine type.
func (c *climber) goOn(t *testing.T, ws *v1beta1.Workspace, instanceType string) {
	t.Helper()
	c.karpenter.Script(instanceType, sim.Works)
	for _, claim := range c.claims(t, ws) {
		if typeOf(&claim) == instanceType {
			c.patch(t, &claim, nil)
		}
	}
}

func typeOf(claim *karpv1.NodeClaim) string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable {
			return strings.Join(requirement.Values, ",")
		}
	}
	return ""
}

// untilHeld waits until a Workspace holds machines of these types, and no others.
func (c *climber) untilHeld(t *testing.T, ws *v1beta1.Workspace, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("machines %v", want), func() (bool, string) {
		var got []string
		for _, claim := range c.claims(t, ws) {
			got = append(got, typeOf(&claim))
		}
		slices.Sort(got)
		slices.Sort(want)
		return slices.Equal(got, want), fmt.Sprint(got)
	})
}

// checkServes checks that an existing pod continues unchanged behind the endpoint.
func (c *climber) checkServes(t *testing.T, ws *v1beta1.Workspace, pod types.UID) {
	t.Helper()
	during(t, "the old machine serves", time.Second, func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		got := c.podUID(t, ws)
		return got == pod && condition(ws, v1beta1.ConditionInferenceReady).Status == metav1.ConditionTrue, saying(ws)
	})
}

// attemptSelected is the attempt whose machines the pods of a Workspace select; empty if they select none.
func (c *climber) attemptSelected(t *testing.T, ws *v1beta1.Workspace) string {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	return set.Spec.Template.Spec.NodeSelector[v1beta1.LabelMachineAttempt]
}

// checkMost checks the largest number of machines that existed at once.
func checkMost(t *testing.T, most func() int, want int) {
	t.Helper()
	if got := most(); got != want {
		t.Errorf("NodeClaims at once: %d, want %d at most, and once as many", got, want)
	}
}

func editProvisionsFirst(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	if got := c.attemptSelected(t, ws); got != "" {
		t.Errorf("pods that never moved select attempt %q", got)
	}
	c.karpenter.Script(cheap, sim.Hangs)
	before := len(c.life.recorder.Writes())
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.until(t, ws, "1 "+dear, "2 "+cheap)
	c.checkServes(t, ws, pod)
	ready, resource := condition(ws, v1beta1.ConditionReady), condition(ws, v1beta1.ConditionResourceReady)
	if ready.Status == metav1.ConditionTrue || !strings.Contains(resource.Message, "meanwhile attempt 1 ("+dear+") continues to serve") {
		t.Errorf("Ready is %s, and %q does not say what serves", ready.Status, resource.Message)
	}
	c.goOn(t, ws, cheap)
	c.untilServing(t, ws)
	c.untilHeld(t, ws, cheap)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
	if got := c.attemptSelected(t, ws); got != "2" {
		t.Errorf("the pods select attempt %q, want 2", got)
	}
	checkOrder(t, c.life.recorder.Writes()[before:],
		"create *v1.ControllerRevision", "create *v1.NodeClaim", "apply ", "delete *v1.NodeClaim")
	checkMost(t, most, 2)
	c.passes(t, c.life, ws, 2)
	settled := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if writes := c.life.recorder.Writes(); len(writes) != settled {
		t.Errorf("a Workspace that has moved is written: %v", writes[settled:])
	}
	c.loseMachine(t, ws) // its replacement belongs to another attempt
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap+" Lost", "3 "+cheap)
	c.untilServing(t, ws)
	eventually(t, "the pods go where the machine is", func() (bool, string) {
		got := c.attemptSelected(t, ws)
		return got == "3", got
	})
	c.remove(t, ws)
}

// checkOrder checks that writes came in this order, each one once.
func checkOrder(t *testing.T, writes []string, want ...string) {
	t.Helper()
	var got []string
	for _, write := range writes {
		if i := slices.IndexFunc(want, func(part string) bool { return strings.Contains(write, part) }); i >= 0 && !strings.HasSuffix(write, faults.Conflict) {
			got = append(got, want[i])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("writes in the order %q, want %q; all: %q", got, want, writes)
	}
}

func editOverPrice(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most := c.watchClaims(t, ws)
	c.patch(t, ws, func() {
		ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{cheap}, MaxHourlyPrice: "4"}
	})
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
	for _, part := range []string{"maxHourlyPrice of $4.00/h has no room for " + cheap + " ($0.53/h) in addition to " + dear + " ($3.67/h)"} {
		if got := ws.Status.Attempts[0].Message; !strings.Contains(got, part) {
			t.Errorf("message %q lacks %q", got, part)
		}
		c.untilEvent(t, ws, "Recreating", part)
	}
	checkMost(t, most, 1)
	c.remove(t, ws)
}

func editOverCeiling(t *testing.T, c *climber) {
	c.life.end(t)
	c.life = c.spend(t, 4)
	ws := c.serveOn(t, dear)
	most := c.watchClaims(t, ws)
	c.edit(t, ws, cheap)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
	c.untilEvent(t, ws, "Recreating", "spending.perNamespace of $4.00/h has no room for "+cheap+" ($0.53/h) in addition to "+dear+" ($3.67/h)")
	checkMost(t, most, 1)
	c.remove(t, ws)
}

func priceLowered(t *testing.T, c *climber) {
	ws := plannerForm(c.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}, MaxHourlyPrice: "8"}
	c.create(t, ws)
	c.untilServing(t, ws)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	c.patch(t, ws, func() { ws.Resource.Placement.MaxHourlyPrice = "1" })
	c.untilServing(t, ws)
	c.checkServes(t, ws, pod)
	c.until(t, ws, "1 "+dear)
	c.patch(t, ws, nil)
	c.passes(t, c.life, ws, 2)
	checkMost(t, most, 1)
	c.remove(t, ws)
}

func editFallsBack(t *testing.T, c *climber) {
	ws := c.serveOn(t, other)
	most := c.watchClaims(t, ws)
	c.karpenter.Script(cheap, sim.NoCapacity)
	c.patch(t, ws, func() {
		ws.Resource = v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{InstanceTypes: []string{cheap, dear}}}
	})
	c.until(t, ws, "1 "+other+" Released", "2 "+cheap+" NoCapacity", "3 "+dear)
	c.untilServing(t, ws)
	c.untilHeld(t, ws, dear)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func editRefused(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	pod := c.podUID(t, ws)
	c.karpenter.Script(cheap, sim.NoCapacity)
	c.edit(t, ws, cheap)
	c.until(t, ws, "1 "+dear, "2 "+cheap+" NoCapacity")
	c.untilHeld(t, ws, dear)
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonNoCapacity)
	c.checkServes(t, ws, pod)
	eventually(t, "it says until when it waits, and what serves", func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		got := condition(ws, v1beta1.ConditionReady).Message
		return strings.Contains(got, "is cooling down until 20") && strings.Contains(got, "meanwhile attempt 1 ("+dear+") continues to serve"), got
	})
	c.checkSilent(t, "the old machine serves and nothing else can be had")
	c.passes(t, c.life, ws, 2)
	settled := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if writes := c.life.recorder.Writes(); len(writes) != settled {
		t.Errorf("waiting wrote: %v", writes[settled:])
	}
	c.karpenter.Script(cheap, sim.Works)
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap+" NoCapacity", "3 "+cheap)
	c.untilServing(t, ws)
	c.remove(t, ws)
}

func editTwice(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	c.karpenter.Script(cheap, sim.Hangs)
	c.karpenter.Script(other, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.edit(t, ws, other)
	c.untilHeld(t, ws, dear, other)
	c.until(t, ws, "1 "+dear, "2 "+cheap+" Released", "3 "+other)
	c.checkServes(t, ws, pod)
	c.goOn(t, ws, other)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap+" Released", "3 "+other)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func editTakenBack(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	pod := c.podUID(t, ws)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.edit(t, ws, dear)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear, "2 "+cheap+" Released")
	c.untilHeld(t, ws, dear)
	c.checkServes(t, ws, pod)
	c.remove(t, ws)
}

func editBroken(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.patch(t, ws, func() { ws.Inference.Config = "missing" })
	c.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonConfigNotFound)
	c.checkServes(t, ws, pod)
	c.goOn(t, ws, cheap)
	c.checkServes(t, ws, pod)
	c.patch(t, ws, func() { ws.Inference.Config = "" })
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func surgeSuspended(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.patch(t, ws, func() { ws.Suspend = true })
	c.untilReleased(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap+" Released")
	c.karpenter.Script(cheap, sim.Works)
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap+" Released", "3 "+cheap)
	c.remove(t, ws)
}

func surgeDeleted(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.remove(t, ws)
}

func surgeForgotten(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	c.life.end(t)
	c.patch(t, ws, nil)
	ws.Status = v1beta1.WorkspaceStatus{}
	if err := c.client.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.until(t, ws, "1 "+dear, "2 "+cheap)
	c.checkServes(t, ws, pod)
	c.goOn(t, ws, cheap)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" Released", "2 "+cheap)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func surgeLosesOld(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	c.untilHeld(t, ws, cheap, dear)
	for _, claim := range c.claims(t, ws) {
		if typeOf(&claim) == dear {
			if err := c.client.Delete(t.Context(), &claim); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.until(t, ws, "1 "+dear+" Lost", "2 "+cheap)
	c.goOn(t, ws, cheap)
	c.untilServing(t, ws)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	c.remove(t, ws)
}

// evictionProvisionsFirst announces the eviction of the only machine of a type.
func evictionProvisionsFirst(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	most, pod := c.watchClaims(t, ws), c.podUID(t, ws)
	c.karpenter.Script(dear, sim.Hangs)
	node := &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Name: ws.Status.WorkerNodes[0]}, node); err != nil {
		t.Fatal(err)
	}
	c.patch(t, node, func() {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "aws-node-termination-handler/spot-itn", Effect: corev1.TaintEffectNoSchedule})
	})
	c.untilHeld(t, ws, dear, dear)
	c.until(t, ws, "1 "+dear, "2 "+dear)
	c.checkServes(t, ws, pod)
	if ready := condition(ws, v1beta1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %s although the model answers as the spec asks for: %s", ready.Status, ready.Message)
	}
	c.goOn(t, ws, dear)
	c.until(t, ws, "1 "+dear+" Lost", "2 "+dear)
	c.untilHeld(t, ws, dear)
	c.untilServing(t, ws)
	if got := c.attemptSelected(t, ws); got != "2" || c.podUID(t, ws) == pod {
		t.Errorf("the pods select attempt %q, want 2", got)
	}
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func groupProvisionsFirst(t *testing.T, c *climber) {
	ws := groupForm(c.namespace(t), "chat")
	ws.Resource = v1beta1.ResourceSpec{Placement: &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}}
	c.create(t, ws)
	c.untilServing(t, ws)
	most, before := c.watchClaims(t, ws), c.uids(t, ws)
	c.karpenter.Script(cheap, sim.Hangs)
	c.edit(t, ws, cheap)
	eventually(t, "the first of the new machines", func() (bool, string) {
		return len(c.claims(t, ws)) == 3, fmt.Sprint(len(c.claims(t, ws)))
	})
	c.endEngine(t, ws, 1, 1) // a group that fails meanwhile restarts on its present machines
	eventually(t, "the group is replaced", func() (bool, string) {
		now := c.uids(t, ws)
		return now[0] != before[0] && now[1] != before[1] && now[0] != "" && now[1] != "", fmt.Sprint(now)
	})
	if got := c.attemptSelected(t, ws); got != "" {
		t.Errorf("the pods of the group that serves select attempt %q", got)
	}
	c.goOn(t, ws, cheap)
	c.untilServing(t, ws)
	c.untilHeld(t, ws, cheap, cheap)
	checkMost(t, most, 4)
	c.remove(t, ws)
}
