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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
	"github.com/modelberth/modelberth/test/integration/sim"
)

// TestPods runs the stories of Workspaces whose pods wait for machines that the controller does not buy.
func TestPods(t *testing.T) {
	w := enter(t)
	for _, story := range []struct {
		reason string
		tell   func(*testing.T, *climber)
	}{
		{"the first machine type's group is full, and the second serves", groupFull},
		{"the cloud's words about a node group are told", cloudRefusesGroup},
		{"a node that somebody brings serves, and before it nothing is sent", broughtByHand},
		{"nobody brings a node, and that is named", nobodyBrings},
		{"a node whose GPUs never show is given up", blindNode},
		{"a node that goes is asked for anew, and refused then", nodeUnderPodGoes},
		{"one of two replicas loses its node, and the other one serves on", nodeUnderReplicaFails},
		{"a group of two waits in one zone", groupWaits},
		{"a Workspace that is suspended lets its pods go, and a lost status makes none twice", podsLetGo},
		{"money that is freed is noticed", podsFreeMoney},
	} {
		t.Run(story.reason, func(t *testing.T) {
			c := &climber{world: w, clock: &stepClock{}}
			c.life = c.beginWith(t, faults.NewRecorder(), c.clock, c.podOptions())
			story.tell(t, c)
		})
	}
}

// podOptions are the options of a controller with the back end pods.
func (w *world) podOptions() options.Controller {
	o := w.options()
	o.CapacityBackend, o.NodeClasses = options.BackendPods, nil
	o.Spending.PerNamespace = 7.5 // two of the dear ones
	return o
}

// group is a node group of a machine type. Its nodes are deleted with the story.
func (w *world) group(t *testing.T, machine string, scaling sim.Scaling) sim.NodeGroup {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("_", "-", "/", "-").Replace(fmt.Sprintf("%s-%d", machine, time.Now().UnixNano())))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := w.client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{sim.LabelNodeGroup: name})
		if err != nil {
			t.Errorf("taking away the nodes of %s: %v", name, err)
		}
	})
	return sim.NodeGroup{Name: name, InstanceType: machine, Zone: "eastus-1", Scaling: scaling}
}

// attemptsOf watches the pods of a Workspace; the returned function returns the greatest number of attempts that had
// pods at the same time, and the number of all pods.
func (w *world) attemptsOf(t *testing.T, ws *v1beta1.Workspace) func() (most, ever int) {
	t.Helper()
	watcher, err := w.client.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(ws.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	most, ever := make(chan [2]int), map[string]bool{}
	go func() {
		there, greatest := map[string]string{}, 0
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Annotations[v1beta1.AnnotationMachine] == "" {
				continue
			}
			ever[string(pod.UID)] = true
			there[string(pod.UID)] = pod.Annotations[v1beta1.AnnotationMachine]
			if event.Type == watch.Deleted {
				delete(there, string(pod.UID))
			}
			var attempts []string
			for _, attempt := range there {
				if !slices.Contains(attempts, attempt) {
					attempts = append(attempts, attempt)
				}
			}
			greatest = max(greatest, len(attempts))
		}
		most <- [2]int{greatest, len(ever)}
	}()
	return func() (int, int) {
		watcher.Stop()
		counts := <-most
		return counts[0], counts[1]
	}
}

func groupFull(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.autoscaler.Serve(ws.Namespace, c.group(t, cheap, sim.Full), c.group(t, dear, sim.Scales))
	count := c.attemptsOf(t, ws)
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	want := "pod didn't trigger scale-up: 1 max node group size reached, 1 node(s) didn't match Pod's node affinity/selector"
	if got := ws.Status.Attempts[0]; got.Message != want || !strings.Contains(got.Fix, "raise the maximum size") {
		t.Errorf("attempt 1 ended with %q and the fix %q; want the words %q, and to raise the size", got.Message, got.Fix, want)
	}
	if got, want := fmt.Sprint(ws.Status.Attempts[1].NodeClaims), "["+ws.Namespace+"/chat-0.2]"; got != want {
		t.Errorf("attempt 2 asked for %s, want %s", got, want)
	}
	c.checkSettled(t, ws)
	c.deleteWithPods(t, ws)
	if most, ever := count(); most != 1 || ever != 2 {
		t.Errorf("pods of %d attempts at once, %d pods ever; want 1 and 2", most, ever)
	}
}

// checkSettled checks that there are no more writes, even from a restarted controller.
func (c *climber) checkSettled(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	c.passes(t, c.life, ws, 2)
	before := len(c.life.recorder.Writes())
	c.passes(t, c.life, ws, 3)
	if writes := c.life.recorder.Writes(); len(writes) != before {
		t.Errorf("further passes over a settled Workspace wrote: %v", writes[before:])
	}
	c.life.end(t)
	c.life = c.beginWith(t, faults.NewRecorder(), c.clock, c.podOptions())
	c.passes(t, c.life, ws, 2)
	if writes := c.life.recorder.Writes(); len(writes) != 0 {
		t.Errorf("a restarted controller wrote over a settled Workspace: %v", writes)
	}
}

// deleteWithPods deletes a Workspace, and checks that its pods are gone first.
func (c *climber) deleteWithPods(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := c.client.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	c.untilGone(t, ws)
	if sets, pods := c.setsAndPods(t, ws); sets+pods > 0 {
		t.Errorf("left behind: %d StatefulSets, %d pods", sets, pods)
	}
}

// setsAndPods counts the StatefulSets and pods of a Workspace.
func (w *world) setsAndPods(t *testing.T, ws *v1beta1.Workspace) (int, int) {
	t.Helper()
	sets, pods := &appsv1.StatefulSetList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{sets, pods} {
		err := w.client.List(t.Context(), list, client.InNamespace(ws.Namespace), client.MatchingLabels{v1beta1.LabelWorkspace: ws.Name})
		if err != nil {
			t.Fatal(err)
		}
	}
	return len(sets.Items), len(pods.Items)
}

func cloudRefusesGroup(t *testing.T, c *climber) {
	const words = "Operation could not be completed as it results in exceeding approved standardNCASv3T4Family Cores quota. " +
		"Additional details - Current Limit: 0, Current Usage: 0, Additional Required: 4"
	ws := eitherForm(c.namespace(t), "chat")
	refused := c.group(t, cheap, sim.Fails)
	refused.Words = words
	c.autoscaler.Serve(ws.Namespace, refused, c.group(t, dear, sim.Scales))
	c.create(t, ws)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	if got := ws.Status.Attempts[0]; !strings.Contains(got.Message, words) || !strings.HasPrefix(got.Scope, "family/") {
		t.Errorf("attempt 1 ended with %q about %s; want the cloud's words %q about the family", got.Message, got.Scope, words)
	}
	c.deleteWithPods(t, ws)
}

func broughtByHand(t *testing.T, c *climber) {
	ws := kaitoForm(c.namespace(t), "chat")
	ws.Resource.LabelSelector = nil
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "Unschedulable")
	want := "machine " + ws.Namespace + "/chat-0.1 (" + dear + ") is being launched: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
	if got := condition(ws, v1beta1.ConditionResourceReady).Message; got != want {
		t.Errorf("ResourceReady says %q, want %q", got, want)
	}
	c.checkSilent(t, "a pod waits")
	group := c.group(t, dear, sim.Scales)
	if err := sim.MakeNode(t.Context(), c.client, group.Node(group.Name+"-by-hand")); err != nil {
		t.Fatal(err)
	}
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear)
	if got := ws.Status.WorkerNodes; len(got) != 1 || got[0] != group.Name+"-by-hand" {
		t.Errorf("it runs on %v, want the node that was brought", got)
	}
	c.deleteWithPods(t, ws)
}

func nobodyBrings(t *testing.T, c *climber) {
	ws := kaitoForm(c.namespace(t), "chat")
	ws.Resource.LabelSelector = nil
	c.create(t, ws)
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, "Unschedulable")
	c.clock.step(21 * time.Minute)
	c.patch(t, ws, nil)
	c.until(t, ws, "1 "+dear+" TimedOut")
	c.untilCondition(t, ws, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonTimedOut)
	for _, want := range []string{"every suitable machine type is cooling down until", "no autoscaler reacted to the pending pod", "check that cluster autoscaler runs"} {
		eventually(t, "NodeClaimReady says "+want, func() (bool, string) {
			err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
			return err == nil && strings.Contains(condition(ws, v1beta1.ConditionNodeClaimReady).Message, want), saying(ws)
		})
	}
	group := c.group(t, dear, sim.Scales)
	if err := sim.MakeNode(t.Context(), c.client, group.Node(group.Name+"-at-last")); err != nil {
		t.Fatal(err)
	}
	c.untilServing(t, ws) // no pod waits any more: it is a node that exists
	c.deleteWithPods(t, ws)
}

func blindNode(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	c.autoscaler.Serve(ws.Namespace, c.group(t, cheap, sim.Blind), c.group(t, dear, sim.Scales))
	c.create(t, ws)
	c.until(t, ws, "1 "+cheap) // an attempt that starts on a fast clock takes later events for older ones
	eventually(t, "a node without GPUs", func() (bool, string) {
		// Mere progress is written a little later. If the clock ran much faster than the passes, the coalescer would
		// forget the Workspace between two passes, and the wait would restart each time.
		c.clock.step(100 * time.Millisecond)
		err := c.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return err == nil && strings.Contains(condition(ws, v1beta1.ConditionNodeClaimReady).Message, " advertises fewer GPUs than the pod requests: check its device plugin"), saying(ws)
	})
	c.clock.step(31 * time.Minute)
	c.patch(t, ws, nil)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+cheap+" NeverInitialized", "2 "+dear)
	c.deleteWithPods(t, ws)
}

func nodeUnderPodGoes(t *testing.T, c *climber) {
	ws := eitherForm(c.namespace(t), "chat")
	first, second := c.group(t, cheap, sim.Scales), c.group(t, dear, sim.Scales)
	c.autoscaler.Serve(ws.Namespace, first, second)
	c.create(t, ws)
	c.untilServing(t, ws)
	time.Sleep(time.Second) // the status has whole seconds, and the next pod must be later
	first.Scaling = sim.Full
	c.autoscaler.Serve(ws.Namespace, first, second)
	if err := c.client.DeleteAllOf(t.Context(), &corev1.Node{}, client.MatchingLabels{sim.LabelNodeGroup: first.Name}); err != nil {
		t.Fatal(err)
	}
	c.until(t, ws, "1 "+cheap+" Quota", "2 "+dear)
	c.untilServing(t, ws)
	c.deleteWithPods(t, ws)
}

// nodeUnderReplicaFails silences the node of one pod of two; the node stays silent. Only the pod on that node is
// recreated, under the same attempt, even if no other node joins at first.
func nodeUnderReplicaFails(t *testing.T, c *climber) {
	ws := templateForm(c.namespace(t))
	ws.Resource.LabelSelector, ws.Resource.Count = nil, new(2)
	nodes := c.group(t, dear, sim.Scales)
	c.autoscaler.Serve(ws.Namespace, nodes)
	c.create(t, ws)
	c.untilServing(t, ws)
	replica := func(ordinal int) (out corev1.Pod) {
		key := client.ObjectKey{Namespace: ws.Namespace, Name: fmt.Sprintf("%s-%d", ws.Name, ordinal)}
		if err := client.IgnoreNotFound(c.client.Get(t.Context(), key, &out)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	serving, lost, node := replica(0), replica(1), &corev1.Node{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Name: lost.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	nodes.Scaling = sim.Full
	c.autoscaler.Serve(ws.Namespace, nodes)
	c.unready(t, node)
	c.clock.step(11 * time.Minute)
	c.patch(t, ws, nil)
	eventually(t, "another pod waits in place of the one whose node is silent", func() (bool, string) {
		pod := replica(1)
		return pod.UID != "" && pod.UID != lost.UID && pod.Spec.NodeName == "", saying(ws)
	})
	c.clock.step(21 * time.Minute) // no node joins for it
	c.passes(t, c.life, ws, 2)
	c.until(t, ws, "1 "+dear)
	nodes.Scaling = sim.Scales
	c.autoscaler.Serve(ws.Namespace, nodes)
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear)
	if replica(0).UID != serving.UID {
		t.Error("the pod whose node is Ready was made again")
	}
	c.deleteWithPods(t, ws)
}

func groupWaits(t *testing.T, c *climber) {
	ws := groupForm(c.namespace(t), "chat")
	ws.Resource.LabelSelector = nil
	c.autoscaler.Serve(ws.Namespace, c.group(t, dear, sim.Scales))
	c.create(t, ws)
	c.untilServing(t, ws)
	if got, want := fmt.Sprint(ws.Status.Attempts[0].NodeClaims), fmt.Sprintf("[%[1]s/chat-0.1 %[1]s/chat-1.1]", ws.Namespace); got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	if got := len(ws.Status.WorkerNodes); got != 2 {
		t.Errorf("it runs on %v, want two nodes", ws.Status.WorkerNodes)
	}
	pod := &corev1.Pod{}
	if err := c.client.Get(t.Context(), member(ws, 1), pod); err != nil {
		t.Fatal(err)
	}
	if together := pod.Spec.Affinity.PodAffinity; together == nil ||
		together.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey != corev1.LabelTopologyZone {
		t.Errorf("pod affinity %v, want one to the zone of the other member", together)
	}
	c.deleteWithPods(t, ws)
}

func podsLetGo(t *testing.T, c *climber) {
	ws := kaitoForm(c.namespace(t), "chat")
	ws.Resource.LabelSelector = nil
	c.autoscaler.Serve(ws.Namespace, c.group(t, dear, sim.Scales))
	count := c.attemptsOf(t, ws)
	c.create(t, ws)
	c.untilServing(t, ws)
	c.life.end(t)
	if err := c.client.Status().Patch(t.Context(), ws, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	c.life = c.beginWith(t, faults.NewRecorder(), c.clock, c.podOptions())
	c.untilServing(t, ws)
	c.until(t, ws, "1 "+dear)
	c.patch(t, ws, func() { ws.Suspend = true })
	eventually(t, "no pods", func() (bool, string) {
		err := c.client.Get(t.Context(), client.ObjectKey{Namespace: ws.Namespace, Name: "chat-0"}, &corev1.Pod{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	c.until(t, ws, "1 "+dear+" Released")
	if most, ever := count(); most != 1 || ever != 1 {
		t.Errorf("pods of %d attempts at once, %d pods ever; want 1 and 1", most, ever)
	}
	c.deleteWithPods(t, ws)
}

func podsFreeMoney(t *testing.T, c *climber) {
	namespace := c.namespace(t)
	c.autoscaler.Serve(namespace, c.group(t, dear, sim.Scales))
	first, second := groupForm(namespace, "first"), kaitoForm(namespace, "second")
	first.Resource.LabelSelector, second.Resource.LabelSelector = nil, nil
	second.Resource.Placement = &v1beta1.PlacementSpec{NodeSource: v1beta1.NodeSourceProvisioned}
	c.create(t, first)
	c.untilServing(t, first)
	c.create(t, second)
	c.untilCondition(t, second, v1beta1.ConditionNodeClaimReady, metav1.ConditionFalse, v1beta1.ReasonSpendingCeiling)
	c.deleteWithPods(t, first)
	c.untilServing(t, second)
	c.deleteWithPods(t, second)
}
