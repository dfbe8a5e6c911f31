// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestLadderAsksAgain covers how a refusal ends sooner, and how an attempt is judged.
func TestLadderAsksAgain(t *testing.T) {
	stories := []ladderStory{
		{"a new value of the annotation has a refused machine asked for again", retried},
		{"a new value of the annotation goes past what had to be mended", retriedAfterMending},
		{"after a cooldown one asks first, and its success wakes the others", oneAsksFirst},
		{"a node that reports a GPU fault for too long is replaced", gpuFault},
		{"a program that provokes faults gets two machines a day, and a restart forgets neither", faultyProgram},
		{"a program that ends its kubelets gets two machines a day, and a restart forgets neither", fatalProgram},
		{"a fault that comes and goes buys one machine and cancels none, until its node stays healthy", flappingFault},
		{"a machine whose node lacks GPUs for too long is replaced, and a restart does not begin anew", gpuShortage},
		{"a machine stays while only GPUs are broken that its plan does not use", sparedGPUs},
		{"a spot machine that is taken back is replaced at once, and left alone for a while", takenBack},
		{"an older status than the machine's costs no machine", olderStatus},
	}
	w := enter(t)
	for _, story := range stories {
		story.run(t, w)
	}
}

// annotate asks to have refused machines tried again.
func (c *climber) annotate(t *testing.T, ws *v1beta1.Workspace, value string) {
	t.Helper()
	c.patch(t, ws, func() {
		metav1.SetMetaDataAnnotation(&ws.ObjectMeta, v1beta1.AnnotationRetryCapacity, value)
	})
}

func retried(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuota)
	ws := named(c.namespace(t), "chat", cheap)
	c.create(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota")
	c.untilReleased(t, ws)
	c.annotate(t, ws, "once")
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+cheap+" Quota")
	c.untilReleased(t, ws)
	c.passes(t, c.life, ws, 2)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+cheap+" Quota") // the same value counts once
	c.karpenter.Script(cheap, sim.Works)
	c.annotate(t, ws, "twice")
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+cheap+" Quota", "3 "+cheap)
	c.remove(t, ws)
}

func retriedAfterMending(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoRights)
	ws := named(c.namespace(t), "chat", cheap)
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonMisconfigured)
	c.karpenter.Script(cheap, sim.Works)
	c.annotate(t, ws, "mended")
	c.untilServing(t, ws)
	c.remove(t, ws)
}

func oneAsksFirst(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoQuota)
	namespace := c.namespace(t)
	first, second := named(namespace, "first", cheap), named(namespace, "second", cheap)
	c.create(t, first)
	c.until(t, first, "1 "+cheap+" Quota")
	c.untilReleased(t, first)
	c.create(t, second)
	c.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonQuota)
	c.karpenter.Script(cheap, sim.Hangs)
	c.clock.step(61 * time.Minute)
	asked := func() int { return c.karpenter.ClaimsEver(first.UID) - 1 + c.karpenter.ClaimsEver(second.UID) }
	c.patch(t, first, nil)
	c.patch(t, second, nil)
	eventually(t, "one of them asks again", func() (bool, string) { return asked() == 1, saying(first) + saying(second) })
	c.passes(t, c.life, first, 2)
	c.passes(t, c.life, second, 2)
	if got := asked(); got != 1 {
		t.Errorf("%d of them have asked again, want one", got)
	}
	c.karpenter.Script(cheap, sim.Works)
	probe := first
	if c.karpenter.ClaimsEver(second.UID) == 1 {
		probe = second
	}
	c.clock.step(11 * time.Minute) // its machine hangs for too long, and it asks anew
	c.annotate(t, probe, "now")
	c.untilServing(t, first)
	c.untilServing(t, second) // the success of the one wakes the other
	c.remove(t, first)
	c.remove(t, second)
}

// report has the only node of a Workspace report a condition.
func (c *climber) report(t *testing.T, ws *v1beta1.Workspace, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	t.Helper()
	c.reportOn(t, ws.Status.WorkerNodes[0], kind, status)
}

// reportOn has a node report a condition.
func (c *climber) reportOn(t *testing.T, name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type == kind })
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, LastTransitionTime: metav1.NewTime(c.clock.Now()), Message: "GPU has fallen off the bus",
	})
	if err := c.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

func gpuFault(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	c.report(t, ws, "AcceleratedHardwareReady", corev1.ConditionFalse)
	c.clock.step(9 * time.Minute)
	c.passes(t, c.life, ws, 1)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: it may pass", got)
	}
	c.clock.step(2 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+cheap)
	if message := ws.Status.Attempts[0].Message; !strings.Contains(message, "AcceleratedHardwareReady=False: GPU has fallen off the bus") {
		t.Errorf("message %q does not quote the node", message)
	}
	c.untilServing(t, ws)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

// allocate has a node offer a number of its GPUs.
func (c *climber) allocate(t *testing.T, name, gpus string) {
	t.Helper()
	node := &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(gpus)
	if err := c.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

func faultyProgram(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	for bought := range 3 {
		c.untilServing(t, ws)
		c.report(t, ws, "SysLogsXIDError", corev1.ConditionTrue)
		c.clock.step(6 * time.Minute)
		c.patch(t, ws, nil)
		eventually(t, "the fault counts", func() (bool, string) {
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				return false, err.Error()
			}
			reason := condition(ws, v1beta1.ConditionResourceReady).Reason
			return c.karpenter.ClaimsEver(ws.UID) == bought+2 || reason == v1beta1.ReasonFaultRepeats, saying(ws)
		})
		if bought < 2 {
			former := ws.Status.WorkerNodes
			eventually(t, "the machine is replaced", func() (bool, string) {
				err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
				isLost := err == nil && len(ws.Status.Attempts) == bought+2 && ws.Status.Attempts[bought].Reason == v1beta1.ReasonLost
				return isLost && len(ws.Status.WorkerNodes) == 1 && !slices.Equal(former, ws.Status.WorkerNodes), saying(ws)
			})
		}
	}
	c.life.end(t)
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.passes(t, c.life, ws, 2)
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionTrue, v1beta1.ReasonFaultRepeats)
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	c.untilEvent(t, ws, v1beta1.ReasonFaultRepeats, "SysLogsXIDError=True: GPU has fallen off the bus; the machine stays")
	if got := c.karpenter.ClaimsEver(ws.UID); got != 3 {
		t.Errorf("NodeClaims ever made: %d, want 3: two a day replace others", got)
	}
	c.clock.step(24 * time.Hour)
	c.patch(t, ws, nil)
	eventually(t, "the next day has room", func() (bool, string) { return c.karpenter.ClaimsEver(ws.UID) == 4, saying(ws) })
	c.untilServing(t, ws)
	c.remove(t, ws)
}

// fatalProgram silences the node of each machine.
func fatalProgram(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	for bought := range 2 {
		c.untilServing(t, ws)
		c.report(t, ws, corev1.NodeReady, corev1.ConditionUnknown)
		c.clock.step(11 * time.Minute)
		c.patch(t, ws, nil)
		eventually(t, "the machine is replaced", func() (bool, string) {
			err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
			isLost := err == nil && len(ws.Status.Attempts) == bought+2 && ws.Status.Attempts[bought].Reason == v1beta1.ReasonLost
			return isLost && c.karpenter.ClaimsEver(ws.UID) == bought+2, saying(ws)
		})
	}
	c.untilServing(t, ws)
	c.report(t, ws, corev1.NodeReady, corev1.ConditionUnknown)
	c.untilEvent(t, ws, v1beta1.ReasonFaultRepeats, "the machine stays, because 2 faults counted within 24 hours")
	c.clock.step(11 * time.Minute)
	c.life.end(t)
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.passes(t, c.life, ws, 2)
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonFaultRepeats)
	c.untilCondition(t, ws, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonFaultRepeats)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 3 {
		t.Errorf("NodeClaims ever made: %d, want 3: two a day replace others", got)
	}
	c.clock.step(24 * time.Hour)
	c.patch(t, ws, nil)
	eventually(t, "the next day has room", func() (bool, string) { return c.karpenter.ClaimsEver(ws.UID) == 4, saying(ws) })
	c.untilServing(t, ws)
	c.remove(t, ws)
}

// flappingFault has a successor on its way while the node is well for a moment.
func flappingFault(t *testing.T, c *climber) {
	ws := c.serveOn(t, dear)
	pod, node := c.podUID(t, ws), ws.Status.WorkerNodes[0]
	c.karpenter.Script(dear, sim.NoGPUs) // the successor takes its time
	c.reportOn(t, node, "SysLogsXIDError", corev1.ConditionTrue)
	c.clock.step(6 * time.Minute)
	c.patch(t, ws, nil)
	c.untilHeld(t, ws, dear, dear)
	isHealthy := func(want bool) {
		t.Helper()
		eventually(t, "the status records the health", func() (bool, string) {
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				return false, err.Error()
			}
			counted := ws.Status.Attempts[0].Faults
			return len(counted) == 1 && (counted[0].HealthySince != nil) == want, saying(ws)
		})
	}
	for range 2 {
		c.reportOn(t, node, "SysLogsXIDError", corev1.ConditionFalse)
		isHealthy(true)
		c.clock.step(time.Minute)
		c.passes(t, c.life, ws, 1)
		c.reportOn(t, node, "SysLogsXIDError", corev1.ConditionTrue)
		isHealthy(false)
	}
	c.until(t, ws, "1 "+dear, "2 "+dear)
	c.reportOn(t, node, "SysLogsXIDError", corev1.ConditionFalse)
	isHealthy(true)
	c.clock.step(7 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+dear, "2 "+dear+" Released")
	c.untilHeld(t, ws, dear)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 2 || c.podUID(t, ws) != pod {
		t.Errorf("NodeClaims ever made: %d, want 2, and the pod stays", got)
	}
	c.remove(t, ws)
}

// gpuShortage removes a GPU from the allocatable resources of a Workspace's node, first for a moment and then for good.
// The controller restarts in between.
func gpuShortage(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	usable := func(gpus string) {
		t.Helper()
		c.allocate(t, ws.Status.WorkerNodes[0], gpus)
		eventually(t, "the status records the shortage", func() (bool, string) {
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				return false, err.Error()
			}
			claims := ws.Status.Attempts[len(ws.Status.Attempts)-1].Claims
			return len(claims) == 1 && (claims[0].GPUsMissingSince != nil) == (gpus == "0"), saying(ws)
		})
	}
	usable("0")
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonNodePluginsNotReady)
	c.clock.step(6 * time.Minute)
	usable("1")
	c.clock.step(6 * time.Minute)
	usable("0")
	c.clock.step(5 * time.Minute)
	c.life.end(t)
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.passes(t, c.life, ws, 2)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: no shortage has lasted seven minutes", got)
	}
	c.clock.step(2*time.Minute + time.Second)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+cheap)
	const want = "can allocate 0 of its 1 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy"
	if message := ws.Status.Attempts[0].Message; !strings.Contains(message, want) {
		t.Errorf("message %q does not contain %q", message, want)
	}
	c.untilServing(t, ws)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

// sparedGPUs breaks GPUs of a machine with four, of which the plan uses one.
func sparedGPUs(t *testing.T, c *climber) {
	const four = "Standard_NC64as_T4_v3"
	ws := named(c.namespace(t), "chat", four)
	c.create(t, ws)
	c.untilServing(t, ws)
	node := ws.Status.WorkerNodes[0]
	c.allocate(t, node, "3")
	c.reportOn(t, node, "SysLogsGPUFallenOff", corev1.ConditionTrue)
	const stays = "can allocate 3 of its 4 nvidia.com/gpu: the device plugin reports the other GPUs as unhealthy; the plan needs only 1, so the machine stays"
	eventually(t, "the condition names the broken GPU", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		nodes := condition(ws, v1beta1.ConditionNodesReady)
		return err == nil && nodes.Status == metav1.ConditionTrue && strings.Contains(nodes.Message, stays), saying(ws)
	})
	c.clock.step(8 * time.Minute)
	c.patch(t, ws, nil)
	c.passes(t, c.life, ws, 4)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: the plan needs one GPU", got)
	}
	c.allocate(t, node, "0") // the device plugin restarts
	eventually(t, "the attempt records that GPUs are missing", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return err == nil && len(ws.Status.Attempts) == 1 && ws.Status.Attempts[0].Claims[0].GPUsMissingSince != nil, saying(ws)
	})
	c.passes(t, c.life, ws, 4)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1: the device plugin may come back", got)
	}
	c.clock.step(6 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+four+" Lost", "2 "+four)
	c.remove(t, ws)
}

func takenBack(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	ws.Resource.Placement.CapacityTypes = []v1beta1.CapacityType{v1beta1.CapacitySpot}
	c.create(t, ws)
	most := c.watchClaims(t, ws)
	c.untilServing(t, ws)
	c.report(t, ws, "PreemptionScheduled", corev1.ConditionTrue)
	c.until(t, ws, "1 "+cheap+" Lost", "2 "+dear)
	c.untilServing(t, ws)
	checkMost(t, most, 2)
	c.remove(t, ws)
}

func olderStatus(t *testing.T, c *climber) {
	c.karpenter.Script(cheap, sim.NoCapacity)
	ws := eitherForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NoCapacity", "2 "+dear)
	c.life.end(t)
	held := ws.Status.Attempts[1]
	held.Number, held.NodeClaims, held.Claims, held.ReadyTime = 1, []string{"chat-older"}, nil, nil
	ws.Status.Attempts = []v1beta1.Attempt{held}
	if err := c.client.Status().Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
	c.until(t, ws, "1 "+dear+" Released", "2 "+dear)
	c.untilServing(t, ws)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 2 {
		t.Errorf("NodeClaims ever made: %d, want 2", got)
	}
	c.remove(t, ws)
}
