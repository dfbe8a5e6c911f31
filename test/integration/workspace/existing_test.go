// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestExistingNodes has the stories of nodes not bought for a Workspace. Each has nodes with its own label and taint,
// so other stories' Workspaces do not use them.
func TestExistingNodes(t *testing.T) {
	w := enter(t)
	for _, story := range []struct {
		reason string
		tell   func(*testing.T, *climber)
	}{
		{"a bring-your-own manifest serves on the node that it selects, and leaves it as it was", bringYourOwn},
		{"a node that comes is what was waited for", nodeComes},
		{"what is in use, cordoned, not Ready or not tolerated is said of each node", everyReason},
		{"two Workspaces race for one GPU: one serves, the other waits and follows", raceForOne},
		{"a node that goes is left for another", nodeGoes},
		{"a node that does not come back is left, and its pod is not waited for", nodeIsLost},
		{"GPUs that somebody else took first are not waited for while another node has some", gpusTaken},
		{"where no other node has any they are, and the pods are not sent to and fro", gpusTakenEverywhere},
		{"where machines may be bought, one is bought in place of a node that goes", boughtInstead},
		{"machines that were bought are let go for a plan on nodes, once the model answers there", letGoForNodes},
		{"machines that were bought are kept for a while if the model does not answer on nodes", brokenOnNodes},
		{"settled on a node, it costs no request", settledOnNode},
		{"while it waits for room on nodes, it costs no request", waitsForRoom},
	} {
		t.Run(story.reason, func(t *testing.T) {
			c := &climber{world: w, clock: &stepClock{}}
			c.life = c.beginAt(t, faults.NewRecorder(), c.clock)
			story.tell(t, c)
		})
	}
}

// TestCrashAtEveryWriteOnExistingNodes kills the controller at every write on the way to a node and, after the loss of
// the node, to the next one.
func TestCrashAtEveryWriteOnExistingNodes(t *testing.T) {
	w := enter(t)
	for number := 1; !t.Failed(); number++ {
		crashed := false
		t.Run(fmt.Sprintf("write %d", number), func(t *testing.T) {
			var first *life
			recorder := faults.CrashAt(number, faults.After, func() { first.cancel() })
			first = w.begin(t, recorder)
			ws := nodeForm(w.namespace(t), "chat")
			a := w.addNode(t, ws, "a")
			b := w.addNode(t, ws, "b")
			w.create(t, ws)
			serves := func(on *corev1.Node) {
				t.Helper()
				eventually(t, "ready on "+on.Name, func() (bool, string) {
					if recorder.Crashed() && !crashed {
						crashed = true
						first.end(t)
						w.begin(t, faults.NewRecorder())
					}
					if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
						return false, err.Error()
					}
					isReady := condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue
					return isReady && slices.Equal(ws.Status.WorkerNodes, []string{on.Name}), saying(ws)
				})
			}
			serves(a)
			if err := w.client.Delete(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			serves(b)
			w.checkNothingBought(t, ws)
		})
		if !crashed {
			t.Logf("crashed at each of %d writes", number-1)
			if number < 8 {
				t.Errorf("the story had only %d writes: is the recorder in the way of all of them?", number-1)
			}
			return
		}
	}
}

// nodeForm is KAITO's bring-your-own form: only the node selector limits the placement.
func nodeForm(namespace, name string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, name)
	ws.Resource = v1beta1.ResourceSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": namespace}}}
	ws.Inference.Pod = &v1beta1.PodSpec{Tolerations: []corev1.Toleration{{
		Key: "story", Operator: corev1.TolerationOpEqual, Value: namespace, Effect: corev1.TaintEffectNoSchedule,
	}}}
	return ws
}

// addNode makes a node with a GPU that a Workspace of nodeForm selects and tolerates.
func (w *world) addNode(t *testing.T, ws *v1beta1.Workspace, name string, change ...func(*corev1.Node)) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: ws.Namespace + "-" + name, Labels: map[string]string{
			"pool": ws.Namespace, corev1.LabelInstanceTypeStable: cheap,
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "story", Value: ws.Namespace, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
				"nvidia.com/gpu": resource.MustParse("1"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, c := range change {
		c(node)
	}
	status, taints := node.Status, slices.Clone(node.Spec.Taints)
	if err := w.client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.client.Delete(context.Background(), node)); err != nil {
			t.Errorf("taking away node %s: %v", node.Name, err)
		}
	})
	node.Status = status
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = taints // the API server adds the taint not-ready, and no controller here removes it
	if err := w.client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// occupy has a pod of somebody else take the GPU of a node.
func (w *world) occupy(t *testing.T, ws *v1beta1.Workspace, node *corev1.Node) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ws.Namespace, GenerateName: "foreign-"},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{
			Name: "c", Image: "registry.example/other:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		}}},
	}
	if err := w.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// untilOn waits until a Workspace answers, on a node.
func (w *world) untilOn(t *testing.T, ws *v1beta1.Workspace, node *corev1.Node) {
	t.Helper()
	eventually(t, "ready on "+node.Name, func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		isReady := condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue
		return isReady && slices.Equal(ws.Status.WorkerNodes, []string{node.Name}), saying(ws)
	})
	pod := &corev1.Pod{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != node.Name {
		t.Errorf("the pod is on node %q, want %q", pod.Spec.NodeName, node.Name)
	}
}

// later puts the clock forward, and has the controller look.
func (c *climber) later(t *testing.T, ws *v1beta1.Workspace, by time.Duration) {
	t.Helper()
	c.clock.step(by)
	c.patch(t, ws, nil)
}

func (w *world) unready(t *testing.T, node *corev1.Node) {
	t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()},
	}
	if err := w.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

func bringYourOwn(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	ws.Resource.PreferredNodes = []string{ws.Namespace + "-b"}
	c.addNode(t, ws, "a")
	node := c.addNode(t, ws, "b")
	c.create(t, ws)
	c.untilOn(t, ws, node)
	c.checkNothingBought(t, ws)
	if claims := condition(ws, v1beta1.ConditionNodeClaimReady); claims.Type != "" {
		t.Errorf("condition %+v, want none: nothing was bought", claims)
	}
	if got := ws.Status.Plan; got == nil || got.HourlyPrice != "0" || got.InstanceType != "" || ws.Status.TargetNodeCount != 1 {
		t.Errorf("plan %+v, want one for nothing", got)
	}
	if len(ws.Status.Attempts) > 0 {
		t.Errorf("attempts %+v, want none", ws.Status.Attempts)
	}
	if err := c.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.untilGone(t, ws)
	after := &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(node), after); err != nil {
		t.Fatalf("the node: %v", err)
	}
	if diff := cmp.Diff(node.ResourceVersion, after.ResourceVersion); diff != "" {
		t.Errorf("somebody wrote to the node (-before +after):\n%s", diff)
	}
}

func nodeComes(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	if message := condition(ws, v1beta1.ConditionPlanned).Message; !strings.Contains(message, "resource.labelSelector") {
		t.Errorf("message %q does not say what to do", message)
	}
	node := c.addNode(t, ws, "a")
	c.untilOn(t, ws, node)
	c.checkNothingBought(t, ws)
}

func everyReason(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	busy := c.addNode(t, ws, "busy")
	c.occupy(t, ws, busy)
	cordoned := c.addNode(t, ws, "cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.addNode(t, ws, "tainted", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule})
	})
	c.addNode(t, ws, "unready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	message := condition(ws, v1beta1.ConditionPlanned).Message
	for _, want := range []string{
		"-busy: no GPU is free: 1 GPU in use", "-cordoned: is cordoned", "-tainted: has the taint dedicated:NoSchedule", "-unready: is not ready",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
	c.patch(t, cordoned, func() { cordoned.Spec.Unschedulable = false })
	c.untilOn(t, ws, cordoned)
}

func raceForOne(t *testing.T, c *climber) {
	first := nodeForm(c.namespace(t), "first")
	second := first.DeepCopy()
	second.Name = "second"
	c.create(t, first)
	c.create(t, second)
	node := c.addNode(t, first, "a")
	both := []*v1beta1.Workspace{first, second}
	eventually(t, "one of two ready", func() (bool, string) {
		for i, ws := range both {
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
				return false, err.Error()
			}
			if condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue {
				first, second = both[i], both[1-i]
				return true, ""
			}
		}
		return false, saying(first) + saying(second)
	})
	c.later(t, second, 10*time.Second)
	c.untilCondition(t, second, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	if message := condition(second, v1beta1.ConditionPlanned).Message; !strings.Contains(message, "1 GPU in use") {
		t.Errorf("message %q does not say that the GPU is in use", message)
	}
	set := &appsv1.StatefulSet{}
	if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(second), set); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the second has a StatefulSet (%v), want none: it was planned onto no node", err)
	}
	if err := c.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c.untilGone(t, first)
	eventually(t, "the pod of the first gone", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKey{Namespace: first.Namespace, Name: first.Name + "-0"}, &corev1.Pod{})
		return err != nil && client.IgnoreNotFound(err) == nil, fmt.Sprint(err)
	})
	c.later(t, second, 2*time.Minute)
	c.untilOn(t, second, node)
}

func nodeGoes(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	first := c.addNode(t, ws, "a")
	second := c.addNode(t, ws, "b")
	c.create(t, ws)
	c.untilOn(t, ws, first)
	if err := c.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c.untilOn(t, ws, second)
	c.untilEvent(t, ws, "FallingBack", second.Name)
	if err := c.client.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonNodeNotReady)
	want := "node " + second.Name + " is gone; tiny-chat: no node with GPUs is available"
	if message := condition(ws, v1beta1.ConditionNodesReady).Message; !strings.HasPrefix(message, want) {
		t.Errorf("message %q, want %q…", message, want)
	}
	third := c.addNode(t, ws, "c")
	c.untilOn(t, ws, third)
	c.checkNothingBought(t, ws)
}

func nodeIsLost(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	first := c.addNode(t, ws, "a")
	second := c.addNode(t, ws, "b")
	c.create(t, ws)
	c.untilOn(t, ws, first)
	c.unready(t, first)
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonNodeNotReady)
	c.later(t, ws, 9*time.Minute)
	c.passes(t, c.life, ws, 1)
	if got := ws.Status.Plan.Summary; !strings.Contains(got, first.Name) {
		t.Errorf("plan %q, want it on %s still: it may come back", got, first.Name)
	}
	c.later(t, ws, 2*time.Minute)
	c.untilOn(t, ws, second)
}

// suspendedOn is a Workspace that is planned onto a node and does not run yet.
func (c *climber) suspendedOn(t *testing.T, ws *v1beta1.Workspace, node *corev1.Node) {
	t.Helper()
	ws.Suspend = true
	c.create(t, ws)
	eventually(t, "planned onto "+node.Name, func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return err == nil && ws.Status.Plan != nil && strings.Contains(ws.Status.Plan.Summary, node.Name), saying(ws)
	})
}

func gpusTaken(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	first := c.addNode(t, ws, "a")
	c.suspendedOn(t, ws, first)
	c.occupy(t, ws, first)
	second := c.addNode(t, ws, "b")
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilCondition(t, ws, v1beta1.ConditionInferenceReady, metav1.ConditionFalse, "")
	c.untilTurnedDown(t, ws)
	c.later(t, ws, time.Minute)
	c.untilOn(t, ws, second)
}

// untilTurnedDown waits until the scheduler has refused a Workspace's pod.
func (c *climber) untilTurnedDown(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	eventually(t, "a pod that is turned down", func() (bool, string) {
		pod := &corev1.Pod{}
		err := c.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod)
		return err == nil && len(pod.Status.Conditions) > 0 && pod.Spec.NodeName == "", fmt.Sprint(err, pod.Status.Conditions)
	})
}

func gpusTakenEverywhere(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	node := c.addNode(t, ws, "a")
	c.suspendedOn(t, ws, node)
	foreign := c.occupy(t, ws, node)
	c.patch(t, ws, func() { ws.Suspend = false })
	c.untilTurnedDown(t, ws)
	c.later(t, ws, time.Minute)
	c.untilCondition(t, ws, v1beta1.ConditionNodesReady, metav1.ConditionFalse, v1beta1.ReasonNodeNotReady)
	message := condition(ws, v1beta1.ConditionNodesReady).Message
	for _, want := range []string{"the scheduler does not place the pod on the planned node: 0/1 nodes are available", node.Name} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
	for range 3 {
		c.later(t, ws, 5*time.Minute)
		c.passes(t, c.life, ws, 1)
	}
	revisions := &appsv1.ControllerRevisionList{}
	if err := c.client.List(t.Context(), revisions, client.InNamespace(ws.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(revisions.Items) != 1 {
		t.Errorf("%d revisions, want 1: there is no other plan", len(revisions.Items))
	}
	if err := c.client.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.untilOn(t, ws, node)
}

func boughtInstead(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceAny, InstanceTypes: []string{cheap}}
	node := c.addNode(t, ws, "a")
	c.create(t, ws)
	c.untilOn(t, ws, node)
	c.checkNothingBought(t, ws)
	if err := c.client.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	c.until(t, ws, "1 "+cheap)
	eventually(t, "ready on a machine", func() (bool, string) {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		isReady := condition(ws, v1beta1.ConditionReady).Status == metav1.ConditionTrue
		return isReady && condition(ws, v1beta1.ConditionNodeClaimReady).Status == metav1.ConditionTrue, saying(ws)
	})
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 || slices.Contains(ws.Status.WorkerNodes, node.Name) {
		t.Errorf("NodeClaims ever made: %d, want 1; nodes %v", got, ws.Status.WorkerNodes)
	}
	c.remove(t, ws)
}

// startsSlowly leaves the pods of the next revision of a StatefulSet unready, until Heal.
func (w *world) startsSlowly(t *testing.T, key client.ObjectKey) {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), key, set); err != nil {
		t.Fatal(err)
	}
	w.workloads.ScriptUpdate(key, set.Status.UpdateRevision, corev1.PodStatus{Phase: corev1.PodPending})
	t.Cleanup(func() { w.workloads.Heal(key) })
}

// untilBound waits until the pod of a Workspace is on a node.
func (w *world) untilBound(t *testing.T, ws *v1beta1.Workspace, node *corev1.Node) {
	t.Helper()
	eventually(t, "the pod is on "+node.Name, func() (bool, string) {
		pod := &corev1.Pod{}
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: ws.Name + "-0"}, pod)
		return err == nil && pod.Spec.NodeName == node.Name, fmt.Sprint(pod.Spec.NodeName, err)
	})
}

// touchSet has the stand-ins look at a StatefulSet again.
func (w *world) touchSet(t *testing.T, key client.ObjectKey) {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.dev/healed":"yes"}}}`))
	if err := w.client.Patch(t.Context(), set, patch); err != nil {
		t.Fatal(err)
	}
}

// movesToNode returns a Workspace that moves from a bought machine to an existing node. Its pod starts slowly there.
func movesToNode(t *testing.T, c *climber) (ws *v1beta1.Workspace, node *corev1.Node) {
	t.Helper()
	ws = nodeForm(c.namespace(t), "chat")
	ws.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned, InstanceTypes: []string{cheap}}
	node = c.addNode(t, ws, "a")
	c.create(t, ws)
	c.until(t, ws, "1 "+cheap)
	c.untilServing(t, ws)
	c.startsSlowly(t, client.ObjectKeyFromObject(ws))
	c.patch(t, ws, func() { ws.Resource.Placement.NodeSource = v1beta1.NodeSourceAny })
	c.untilBound(t, ws, node)
	return ws, node
}

// brokenOnNodes moves a Workspace to a node where its pod does not answer. The controller keeps the bought machine for
// a while, so it buys none when the edit is reverted.
func brokenOnNodes(t *testing.T, c *climber) {
	ws, node := movesToNode(t, c)
	key := client.ObjectKeyFromObject(ws)
	c.patch(t, ws, func() { ws.Resource.Placement.NodeSource = v1beta1.NodeSourceProvisioned })
	c.untilServing(t, ws)
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	c.startsSlowly(t, key)
	c.patch(t, ws, func() { ws.Resource.Placement.NodeSource = v1beta1.NodeSourceAny })
	c.untilBound(t, ws, node)
	c.later(t, ws, time.Hour)
	c.untilReleased(t, ws)
	c.until(t, ws, "1 "+cheap+" Released")
}

func letGoForNodes(t *testing.T, c *climber) {
	ws, node := movesToNode(t, c)
	key := client.ObjectKeyFromObject(ws)
	c.passes(t, c.life, ws, 2)
	if claims := c.claims(t, ws); len(claims) != 1 || !claims[0].DeletionTimestamp.IsZero() {
		t.Errorf("the machine is let go before a pod answers on the node: %d NodeClaims", len(claims))
	}
	c.until(t, ws, "1 "+cheap)
	c.workloads.Heal(key)
	c.patch(t, ws, nil)
	c.touchSet(t, key)
	c.untilReleased(t, ws)
	c.untilOn(t, ws, node)
	c.until(t, ws, "1 "+cheap+" Released")
	if got := c.karpenter.ClaimsEver(ws.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
}

func waitsForRoom(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	for i := range 5 {
		c.occupy(t, ws, c.addNode(t, ws, fmt.Sprint("n", i)))
	}
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonNoMachineAllowed)
	c.passes(t, c.life, ws, 2)
	before := c.life.requests.Load()
	for range 3 {
		c.clock.step(time.Minute)
		c.passes(t, c.life, ws, 1)
	}
	if more := c.life.requests.about("")[before:]; len(more) > 0 {
		t.Errorf("further passes over a Workspace that waits sent %v", more)
	}
}

func settledOnNode(t *testing.T, c *climber) {
	ws := nodeForm(c.namespace(t), "chat")
	node := c.addNode(t, ws, "a")
	c.create(t, ws)
	c.untilOn(t, ws, node)
	c.passes(t, c.life, ws, 2)
	before, sent := len(c.life.recorder.Writes()), c.life.requests.Load()
	c.passes(t, c.life, ws, 3)
	if writes := c.life.recorder.Writes(); len(writes) != before {
		t.Errorf("further passes over a settled Workspace wrote: %v", writes[before:])
	}
	if more := c.life.requests.Load() - sent; more > 0 {
		t.Errorf("further passes over a settled Workspace sent %d requests", more)
	}
}
