// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// The two machine types of these stories; the first is the cheaper one.
const cheap, dear = "Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4"

// stepClock is the wall clock, put forward at will.
type stepClock struct{ ahead atomic.Int64 }

var _ clock.PassiveClock = (*stepClock)(nil)

func (c *stepClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *stepClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *stepClock) step(by time.Duration)           { c.ahead.Add(int64(by)) }

// climber is one story about refusals.
type climber struct {
	*world
	clock *stepClock
	life  *life
}

// eitherForm is a Workspace that may run on two machine types.
func eitherForm(namespace, name string) *v1beta1.Workspace {
	ws := plannerForm(namespace, name)
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{cheap, dear}}
	return ws
}

// TestLadder runs the stories of refused and lost machines in sequence, because they share the cooldowns.
func TestLadder(t *testing.T) {
	stories := []ladderStory{
		{"the first machine type is out of capacity, and the second serves", firstRefused},
		{"a quota is named as one, and the next machine type serves", quotaNamed},
		{"a quota that only an event tells of is named as one", quotaInEvent},
		{"what somebody has to mend stops, and goes on after a change", misconfigured},
		{"a node class that is not ready stops, and goes on once it is", classNotReady},
		{"a node class whose disk is too small stops, and goes on once it is larger", classWithSmallDisk},
		{"a node class that is missing stops, and its making is seen", classMissing},
		{"a named machine type is waited for, and then asked for again", namedType},
		{"nothing left is waited for, with the time and what would help", exhausted},
		{"waiting sends nothing to the API server", waitingIsSilent},
		{"one of two machines is refused: the other one is let go too", allOrNone},
		{"GPUs that never show are given up, and on a second type are misconfigured", noGPUs},
		{"a node that is not Ready for too long is replaced", nodeNotReady},
		{"a machine without GPUs is let go while the spec has no plan, and none is bought", noGPUsOfSpoiled},
		{"a lost machine of what serves is replaced while the spec has no plan", lostOfSpoiled},
		{"a restarted controller remembers what was refused", restarted},
		{"a lost status buys nothing twice", lostStatus},
		{"a cache that does not show the next plan yet lets no machine of it go", unseenPlan},
	}
	w := enter(t)
	for _, story := range stories {
		story.run(t, w)
	}
}

// ladderStory is a story for a controller with its own clock.
type ladderStory struct {
	reason string
	tell   func(*testing.T, *climber)
}

// run runs the story, and then lets all machines work again.
func (s ladderStory) run(t *testing.T, w *world) {
	s.runWith(t, w, func(t *testing.T, c *climber) { c.life = c.beginAt(t, faults.NewRecorder(), c.clock) })
}

// runWith runs the story with the controller that begin starts.
func (s ladderStory) runWith(t *testing.T, w *world, begin func(*testing.T, *climber)) {
	t.Run(s.reason, func(t *testing.T) {
		c := &climber{world: w, clock: &stepClock{}}
		begin(t, c)
		t.Cleanup(c.karpenter.WorkAgain)
		s.tell(t, c)
	})
}

// until waits for the given attempts, each with its number, machine type and end.
func (c *climber) until(t *testing.T, ws *v1beta1.Workspace, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("attempts %v", want), func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		var got []string
		for _, a := range ws.Status.Attempts {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Number, a.InstanceType, a.Reason)))
		}
		return fmt.Sprint(got) == fmt.Sprint(want), saying(ws)
	})
}

// checkHeld checks that there was never more than one machine.
func (c *climber) checkHeld(t *testing.T, most func() int) {
	t.Helper()
	if got := most(); got > 1 {
		t.Errorf("NodeClaims at once: %d, want never more than 1", got)
	}
}

func firstRefused(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	started := time.Now()
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("serving on the second machine type after %s, want 10 s or less", took)
	}
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	if ws.Status.Plan.InstanceType != dear || ws.Status.Attempts[0].Scope == "" || ws.Status.Attempts[0].Cooldown == nil {
		t.Errorf("plan %s, first attempt %+v; want %s, with scope and cooldown", ws.Status.Plan.InstanceType, ws.Status.Attempts[0], dear)
	}
	second, third := eitherForm(ws.Namespace, "second"), eitherForm(ws.Namespace, "third")
	c.create(t, second)
	c.untilServing(t, second)
	c.until(t, second, "1 "+cheap+" NoCapacity", "2 "+dear) // one Workspace's guess is its own
	c.create(t, third)
	c.untilServing(t, third)
	c.until(t, third, "1 "+dear) // two are believed
	c.checkHeld(t, most)
	c.untilEvent(t, ws, "NoCapacity", cheap)
	c.untilEvent(t, ws, "FallingBack", dear)
	c.remove(t, third)
	c.remove(t, second)
	c.remove(t, ws)
}

// untilEvent waits for an event about a Workspace, and checks that it came once.
func (c *climber) untilEvent(t *testing.T, ws *v1beta1.Workspace, reason, part string) {
	t.Helper()
	eventually(t, "event "+reason, func() (bool, string) {
		list := &corev1.EventList{}
		if err := c.client.List(t.Context(), list, client.InNamespace(ws.Namespace)); err != nil {
			return false, err.Error()
		}
		count := int32(0)
		for i := range list.Items {
			item := &list.Items[i]
			if item.InvolvedObject.UID == ws.UID && item.Reason == reason && strings.Contains(item.Message, part) {
				count += max(item.Count, 1)
			}
		}
		return count == 1, fmt.Sprintf("%d events", count)
	})
}

func quotaNamed(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuota)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	if got := ws.Status.Attempts[0]; !strings.Contains(got.Message, "vCPU quota for "+cheap) || !strings.Contains(got.Fix, "ask Azure") {
		t.Errorf("message %q, fix %q; want the cloud's words and what to do", got.Message, got.Fix)
	}
	c.checkHeld(t, most)
	c.remove(t, ws)
}

func quotaInEvent(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuotaEvent)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	c.remove(t, ws)
}

func misconfigured(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoRights)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	if stalled := condition(ws, v1beta1.ConditionStalled); !strings.Contains(stalled.Message, "give the provisioner's identity the role") {
		t.Errorf("message %q does not say what to mend", stalled.Message)
	}
	c.untilReleased(t, ws)
	c.passes(t, c.life, ws, 2)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: nothing falls back", got)
	}
	c.karpenter.Script(cheap, sim.Works)
	c.patch(t, ws, func() { ws.Suspend = true })
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonSuspended)
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Misconfigured", "2 "+cheap)
	c.remove(t, ws)
}

func classNotReady(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	set := func(ready string) {
		t.Helper()
		class := sim.NodeClass("default", ready, "the subnet does not exist")
		text, err := json.Marshal(class)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.client.Patch(t.Context(), class, client.RawPatch(types.MergePatchType, text)); err != nil {
			t.Fatal(err)
		}
	}
	set("False")
	defer set("True")
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	if stalled := condition(ws, v1beta1.ConditionStalled); !strings.Contains(stalled.Message, "the subnet does not exist") {
		t.Errorf("message %q does not hold the node class's own words", stalled.Message)
	}
	c.karpenter.Script(cheap, sim.Works)
	c.patch(t, ws, nil)
	c.passes(t, c.life, ws, 2)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 0 {
		t.Errorf("NodeClaims ever made: %d, want none", got)
	}
	set("True")
	c.clock.step(time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap)
	c.remove(t, ws)
}

// classWithSmallDisk gives the node class a disk that is too small for the model, until an administrator corrects it.
func classWithSmallDisk(t *testing.T, c *climber) {
	set := func(gigabytes int) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"osDiskSizeGB":%d}}`, gigabytes)
		if err := c.client.Patch(t.Context(), sim.NodeClass("default", "True", ""), client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	defer set(128)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	const words = `nothing is bought yet: AKSNodeClass "default" gives its machines an OS disk of 1 GB, but weights and image need`
	if stalled := condition(ws, v1beta1.ConditionStalled); !strings.Contains(stalled.Message, words) {
		t.Errorf("message %q, want %q", stalled.Message, words)
	}
	c.passes(t, c.life, ws, 2)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 0 {
		t.Errorf("NodeClaims ever made: %d, want none", got)
	}
	set(128)
	c.clock.step(time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap)
	c.remove(t, ws)
}

// classMissing has the node class go after it was looked at, and made again after the refusal; it never
// says anything of itself.
func classMissing(t *testing.T, c *climber) {
	before := eitherForm(c.namespace(t), "before")
	c.create(t, before)
	c.untilServing(t, before)
	c.remove(t, before)
	c.karpenter.Script(cheap, sim.NoCapacity)
	class := sim.NodeClass("default", "True", "")
	if err := c.client.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	made := false
	defer func() {
		if !made {
			t.Log(c.client.Create(context.WithoutCancel(t.Context()), sim.NodeClass("default", "True", "")))
		}
	}()
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	c.untilReleased(t, ws)
	silent := sim.NodeClass("default", "True", "")
	delete(silent.Object, "status")
	if err := c.client.Create(t.Context(), silent); err != nil {
		t.Fatal(err)
	}
	made = true
	c.karpenter.Script(cheap, sim.Works)
	c.patch(t, ws, nil) // or a minute later
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Misconfigured", "2 "+cheap)
	c.remove(t, ws)
	ready := sim.NodeClass("default", "True", "")
	text, err := json.Marshal(ready)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.client.Patch(t.Context(), ready, client.RawPatch(types.MergePatchType, text)); err != nil {
		t.Fatal(err)
	}
}

func namedType(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := kaitoForm(c.namespace(t), "chat")
	ws.Resource.InstanceType = cheap
	c.create(t, ws)
	for _, kind := range []string{v1beta1.ConditionNodeClaimReady, v1beta1.ConditionResourceReady, v1beta1.ConditionReady} {
		c.untilCondition(t, ws, kind, metav1.ConditionFalse, v1beta1.ReasonNoCapacity)
	}
	eventually(t, "it says until when it waits", func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		message := condition(ws, v1beta1.ConditionReady).Message
		return strings.Contains(message, "is cooling down until 20"), message
	})
	c.passes(t, c.life, ws, 2)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	writes := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if all := c.life.recorder.Writes(); len(all) != writes {
		t.Errorf("waiting wrote: %v", all[writes:])
	}
	c.karpenter.Script(cheap, sim.Works)
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+cheap)
	c.remove(t, ws)
}

func exhausted(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	c.karpenter.Script(dear, sim.NoQuota)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear+" Quota")
	c.untilReleased(t, ws)
	eventually(t, "it says until when and what would help", func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		message := condition(ws, v1beta1.ConditionReady).Message
		return strings.Contains(message, "is cooling down until 20") && strings.Contains(message, "a larger quota would allow 1 × "+dear), message
	})
	c.karpenter.Script(cheap, sim.Works)
	c.clock.step(11 * time.Minute) // the quota is left alone for an hour
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear+" Quota", "3 "+cheap)
	c.remove(t, ws)
}

// waitingIsSilent waits for a machine that is on its way, and then for a cooldown.
func waitingIsSilent(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.Hangs)
	ws := kaitoForm(c.namespace(t), "chat")
	ws.Resource.InstanceType = cheap
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "LaunchFailed")
	c.checkSilent(t, "a machine is on its way")
	c.clock.step(3 * time.Minute) // after an unknown message, the attempt ends by then
	c.patch(t, ws, nil)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonUnknown)
	c.untilReleased(t, ws)
	c.checkSilent(t, "nothing is left to ask for")
	c.remove(t, ws)
}

// checkSilent counts requests once the present step has ended.
func (c *climber) checkSilent(t *testing.T, when string) {
	t.Helper()
	const settles, period = 4 * time.Second, 5 * time.Second
	time.Sleep(settles)
	before := c.life.requests.Load()
	time.Sleep(period)
	if sent := c.life.requests.Load() - before; sent != 0 {
		t.Errorf("while %s, %d requests were sent in %s, want none", when, sent, period)
	}
}

func allOrNone(t *testing.T, c *climber) {
	c.karpenter.ScriptOrdinal(dear, "1", sim.NoCapacity)
	ws := templateForm(c.namespace(t))
	ws.Resource.InstanceType, ws.Resource.Count = dear, new(2)
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonNoCapacity)
	c.untilReleased(t, ws)
	if first, second := c.karpenter.ClaimsEverOf(ws.UID, "0"), c.karpenter.ClaimsEverOf(ws.UID, "1"); first != 1 || second != 1 {
		t.Errorf("NodeClaims ever made: %d and %d, want one each", first, second)
	}
	c.karpenter.ScriptOrdinal(dear, "1", sim.Works)
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear+" NoCapacity", "2 "+dear)
	c.remove(t, ws)
}

func noGPUs(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoGPUs)
	c.karpenter.Script(dear, sim.NoGPUs)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "ResourceNotRegistered")
	c.clock.step(31 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" NeverInitialized", "2 "+dear)
	eventually(t, "the second machine is a node", func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		found := condition(ws, v1beta1.ConditionNodeClaimReady)
		return found.Reason == "ResourceNotRegistered" && strings.Contains(found.Message, dear), saying(ws)
	})
	c.clock.step(31 * time.Minute)
	c.patch(t, ws, nil)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	if stalled := condition(ws, v1beta1.ConditionStalled); !strings.Contains(stalled.Message, "device plugin") {
		t.Errorf("message %q does not name the device plugin", stalled.Message)
	}
	c.until(t, ws, "1 "+cheap+" NeverInitialized", "2 "+dear+" Misconfigured")
	c.untilReleased(t, ws)
	c.remove(t, ws)
}

// silence makes the node of a serving Workspace NotReady.
func (c *climber) silence(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Name: ws.Status.WorkerNodes[0]}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()},
	}
	if err := c.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonNodeNotReady)
}

// spoil edits a Workspace so that its spec has no plan.
func (c *climber) spoil(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	c.patch(t, ws, func() { ws.Inference.Config = "missing" })
	c.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonConfigNotFound)
}

func noGPUsOfSpoiled(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoGPUs)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "ResourceNotRegistered")
	c.spoil(t, ws)
	c.clock.step(31 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" NeverInitialized")
	c.untilReleased(t, ws)
	c.passes(t, c.life, ws, 1)
	c.until(t, ws, "1 "+cheap+" NeverInitialized")
	c.patch(t, ws, func() { ws.Inference.Config = "" })
	c.untilServing(t, ws)
	c.remove(t, ws)
}

func lostOfSpoiled(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.silence(t, ws)
	c.spoil(t, ws)
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+cheap)
	eventually(t, "the replacement is usable", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return err == nil && len(ws.Status.Attempts) == 2 && ws.Status.Attempts[1].ReadyTime != nil, saying(ws)
	})
	c.remove(t, ws)
}

func nodeNotReady(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	c.silence(t, ws)
	c.clock.step(9 * time.Minute)
	c.passes(t, c.life, ws, 1)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: it may come back", got)
	}
	c.clock.step(2 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+cheap)
	c.untilServing(t, ws)
	c.checkHeld(t, most)
	c.remove(t, ws)
}

func restarted(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuota)
	first := kaitoForm(c.namespace(t), "first")
	first.Resource.InstanceType = cheap
	c.create(t, first)
	c.untilCondition(t, first, v1beta1.ConditionResourceReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.life.end(t)
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	ws := eitherForm(first.Namespace, "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear)
	if got := c.karpenter.ClaimsEver(first.UID); got != 1 {
		t.Errorf("NodeClaims ever made for the refused one: %d, want 1", got)
	}
	c.remove(t, ws)
	c.remove(t, first)
}

// unseenPlan delays the fallback's plan in the controller's cache.
func unseenPlan(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	c.life.recorder.Hide(&appsv1.ControllerRevisionList{}, func(revision client.Object) bool {
		return revision.GetNamespace() == ws.Namespace && strings.Count(revision.GetName(), "-") > 1
	})
	c.create(t, ws)
	eventually(t, "the second machine", func() (bool, string) { return c.karpenter.ClaimsEver(ws.UID) == 2, "not yet" })
	during(t, "the second machine is kept", 2*time.Second, func() (bool, string) {
		ever, claims := c.karpenter.ClaimsEver(ws.UID), c.claims(t, ws)
		return ever == 2 && len(claims) > 0 && claims[len(claims)-1].DeletionTimestamp.IsZero(), fmt.Sprintf("%d ever, %d held", ever, len(claims))
	})
	c.life.recorder.Show(&appsv1.ControllerRevisionList{})
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	c.remove(t, ws)
}

// lostStatus removes the status of a Workspace after a fallback, while no controller runs.
func lostStatus(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	c.life.end(t)
	ws.Status = v1beta1.WorkspaceStatus{}
	if err := c.client.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.untilServing(t, ws)
	c.until(t, ws, "2 "+dear)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	claims := &karpv1.NodeClaimList{}
	if err := c.client.List(t.Context(), claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(ws.UID)}); err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 1 {
		t.Errorf("%d NodeClaims, want 1", len(claims.Items))
	}
	c.remove(t, ws)
}
